package fsm

import (
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// silent is the evidence of an old epoch about one detached agent.
func silent(host, instance string, ms int64) *command.Sweep {
	return &command.Sweep{EpochMS: hourMS, Silent: []command.AgentSilence{{Host: host, Instance: instance, SilenceMS: ms, DetachedMS: ms}}}
}

func TestSilenceNeverJudgesInTheHoldoff(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.advanceMS(hourMS)
	l.lead() // a leader that knows of an hour of silence, from before its time
	l.ok(silent("box", "i1", hourMS))
	l.wantDevice("box:gpu1", model.DeviceBusy, model.ReasonNone) // not even unknown: the epoch is 0 s old
	l.advanceMS(3000)
	l.ok(silent("box", "i1", hourMS))
	l.wantDevice("box:gpu1", model.DeviceUnknown, model.ReasonNone)
	unnamed := &command.Sweep{EpochMS: hourMS, Unnamed: []command.LeaseUnnamed{{Lease: j.Lease, UnnamedMS: hourMS}}}
	l.advanceMS(26_999)
	l.ok(silent("box", "i1", hourMS))
	l.ok(unnamed)
	l.wantJob(j.Number, model.JobRunning)
	// The holdoff is over, and evidence still counts from the epoch's start.
	l.advanceMS(60_000)
	l.ok(silent("box", "i1", hourMS))
	l.wantJob(j.Number, model.JobRunning)
	l.advanceMS(5*minuteMS - 29_999 - 60_000)
	l.ok(silent("box", "i1", hourMS))
	l.wantJob(j.Number, model.JobLost)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonWorkerLost)
}

func TestAYoungEpochByTheLeadersClockJudgesNobody(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.advanceMS(hourMS)
	s := silent("box", "i1", hourMS)
	s.EpochMS = 29_999
	l.ok(s)
	l.wantJob(j.Number, model.JobAssigned)
	l.wantDevice("box:gpu1", model.DeviceUnknown, model.ReasonNone)
}

func TestAPassedEpochIsNeverHeard(t *testing.T) {
	l := box(t)
	l.advanceMS(hourMS)
	l.term++ // somebody else leads
	before := l.m.Digest()
	r := l.applyAs(l.term-1, encode(t, command.Request{}, silent("box", "i1", hourMS)))[0]
	if r.Code != command.StaleEpoch {
		t.Fatalf("code %q", r.Code)
	}
	// Even with the right term: its epoch has not begun.
	if r := l.one(silent("box", "i1", hourMS)); r.Code != command.StaleEpoch {
		t.Fatalf("code %q", r.Code)
	}
	if l.m.Digest() != before {
		t.Error("something changed, the clocks included")
	}
}

func TestSilenceOfAnotherInstanceIsNoEvidence(t *testing.T) {
	l := box(t)
	l.advanceMS(hourMS)
	l.ok(silent("box", "i0", hourMS))
	l.ok(silent("nowhere", "i1", hourMS))
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	// Nor is silence from before the registration.
	l.ok(register("box", "i2", spec("gpu0", 3600), spec("gpu1", 0)))
	l.ok(silent("box", "i2", hourMS))
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
}

func TestHeardAgainBringsDevicesBackAndSchedules(t *testing.T) {
	l := box(t)
	running := l.queued(pinned("box:gpu1"))
	l.ok(started(running, "i1"))
	l.advanceMS(minuteMS)
	l.ok(silent("box", "i1", 3000))
	waiting := l.queued(pinned("box:gpu0"))
	if waiting.State != model.JobQueued {
		t.Fatal("an unknown device was given away")
	}
	both := silent("box", "i1", hourMS)
	both.Heard = []command.AgentHeard{{Host: "box", Instance: "i1"}}
	l.ok(both) // contact wins over silence in one sweep
	l.wantDevice("box:gpu1", model.DeviceBusy, model.ReasonNone)
	l.wantJob(waiting.Number, model.JobAssigned)
	l.wantJob(running.Number, model.JobRunning)
}

