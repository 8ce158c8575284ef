package fsm

import (
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// atInside is a log at the feature level of jobs inside holds, with a host of two
// devices.
func atInside(t *testing.T) *log {
	t.Helper()
	l := began(t)
	l.ok(member("c1", LevelInside))
	l.ok(raise(LevelInside))
	l.ok(register("box", "i1", spec("gpu0", 3600), spec("gpu1", 0)))
	return l
}

func holdOf(device string, seconds int64) command.JobSpec {
	return command.JobSpec{Pinned: device, Kind: model.KindHold, MaxRuntimeS: seconds, Submitter: "ann"}
}

func inside(h *model.Job) command.JobSpec {
	return command.JobSpec{Hold: h.Number, Command: []string{"true"}, Submitter: "ann"}
}

// running starts a job as its host says.
func (l *log) running(j *model.Job) *model.Job {
	l.tb.Helper()
	l.ok(started(j, "i1"))
	return l.wantJob(j.Number, model.JobRunning)
}

// TestAJobInsideAHoldSharesItsLease: the same number, device and host, at once,
// whatever is in the queue.
func TestAJobInsideAHoldSharesItsLease(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	waits := l.queued(pinned("box:gpu0"))
	r := l.ok(submit(inside(h), inside(h)))
	l.told(command.EventJobQueued, command.EventJobPlaced, command.EventJobQueued, command.EventJobPlaced)
	for _, j := range r.Jobs {
		if j.State != model.JobAssigned || j.Lease != h.Lease || j.Device() != "box:gpu0" || j.Host != "box" || j.Hold != h.Number || j.MaxRuntimeS != 3600 {
			t.Errorf("%+v", j)
		}
	}
	if got := l.m.View().LiveInside(h.Number); len(got) != 2 || got[0] != r.Jobs[0] {
		t.Errorf("inside are %v", got)
	}
	// One that ends leaves the others and the hold as they are.
	l.running(r.Jobs[0])
	l.ok(exited(r.Jobs[0], "i1", 7))
	l.wantJob(h.Number, model.JobRunning)
	l.wantJob(r.Jobs[1].Number, model.JobAssigned)
	l.wantJob(waits.Number, model.JobQueued)
	if j := l.wantJob(r.Jobs[0].Number, model.JobFailed); *j.ExitCode != 7 || l.device("box:gpu0").Lease != h.Lease {
		t.Errorf("%+v", j)
	}
}

// TestTheDeviceOfAHoldIsFreeOnlyAfterWhatRanInside: the end of the hold asks for
// the end of everything inside, and the last of it ends the lease, once.
func TestTheDeviceOfAHoldIsFreeOnlyAfterWhatRanInside(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	waits := l.queued(pinned("box:gpu0"))
	r := l.ok(submit(inside(h), inside(h)))
	l.running(r.Jobs[0])
	l.ok(exited(h, "i1", 0))
	l.told(command.EventJobEnded, command.EventKillRequested, command.EventKillRequested)
	for _, j := range r.Jobs {
		if j = l.job(j.Number); !j.KillRequested || j.KillBy != "hold j-1 ended" {
			t.Errorf("%+v", j)
		}
	}
	l.refused(command.HoldEnded, submit(inside(h)))
	l.ok(exited(r.Jobs[1], "i1", 0))
	l.wantJob(waits.Number, model.JobQueued)
	l.ok(exited(r.Jobs[0], "i1", 0))
	l.told(command.EventJobEnded, command.EventLeaseEnded, command.EventDeviceState, command.EventDeviceState, command.EventJobPlaced)
	if j := l.wantJob(waits.Number, model.JobAssigned); j.Lease == h.Lease {
		t.Errorf("%+v", j)
	}
}

// TestAHoldThatIsToEndTakesNobodyIn: also while its host has not ended it yet.
func TestAHoldThatIsToEndTakesNobodyIn(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	j := l.queued(inside(h))
	l.ok(&command.LeaseRelease{Job: h.Number, By: "ann"})
	l.told(command.EventKillRequested, command.EventKillRequested)
	if j = l.job(j.Number); !j.KillRequested {
		t.Errorf("%+v", j)
	}
	l.refused(command.HoldEnded, submit(inside(h)))
	l.refused(command.NotExtendable, &command.LeaseExtend{Job: j.Number, By: "ann", MaxRuntimeS: 3601})
	// The end of one inside touches nobody else.
	other := l.running(l.queued(holdOf("box:gpu1", 600)))
	k := l.ok(submit(inside(other), inside(other))).Jobs
	l.ok(&command.JobKill{Job: k[0].Number, By: "ann"})
	l.told(command.EventKillRequested)
	if l.job(k[1].Number).KillRequested || l.job(other.Number).KillRequested {
		t.Error("a kill inside a hold reached others")
	}
}

// TestWhoMayRunInsideAHold walks the refusals.
func TestWhoMayRunInsideAHold(t *testing.T) {
	l := atInside(t)
	h := l.queued(holdOf("box:gpu0", 600))
	waiting := l.queued(holdOf("box:gpu0", 600))
	job := l.queued(pinned("box:gpu1"))
	change := func(do func(*command.JobSpec)) *command.JobEnqueue {
		s := inside(h)
		do(&s)
		return submit(s)
	}
	l.refused(command.NotFound, change(func(s *command.JobSpec) { s.Hold = 99 }))
	l.refused(command.BadRequest, change(func(s *command.JobSpec) { s.Hold = job.Number }))
	l.refused(command.NotJobOwner, change(func(s *command.JobSpec) { s.Submitter = "bob" }))
	l.refused(command.HoldWaiting, change(func(s *command.JobSpec) { s.Hold = waiting.Number }))
	l.refused(command.BadRequest, change(func(s *command.JobSpec) { s.Pinned = "box:gpu0" }))
	l.refused(command.BadRequest, change(func(s *command.JobSpec) { s.Selector = "vram" }))
	l.refused(command.BadRequest, change(func(s *command.JobSpec) { s.Priority = 1 }))
	l.refused(command.BadRequest, change(func(s *command.JobSpec) { s.NoWait = true }))
	l.refused(command.BadRequest, change(func(s *command.JobSpec) { s.Kind, s.Command, s.MaxRuntimeS = model.KindHold, nil, 60 }))
	l.refused(command.BadRequest, change(func(s *command.JobSpec) { s.SessionS = 60 }))
	l.refused(command.RuntimeAboveLimit, change(func(s *command.JobSpec) { s.MaxRuntimeS = 3601 }))
	l.refused(command.BadRequest, &command.LeaseAllocate{Job: func() command.JobSpec { s := inside(h); s.Pinned = "box:gpu0"; return s }()})
	many := make([]command.JobSpec, maxInside)
	for i := range many {
		many[i] = inside(h)
	}
	l.ok(submit(many...))
	l.refused(command.HoldFull, submit(inside(h)))
	below := began(t)
	below.ok(register("box", "i1", spec("gpu0", 0)))
	old := below.queued(holdOf("box:gpu0", 60))
	below.refused(command.FeatureRefused, submit(inside(old)))
}

// TestAnEndWithoutTheHostEndsAllOfALease: by force or under the retain policy. A
// job inside that ends so leaves the hold, and the device out of the pool.
func TestAnEndWithoutTheHostEndsAllOfALease(t *testing.T) {
	for _, force := range []bool{true, false} {
		l := atInside(t)
		l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 1}}})
		h := l.running(l.queued(holdOf("box:gpu0", 600)))
		in := l.ok(submit(inside(h), inside(h))).Jobs
		l.advanceMS(60_000)
		l.ok(&command.Sweep{EpochMS: 60_000, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: 40_000, DetachedMS: 40_000}}})
		end := func(j *model.Job) {
			if force {
				l.ok(&command.LeaseRelease{Job: j.Number, By: "root", Admin: true, Detached: true, Force: true})
			} else {
				l.ok(&command.JobKill{Job: j.Number, By: "ann", Detached: true})
			}
			l.wantJob(j.Number, model.JobKilled)
		}
		end(in[0])
		l.wantJob(h.Number, model.JobRunning)
		if d := l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonWorkerLost); d.Lease != h.Lease {
			t.Errorf("%+v", d)
		}
		end(h)
		if j := l.wantJob(in[1].Number, model.JobKilled); j.EndReason != "hold j-1 ended" || !j.KillRequested {
			t.Errorf("%+v", j)
		}
		l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonWorkerLost)
		if l.m.View().Lease(h.Lease) != nil {
			t.Error("the lease goes on")
		}
	}
}

