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