func TestAttachedSilenceTakesLongerThanDetachment(t *testing.T) {
	l := box(t)
	l.advanceMS(hourMS)
	attached := func(ms int64) *command.Sweep {
		return &command.Sweep{EpochMS: hourMS, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: ms}}}
	}
	l.ok(attached(29_999))
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	l.ok(attached(30_000))
	l.wantDevice("box:gpu0", model.DeviceUnknown, model.ReasonNone)
}

func TestRetainKeepsJobsOfALostAgent(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 1}}})
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", hourMS))
	l.wantJob(j.Number, model.JobRunning)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	if l.m.View().Lease(j.Lease) == nil {
		t.Error("the lease is gone")
	}
	// The policy goes: the next sweep ends it.
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 0}}})
	l.ok(silent("box", "i1", hourMS))
	l.wantJob(j.Number, model.JobLost)
}

func TestAnUnnamedLeaseEndsAfterItsBoundAlsoUnderRetain(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 1}}})
	unstarted, begun := l.queued(pinned("box:gpu0")), l.queued(pinned("box:gpu1"))
	l.ok(started(begun, "i1"))
	sweep := func(ms int64) {
		t.Helper()
		l.ok(&command.Sweep{EpochMS: 10 * hourMS, Unnamed: []command.LeaseUnnamed{
			{Lease: unstarted.Lease, UnnamedMS: ms}, {Lease: begun.Lease, UnnamedMS: ms}, {Lease: 999, UnnamedMS: ms},
		}})
	}
	sweep(hourMS) // younger than that: the evidence is wrong
	l.wantJob(unstarted.Number, model.JobAssigned)
	l.advanceMS(hourMS)
	sweep(5*minuteMS - 1)
	l.wantJob(unstarted.Number, model.JobAssigned)
	sweep(5 * minuteMS)
	l.wantJob(unstarted.Number, model.JobLost)
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonLeaseExpired)
	l.wantJob(begun.Number, model.JobRunning)
	// A silent agent cannot name anything: other rules apply.
	l.ok(silent("box", "i1", 3000))
	sweep(hourMS)
	l.wantJob(begun.Number, model.JobRunning)
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	sweep(15 * minuteMS)
	l.wantJob(begun.Number, model.JobLost)
}

func TestADeadHostDoesNotSwallowTheQueue(t *testing.T) {
	l := box(t)
	l.ok(register("spare", "s1", spec("g", 0, "rack", "r3")))
	busy := l.queued(pinned("spare:g"))
	s := selecting("rack=r3")
	s.Priority = 3
	placed := l.queued(s)
	killed := l.queued(pinned("box:gpu1"))
	l.ok(&command.JobKill{Job: killed.Number, By: "ann"})
	behind := l.queued(selecting("rack=r3"))
	sweep := &command.Sweep{Unordered: []uint64{placed.Number, killed.Number, 999}}
	l.ok(sweep) // its host is there: an order may still go out
	l.wantJob(placed.Number, model.JobAssigned)

	l.advanceMS(minuteMS)
	sweep.Silent, sweep.EpochMS = silent("box", "i1", 3000).Silent, minuteMS
	l.ok(sweep)
	back := l.wantJob(placed.Number, model.JobQueued)
	if back.QueueAtMS != placed.QueueAtMS || back.QueueAtMS >= behind.QueueAtMS || back.Lease != 0 {
		t.Errorf("it is not in its old place: %+v", back)
	}
	if j := l.wantJob(killed.Number, model.JobKilled); j.EndReason != "killed by ann" {
		t.Errorf("reason %q", j.EndReason)
	}
	l.ok(exited(busy, "s1", 0))
	if j := l.wantJob(placed.Number, model.JobAssigned); j.Device() != "spare:g" || j.Lease <= placed.Lease {
		t.Errorf("%+v", j)
	}
	l.refused(command.StaleLease, exited(placed, "i1", 0))
}

