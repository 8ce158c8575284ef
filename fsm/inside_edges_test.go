package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// TestARegistrationAsksForNoEndOfWhatItEnds: a hold and what is inside are lost
// together, and none of it is to be ended as well.
func TestARegistrationAsksForNoEndOfWhatItEnds(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	in := l.running(l.queued(inside(h)))
	again := register("box", "i2", spec("gpu0", 3600), spec("gpu1", 0))
	again.Devices[0].Begun = h.Lease
	l.ok(again)
	l.wantJob(h.Number, model.JobLost)
	if j := l.wantJob(in.Number, model.JobLost); j.KillRequested {
		t.Errorf("%+v", j)
	}
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonRegistration)
}

// TestALeaseThatItsHostHasSpokenOfHasBegun: the hold could not be started, and
// what is inside is neither taken back nor judged as what nobody has begun.
func TestALeaseThatItsHostHasSpokenOfHasBegun(t *testing.T) {
	l := atInside(t)
	h := l.queued(holdOf("box:gpu0", 600))
	in := l.queued(inside(h))
	failed := exited(h, "i1", 0)
	failed.End, failed.ExitCode = command.EndStartFailed, nil
	l.ok(failed)
	if lease := l.m.View().Lease(h.Lease); !lease.Begun {
		t.Errorf("%+v", lease)
	}
	l.advanceMS(10_000)
	l.ok(gone(in.Number))
	l.wantJob(in.Number, model.JobAssigned)
}

// TestAHoldThatHasNotComeOutlivesARestartAfterTheEndOfWhatWasInside: what was to
// run inside was killed while the hold waited for its hook. The host has spoken
// of the lease and has not begun it, so the hold is ordered again.
func TestAHoldThatHasNotComeOutlivesARestartAfterTheEndOfWhatWasInside(t *testing.T) {
	for _, begun := range []bool{false, true} {
		l := atInside(t)
		h := l.queued(holdOf("box:gpu0", 600))
		in := l.queued(inside(h))
		l.ok(&command.JobKill{Job: in.Number, By: "ann"})
		l.ok(&command.JobFinish{JobRef: ref(in), Host: "box", Instance: "i1", End: command.EndKilled, OutputKnown: true})
		again := register("box", "i2", spec("gpu0", 3600), spec("gpu1", 0))
		want := model.JobAssigned
		if begun {
			again.Devices[0].Begun, want = h.Lease, model.JobLost
		}
		l.ok(again)
		l.wantJob(h.Number, want)
	}
}

// TestTheTextsOfTheJobsInsideAHoldAreBounded: all of them together, those of the
// request and those that are there.
func TestTheTextsOfTheJobsInsideAHoldAreBounded(t *testing.T) {
	l := atInside(t)
	h := l.queued(holdOf("box:gpu0", 600))
	large := inside(h)
	large.Command = []string{"run", strings.Repeat("x", 900_000)}
	for range 4 {
		l.ok(submit(large))
	}
	l.refused(command.HoldFull, submit(inside(h), large))
	l.ok(submit(inside(h)))
	// One that has ended takes no room.
	l.ok(exited(l.m.View().LiveInside(h.Number)[0], "i1", 0))
	l.ok(submit(large))
}

// TestJobsInsideAHoldPassTheBoundsOfTheQueue: they never are in it.
func TestJobsInsideAHoldPassTheBoundsOfTheQueue(t *testing.T) {
	l := atInside(t)
	h := l.queued(holdOf("box:gpu0", 600))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_queued", Value: 1}, {Name: "max_selectors", Value: 1}}})
	l.queued(pinned("box:gpu0"))
	l.refused(command.QueueFull, submit(pinned("box:gpu0")))
	l.ok(submit(inside(h), inside(h)))
	l.refused(command.QueueFull, submit(inside(h), pinned("box:gpu0")))
}

// TestASessionOfAHoldOnADeadHostEndsWithoutIt: where its jobs are retained, for
// nobody will come back to it.
func TestASessionOfAHoldOnADeadHostEndsWithoutIt(t *testing.T) {
	l := atInside(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 1}}})
	h := l.running(l.queued(sessionHold("box:gpu0")))
	in := l.running(l.queued(inside(h)))
	l.advanceMS(60_000)
	sweep := unheard(h, 60_000, 60_000)
	sweep.Silent = []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: 40_000, DetachedMS: 40_000}}
	l.ok(sweep)
	l.wantJob(h.Number, model.JobKilled)
	l.wantJob(in.Number, model.JobKilled)
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonWorkerLost)
}

// TestALaterLeaderKeepsAPlacementInsideAHold: it belongs to the epoch of its
// lease, and is not taken for one of its own that was never ordered.
func TestALaterLeaderKeepsAPlacementInsideAHold(t *testing.T) {
	l := atInside(t)
	h := l.queued(holdOf("box:gpu0", 600))
	l.lead()
	in := l.queued(inside(h))
	l.ok(&command.JobKill{Job: in.Number, By: "ann"})
	l.advanceMS(10_000)
	l.ok(gone(in.Number))
	l.wantJob(in.Number, model.JobAssigned)
}