// TestSurvivorsOfAJobInsideQuarantineTheDevice: while its hold goes on, too.
func TestSurvivorsOfAJobInsideQuarantineTheDevice(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	j := l.running(l.queued(inside(h)))
	end := exited(j, "i1", 0)
	end.Survivors = "pid 77 will not end"
	l.ok(end)
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonFault)
	l.wantJob(h.Number, model.JobRunning)
	l.ok(exited(h, "i1", 0))
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonFault)
}

// gone is a sweep that takes the host for dead, with the jobs it never heard of.
func gone(unordered ...uint64) *command.Sweep {
	return &command.Sweep{EpochMS: 10_000, Unordered: unordered,
		Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: 5000, DetachedMS: 5000}}}
}

// TestAHoldThatGoesBackToTheQueueLeavesNobodyBehind: and goes back only when no
// order of its lease was written; what is inside never goes there.
func TestAHoldThatGoesBackToTheQueueLeavesNobodyBehind(t *testing.T) {
	l := atInside(t)
	h := l.queued(holdOf("box:gpu0", 600))
	in := l.ok(submit(inside(h), inside(h))).Jobs
	l.advanceMS(10_000)
	l.ok(gone(h.Number, in[0].Number))
	l.wantJob(h.Number, model.JobAssigned) // the order of one may have been
	l.ok(gone(in[0].Number, in[1].Number))
	l.wantJob(in[0].Number, model.JobAssigned)
	l.ok(gone(h.Number, in[0].Number, in[1].Number))
	l.wantJob(h.Number, model.JobQueued)
	for _, j := range in {
		if j = l.wantJob(j.Number, model.JobKilled); j.EndReason != "hold j-1 went back to the queue" {
			t.Errorf("%+v", j)
		}
	}
	if l.device("box:gpu0").Lease != 0 {
		t.Error("the lease goes on")
	}
	// It is given a device again, and takes jobs in again.
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	if j := l.queued(inside(l.wantJob(h.Number, model.JobAssigned))); j.Lease != l.job(h.Number).Lease || j.Lease == in[0].Lease {
		t.Errorf("%+v", j)
	}
}