func TestAPlacementOfAnotherEpochIsNotTakenBack(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.lead() // the leader before may have written the order
	l.advanceMS(minuteMS)
	s := silent("box", "i1", 3000)
	s.Unordered = []uint64{j.Number}
	l.ok(s)
	l.wantJob(j.Number, model.JobAssigned)
}

func TestTheHoldoffHoldsWhereItIsTheLongestBound(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{
		{Name: "holdoff_ms", Value: 10 * minuteMS}, {Name: "write_off_after_ms", Value: minuteMS},
		{Name: "lease_unnamed_ms", Value: minuteMS}, {Name: "lease_unstarted_ms", Value: minuteMS},
	}})
	silentJob := l.queued(pinned("box:gpu1"))
	l.ok(register("far", "f1", spec("g", 0)))
	unnamedJob := l.queued(pinned("far:g"))
	sweep := func() {
		s := silent("box", "i1", hourMS)
		s.Unnamed = []command.LeaseUnnamed{{Lease: unnamedJob.Lease, UnnamedMS: hourMS}}
		l.ok(s)
	}
	l.advanceMS(10*minuteMS - 1)
	sweep()
	l.wantJob(silentJob.Number, model.JobAssigned)
	l.wantJob(unnamedJob.Number, model.JobAssigned)
	l.lead() // regained: it starts anew
	l.advanceMS(10*minuteMS - 1)
	sweep()
	l.wantJob(silentJob.Number, model.JobAssigned)
	l.wantJob(unnamedJob.Number, model.JobAssigned)
	l.advanceMS(1)
	sweep()
	l.wantJob(silentJob.Number, model.JobLost)
	l.wantJob(unnamedJob.Number, model.JobLost)
}

func TestALeaseCannotHaveGoneUnnamedForLongerThanItLives(t *testing.T) {
	l := box(t)
	l.advanceMS(hourMS)
	l.ok(&command.Sweep{})
	j := l.queued(pinned("box:gpu1"))
	l.advanceMS(5*minuteMS - 1)
	l.ok(&command.Sweep{EpochMS: 2 * hourMS, Unnamed: []command.LeaseUnnamed{{Lease: j.Lease, UnnamedMS: hourMS}}})
	l.wantJob(j.Number, model.JobAssigned)
}

func TestANoWaitJobTakenBackDoesNotWait(t *testing.T) {
	l := box(t)
	s := pinned("box:gpu1")
	s.NoWait = true
	j := l.queued(s)
	l.advanceMS(minuteMS)
	sweep := silent("box", "i1", 3000)
	sweep.Unordered = []uint64{j.Number}
	l.ok(sweep)
	if end := l.wantJob(j.Number, model.JobKilled); end.EndReason != "no-wait: device busy" {
		t.Errorf("reason %q", end.EndReason)
	}
}

// TestLastHeardIsNotMadeUp: a leader counts silence from its epoch's start at
// the earliest, which is no moment at which anybody was heard.
func TestLastHeardIsNotMadeUp(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("g", 0)))
	registered := l.m.View().Agent("box").LastHeardMS
	l.advanceMS(hourMS)
	l.lead()
	l.advanceMS(10_000)
	l.ok(&command.Sweep{EpochMS: 10_000, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: 10_000, DetachedMS: 10_000}}})
	if a := l.m.View().Agent("box"); !a.Silent || a.LastHeardMS != registered {
		t.Errorf("last heard at %d, it registered at %d: %+v", a.LastHeardMS, registered, a)
	}
	l.ok(&command.Sweep{EpochMS: 10_000, Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	l.advanceMS(20_000)
	l.ok(&command.Sweep{EpochMS: 30_000, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: 5_000, DetachedMS: 4_000}}})
	if a, now := l.m.View().Agent("box"), l.m.View().NowMS(); a.LastHeardMS != now-5_000 {
		t.Errorf("last heard %d ms ago, want 5000", now-a.LastHeardMS)
	}
}
