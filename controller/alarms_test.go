package controller

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"rcd/fsm"
)

func TestWhatWaitsForAnOperatorIsToldEachMinuteUntilItIsOver(t *testing.T) {
	var out bytes.Buffer
	c := &Controller{machine: fsm.New(fsm.Options{}), log: slog.New(slog.NewTextHandler(&out, nil))}
	zero := time.Unix(1_000_000, 0)
	var told crier
	lines := func(after time.Duration) int {
		out.Reset()
		told.tell(c, zero.Add(after))
		return strings.Count(out.String(), "level=ERROR")
	}
	if n := lines(0); n != 0 {
		t.Errorf("%d lines about nothing", n)
	}
	c.alarms.raise("tables_differ", zero, "look")
	c.alarms.raise("tables_differ", zero.Add(time.Second), "look again") // it goes on
	if list := c.alarmed(); len(list) != 1 || !list[0].Since.Equal(zero) || list[0].Message != "look again" {
		t.Errorf("alarms %+v", list)
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{time.Second, 1}, {2 * time.Second, 0}, {time.Minute, 0}, {61 * time.Second, 1}, {62 * time.Second, 0}} {
		if n := lines(step.after); n != step.want {
			t.Errorf("after %v: %d lines, want %d", step.after, n, step.want)
		}
	}
	c.alarms.end("tables_differ")
	if n := lines(3 * time.Minute); n != 0 {
		t.Errorf("%d lines when it is over", n)
	}
}
