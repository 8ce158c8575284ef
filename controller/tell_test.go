package controller

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"rcd/fsm"
	"rcd/fsm/command"
)

func TestWhatHappensToDevicesIsToldInOneLineForEachReason(t *testing.T) {
	var out bytes.Buffer
	c := &Controller{machine: fsm.New(fsm.Options{}), log: slog.New(slog.NewTextHandler(&out, nil))}
	events := []command.Event{
		{Kind: command.EventJobEnded, Job: 1, Host: "box", Reason: "x"},
		{Kind: command.EventDeviceState, Device: "box:gpu9"}, // held, or free
		{Kind: command.EventDeviceRecovered, Device: "box:gpu1", Reason: "worker_lost"},
		{Kind: command.EventRecoveryWithheld, Device: "box:gpu2", Reason: "worker_lost"},
		{Kind: command.EventDeviceState, Device: "far:gpu0", Reason: "fault"},
		{Kind: command.EventDeviceRetired, Device: "box:gpu3"},
	}
	for i := range 7 {
		events = append(events, command.Event{Kind: command.EventDeviceState, Device: fmt.Sprintf("m%d:gpu0", i), Reason: "worker_lost"})
	}
	c.tellFleet(events)
	var lines []string
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // without the time
		lines = append(lines, line)
	}
	want := []string{
		`level=WARN msg="devices are in quarantine" devices=far:gpu0 reason=fault`,
		`level=WARN msg="devices are in quarantine" devices="m0:gpu0, m1:gpu0, m2:gpu0, m3:gpu0, m4:gpu0 and 2 more" reason=worker_lost`,
		`level=INFO msg="devices came back from quarantine by themselves" devices=box:gpu1 reason=worker_lost`,
		`level=WARN msg="devices stay in quarantine, their automatic returns are used up: look at them, then rc clear" devices=box:gpu2 reason=worker_lost`,
		`level=INFO msg="devices are retired" devices=box:gpu3`,
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