// TestARegistrationEndsWhatIsNotNamedInsideAHold: what was seen to run and is not
// named is lost and may live, so the device leaves the pool; what was not is
// still to be ordered. A hold that is lost takes everything with it.
func TestARegistrationEndsWhatIsNotNamedInsideAHold(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	in := l.ok(submit(inside(h), inside(h), inside(h))).Jobs
	l.running(in[0])
	l.running(in[1])
	again := register("box", "i2", spec("gpu0", 3600), spec("gpu1", 0))
	again.Devices[0].Begun = h.Lease
	again.Jobs = []command.JobRef{ref(h), ref(in[0])}
	again.Proof = command.Proof{SurvivorsChecked: true}
	l.ok(again)
	l.wantJob(h.Number, model.JobRunning)
	l.wantJob(in[0].Number, model.JobRunning)
	l.wantJob(in[1].Number, model.JobLost)
	l.wantJob(in[2].Number, model.JobAssigned)
	if d := l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonRegistration); d.Lease != h.Lease {
		t.Errorf("%+v", d)
	}
	third := register("box", "i3", spec("gpu0", 3600), spec("gpu1", 0))
	third.Devices[0].Begun = h.Lease
	third.Jobs = []command.JobRef{ref(in[0])}
	third.Proof = command.Proof{SurvivorsChecked: true}
	l.ok(third)
	l.wantJob(h.Number, model.JobLost)
	for _, j := range []*model.Job{in[0], in[2]} {
		if j = l.job(j.Number); j.State.Terminal() || !j.KillRequested {
			t.Errorf("%+v", j)
		}
	}
	// Then all is named no more, and after the last of it a proof is enough.
	code := int32(1)
	for _, j := range []*model.Job{in[0], in[2]} {
		l.ok(&command.JobFinish{JobRef: ref(j), Host: "box", Instance: "i3", End: command.EndKilled, ExitCode: &code, OutputKnown: true})
	}
	l.ok(&command.Recover{Host: "box", Instance: "i3", Proof: command.Proof{SurvivorsChecked: true}})
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
}

