package fsm

import (
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// TestALeaseIsNotUnnamedForLongerThanItsHostIsRegistered: a registration names
// what its host runs; a sweep whose figure was taken before it arrived must not
// end what the fresh agent has just taken over.
func TestALeaseIsNotUnnamedForLongerThanItsHostIsRegistered(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("gpu0", 0)))
	j := l.queued(pinned("box:gpu0"))
	l.ok(started(j, "i1"))
	l.advanceMS(16 * minuteMS)
	b := register("box", "i2", spec("gpu0", 0))
	b.Jobs = []command.JobRef{ref(j)}
	l.ok(b)
	sweep := &command.Sweep{EpochMS: hourMS, Unnamed: []command.LeaseUnnamed{{Lease: j.Lease, UnnamedMS: 16 * minuteMS}}}
	l.ok(sweep)
	l.wantJob(j.Number, model.JobRunning)
	l.advanceMS(15*minuteMS - 1)
	l.ok(sweep)
	l.wantJob(j.Number, model.JobRunning)
	l.advanceMS(1)
	l.ok(sweep)
	l.wantJob(j.Number, model.JobLost)
}
