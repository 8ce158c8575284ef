package agent

import (
	"context"
	"strings"
	"testing"

	"rcd/wire"
)

// TestAHostThatStartsNothingLeavesThePool: one without its own program fails
// each job at once, and would empty the queue.
func TestAHostThatStartsNothingLeavesThePool(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	good := a.deps.Exec
	n := uint64(0)
	run := func(program string, command ...string) wire.Outcome {
		t.Helper()
		n++
		a.deps.Exec = program
		a.Order(context.Background(), order(wire.OrderStart, n, n, command...))
		o := a.awaitOutcome(t, key{n, n})
		a.Acked(wire.OutcomeAck{Job: n, Lease: n})
		return o
	}
	const none = "/no/such/rcd"
	fit := func(o wire.Outcome) {
		t.Helper()
		if o.Survivors != "" {
			t.Errorf("job %d takes its device out: %s", o.Job, o.Survivors)
		}
	}
	for range unstartableAfter - 1 {
		fit(run(none, "true"))
	}
	fit(run(good, "/no/such/program")) // the job's own fault
	fit(run(good, "true"))             // the host can start jobs again
	for range unstartableAfter - 1 {
		fit(run(none, "true"))
	}
	for range 2 { // an operator who returns the device too early has it back at once
		if o := run(none, "true"); !strings.Contains(o.Survivors, "could not be started on this host") || !strings.Contains(o.Survivors, "install rcd on the host again") || !strings.Contains(o.Survivors, "rc clear") {
			t.Errorf("job %d leaves its device in the pool: %q", o.Job, o.Survivors)
		}
	}
	fit(run(good, "true"))
}

// TestAHostIsJudgedByWhatItTriedToStart: a job that is ended before it begins has
// not shown that the host can start any.
func TestAHostIsJudgedByWhatItTriedToStart(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	a.deps.Exec = "/no/such/rcd"
	for n := uint64(1); n < unstartableAfter; n++ {
		a.Order(context.Background(), order(wire.OrderStart, n, n, "true"))
		a.awaitOutcome(t, key{n, n})
	}
	a.Order(context.Background(), order(wire.OrderKill, 8, 8, "true"))
	a.awaitOutcome(t, key{8, 8})
	a.Order(context.Background(), order(wire.OrderStart, 9, 9, "true"))
	if o := a.awaitOutcome(t, key{9, 9}); !strings.Contains(o.Survivors, "could not be started on this host") {
		t.Errorf("the device stays in the pool: %q", o.Survivors)
	}
}

// TestAHoldOnAHostThatStartsNothingTakesItsDeviceOutOnce: else each job inside
// makes the device's reason longer, or another one.
func TestAHoldOnAHostThatStartsNothingTakesItsDeviceOutOnce(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	a.start1(t, holdOrder(1))
	a.deps.Exec = "/no/such/rcd"
	var told []string
	for job := uint64(2); job < 2*unstartableAfter+2; job++ {
		a.Order(context.Background(), insideOrder(wire.OrderStart, job, "true"))
		if o := a.awaitOutcome(t, key{job, 1}); o.Survivors != "" {
			told = append(told, o.Survivors)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "could not be started on this host") {
		t.Errorf("told %d times: %q", len(told), told)
	}
}