// TestASilentHostLosesAllOfALease: with one end of the lease, and no request to
// end what is lost already.
func TestASilentHostLosesAllOfALease(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	in := l.queued(inside(h))
	l.advanceMS(hourMS)
	l.ok(&command.Sweep{EpochMS: hourMS, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: hourMS, DetachedMS: hourMS}}})
	l.wantJob(h.Number, model.JobLost)
	l.wantJob(in.Number, model.JobLost)
	leases := 0
	for _, e := range l.events {
		switch e.Kind {
		case command.EventKillRequested:
			t.Errorf("%+v", e)
		case command.EventLeaseEnded:
			leases++
		}
	}
	if leases != 1 {
		t.Errorf("the lease ended %d times", leases)
	}
}

// TestTheLimitOfAHoldSaysWhenItsDeviceComesFree: not that of what runs inside.
func TestTheLimitOfAHoldSaysWhenItsDeviceComesFree(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu1", 600)))
	waits := l.queued(pinned("box:gpu1"))
	latest := func() int64 {
		w, ok := l.m.View().Waiting(waits.Number)
		if !ok {
			t.Fatal("it does not wait")
		}
		return w.Expected.LatestMS
	}
	want := h.StartedAtMS + 600*secondMS + endAllowanceMS
	if got := latest(); got != want {
		t.Errorf("free at %d, want %d", got, want)
	}
	in := l.running(l.queued(inside(h))) // it has no limit
	if got := latest(); got != want+endAllowanceMS {
		t.Errorf("with a job inside free at %d, want %d", got, want+endAllowanceMS)
	}
	l.ok(exited(h, "i1", 0))
	if got := latest(); got != l.job(h.Number).FinishedAtMS+endAllowanceMS {
		t.Errorf("after the hold free at %d", got)
	}
	l.advanceMS(endAllowanceMS)
	l.ok(&command.Schedule{})
	if w, _ := l.m.View().Waiting(waits.Number); w.Expected.LatestMS != 0 || !w.Reasons[0].Devices[0].Past || w.Reasons[0].Devices[0].Job != in.Number {
		t.Errorf("%+v", w)
	}
}

// TestTheJobsOfAHoldAreListed: ended ones too, newest first.
func TestTheJobsOfAHoldAreListed(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(holdOf("box:gpu0", 600)))
	in := l.ok(submit(inside(h), pinned("box:gpu1"), inside(h))).Jobs
	l.ok(exited(in[0], "i1", 0))
	got := l.m.View().Jobs(JobFilter{Limit: 9, Hold: h.Number})
	if len(got) != 2 || got[0].Number != in[2].Number || got[1].Number != in[0].Number {
		t.Errorf("%v", got)
	}
	if got := l.m.View().Jobs(JobFilter{Limit: 9, Hold: in[0].Number}); len(got) != 0 {
		t.Errorf("%v", got)
	}
	restored(t, l.m)
}
