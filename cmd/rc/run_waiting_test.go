package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

// A latest start that follows the clock, as behind a job that has not begun, is
// not told twice a second.
func TestALatestStartIsToldAgainOnlyWhenItHasMoved(t *testing.T) {
	var out bytes.Buffer
	q := queueTalk{app: &app{stderr: &out}, target: "box:gpu0"}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reasons := []wire.WaitReason{{Code: wire.WaitDeviceBusy, Message: "box:gpu0 is held by bob\x1b[31m with job j-1."}}
	lines := func(latest time.Duration) int {
		e := wire.ExpectedStart{Earliest: &now}
		if latest != 0 {
			at := now.Add(latest)
			e.Latest = &at
		}
		q.look(&wire.JobView{QueuePosition: 1, Waiting: &wire.Waiting{Reasons: reasons, ExpectedStart: e}})
		n := strings.Count(out.String(), "\n")
		out.Reset()
		return n
	}
	for _, step := range []struct {
		latest time.Duration
		want   int
	}{
		{time.Hour, 2}, // the place, and why
		{time.Hour + time.Second, 0},
		{time.Hour + 5*time.Minute, 0}, // under a tenth
		{time.Hour + 10*time.Minute, 1},
		{time.Hour + 10*time.Minute, 0},
		{2 * time.Minute, 1},
		{2*time.Minute + 30*time.Second, 0}, // under a minute
		{0, 1},
		{0, 0},
		{time.Minute, 1},
	} {
		if got := lines(step.latest); got != step.want {
			t.Errorf("at %v: %d lines, want %d", step.latest, got, step.want)
		}
	}
	reasons[0].Message = "box:gpu0 is held by\x1b eve."
	e := wire.ExpectedStart{Earliest: &now}
	q.look(&wire.JobView{QueuePosition: 1, Waiting: &wire.Waiting{Reasons: reasons, ExpectedStart: e}})
	if got := out.String(); got != "rc: box:gpu0 is held by\\x1b eve; until when cannot be said\n" {
		t.Errorf("%q", got)
	}
	q.look(&wire.JobView{QueuePosition: 1}) // an older controller
}

// "Until when cannot be said" would contradict it.
func TestAJobThatIsGoingToEndInTheQueueIsToldWithoutAStart(t *testing.T) {
	var out bytes.Buffer
	q := queueTalk{app: &app{stderr: &out}, target: "box:gpu0"}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reasons := []wire.WaitReason{{Code: wire.WaitNoDevice, Message: "It is gone. The job ends when that has lasted for 600 s.", Since: &since}}
	q.look(&wire.JobView{Waiting: &wire.Waiting{Reasons: reasons}})
	if got := out.String(); got != "rc: It is gone. The job ends when that has lasted for 600 s\n" {
		t.Errorf("%q", got)
	}
}
