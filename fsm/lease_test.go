package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func retain(l *log) {
	l.tb.Helper()
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 1}}})
}

// outOfSight has the holdoff over and the agent of box silent.
func outOfSight(l *log) {
	l.tb.Helper()
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", 30_000))
}

func TestRefusedReleasesChangeNothing(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	done := l.queued(pinned("box:gpu0"))
	l.ok(exited(done, "i1", 0))
	for _, c := range []struct {
		name string
		code command.Code
		body command.LeaseRelease
	}{
		{"no such job", command.NotFound, command.LeaseRelease{Job: 99, By: "ann"}},
		{"another's", command.NotJobOwner, command.LeaseRelease{Job: j.Number, By: "bob"}},
		{"nobody's word", command.NotJobOwner, command.LeaseRelease{Job: j.Number}},
		{"ended", command.NotReleasable, command.LeaseRelease{Job: done.Number, By: "ann"}},
		{"ended, by force", command.NotReleasable, command.LeaseRelease{Job: done.Number, By: "root", Admin: true, Force: true, Detached: true}},
		{"force is for administrators", command.NotJobOwner, command.LeaseRelease{Job: j.Number, By: "ann", Force: true, Detached: true}},
		{"force while the host is attached", command.NotReleasable, command.LeaseRelease{Job: j.Number, By: "root", Admin: true, Force: true}},
		{"force before a sweep has judged", command.NotReleasable, command.LeaseRelease{Job: j.Number, By: "root", Admin: true, Force: true, Detached: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.refused(c.code, &c.body)
			l.told()
		})
	}
	l.term++
	l.refused(command.StaleEpoch, &command.LeaseRelease{Job: j.Number, By: "ann"})
}

func TestAReleaseEndsAsAKillDoes(t *testing.T) {
	hold := command.JobSpec{Kind: model.KindHold, Pinned: "box:gpu1", Submitter: "ann", MaxRuntimeS: 600}
	t.Run("queued, with or without force", func(t *testing.T) {
		for _, force := range []bool{false, true} {
			l := box(t)
			l.queued(hold)
			waiting := l.queued(hold)
			r := l.ok(&command.LeaseRelease{Job: waiting.Number, By: "ann", Force: force})
			l.told(command.EventJobEnded)
			if end := l.wantJob(waiting.Number, model.JobKilled); r.Kill != command.KillCancelled || end.EndReason != "released by ann" || end.Origin != model.OriginUser || end.ExitCode != nil {
				t.Errorf("%+v", end)
			}
		}
	})
	t.Run("assigned, then running", func(t *testing.T) {
		l := box(t)
		j := l.queued(hold)
		for _, state := range []model.JobState{model.JobAssigned, model.JobRunning} {
			if r := l.ok(&command.LeaseRelease{Job: j.Number, By: "ann"}); r.Kill != command.KillAsked {
				t.Errorf("outcome %d", r.Kill)
			}
			l.told(command.EventKillRequested)
			if now := l.wantJob(j.Number, state); !now.KillRequested || now.KillBy != "released by ann" {
				t.Errorf("%+v", now)
			}
			l.ok(started(j, "i1"))
		}
		// The wish that came first stays; the host ends it and says how.
		l.ok(&command.JobKill{Job: j.Number, By: "root", Admin: true})
		f := exited(j, "i1", 143)
		f.End = command.EndKilled
		l.ok(f)
		if end := l.wantJob(j.Number, model.JobKilled); end.EndReason != "released by ann" || *end.ExitCode != 143 {
			t.Errorf("%+v", end)
		}
		l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	})
	t.Run("retained and out of reach", func(t *testing.T) {
		l := box(t)
		retain(l)
		j := l.queued(hold)
		l.ok(started(j, "i1"))
		outOfSight(l)
		if r := l.ok(&command.LeaseRelease{Job: j.Number, By: "ann", Detached: true}); r.Kill != command.KillFinalized {
			t.Errorf("outcome %d", r.Kill)
		}
		l.told(command.EventKillRequested, command.EventJobEnded, command.EventLeaseEnded, command.EventDeviceState)
		if end := l.wantJob(j.Number, model.JobKilled); !end.KillRequested || end.ExitCode != nil || end.EndReason != "released by ann" {
			t.Errorf("%+v", end)
		}
		l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	})
}

// TestForceEndsALeaseWithoutItsHost: and what may still run there keeps the
// device out of the pool, the flag ready for a late return.
func TestForceEndsALeaseWithoutItsHost(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	next := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	outOfSight(l)
	force := &command.LeaseRelease{Job: j.Number, By: "root", Admin: true, Force: true, Detached: true}
	l.lead() // law 4: not by an epoch that may simply not have been found yet
	l.refused(command.NotReleasable, force)
	l.advanceMS(29_999)
	l.refused(command.NotReleasable, force)
	l.advanceMS(1)
	attached := *force
	attached.Detached = false // it has come back, and the next sweep will say so
	l.refused(command.NotReleasable, &attached)
	r := l.sent("k", force)
	if r.Code != command.OK || r.Kill != command.KillFinalized {
		t.Fatalf("%+v", r)
	}
	l.told(command.EventKillRequested, command.EventJobEnded, command.EventLeaseEnded, command.EventDeviceState)
	end := l.wantJob(j.Number, model.JobKilled)
	if end.EndReason != "released by force by admin override (as root)" || !end.KillRequested || end.ExitCode != nil || end.Lease != j.Lease {
		t.Errorf("%+v", end)
	}
	d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	if d.Lease != 0 || !strings.Contains(d.Detail, end.ID()) {
		t.Errorf("%+v", d)
	}
	l.wantJob(next.Number, model.JobQueued)
	if again := l.sent("k", force); !again.Repeat || again.Code != command.OK || again.Kill != command.KillFinalized {
		t.Errorf("repeated: %+v", again)
	}
	l.refused(command.NotReleasable, force)
	// The host returns and names the job: late truth is added, nothing else.
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	for _, live := range l.m.View().LiveJobsOn("box") {
		if live.Number == j.Number {
			t.Error("the host would be told that it may go on")
		}
	}
	if r := l.one(exited(j, "i1", 9)); r.Code != command.AlreadyEnded || *l.job(j.Number).LateExitCode != 9 || l.job(j.Number).State != model.JobKilled {
		t.Errorf("%+v", r)
	}
}

func TestForceLeavesAGraverReasonAlone(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(&command.DeviceFault{Device: "box:gpu1", Detail: "smoke"})
	outOfSight(l)
	l.ok(&command.LeaseRelease{Job: j.Number, By: "root", Admin: true, Force: true, Detached: true})
	if d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault); d.Detail != "smoke" || d.Lease != 0 {
		t.Errorf("%+v", d)
	}
}

func extend(j *model.Job, seconds int64) *command.LeaseExtend {
	return &command.LeaseExtend{Job: j.Number, By: "ann", MaxRuntimeS: seconds}
}

func asking(s command.JobSpec, seconds int64) command.JobSpec {
	s.MaxRuntimeS = seconds
	return s
}

func TestRefusedExtensionsChangeNothing(t *testing.T) {
	l := box(t)
	active := l.queued(asking(pinned("box:gpu0"), 60))
	ending := l.queued(asking(pinned("box:gpu1"), 60))
	l.ok(&command.JobKill{Job: ending.Number, By: "ann"})
	unlimited := l.queued(pinned("box:gpu1"))
	waiting := l.queued(asking(pinned("box:gpu0"), 60))
	inherits := l.queued(pinned("box:gpu0"))
	lands := l.queued(selecting("rack=r3"))
	selector := l.queued(asking(selecting("rack=r3"), 60))
	l.ok(register("done", "d1", spec("g", 0)))
	done := l.queued(asking(pinned("done:g"), 60))
	l.ok(exited(done, "d1", 0))
	for _, c := range []struct {
		name string
		code command.Code
		body *command.LeaseExtend
	}{
		{"no such job", command.NotFound, &command.LeaseExtend{Job: 99, By: "ann", MaxRuntimeS: 100}},
		{"another's", command.NotJobOwner, &command.LeaseExtend{Job: active.Number, By: "bob", MaxRuntimeS: 100}},
		{"ended", command.NotExtendable, extend(done, 100)},
		{"being ended", command.NotExtendable, extend(ending, 100)},
		{"no limit", command.NotExtendable, extend(unlimited, 100)},
		{"the ceiling already, pinned", command.NotExtendable, extend(inherits, 4000)},
		{"the ceiling already, wherever it lands", command.NotExtendable, extend(lands, 4000)},
		{"the same", command.NotExtendable, extend(active, 60)},
		{"shorter", command.NotExtendable, extend(active, 59)},
		{"negative", command.NotExtendable, extend(active, -1)},
		{"ten years and more", command.BadRequest, extend(active, maxRuntimeS+1)},
		{"active, above the ceiling", command.RuntimeAboveLimit, extend(active, 3601)},
		{"pinned and queued, above the ceiling", command.RuntimeAboveLimit, extend(waiting, 3601)},
		{"selector and queued, above every match", command.RuntimeAboveLimit, extend(selector, 3601)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.refused(c.code, c.body)
			l.told()
		})
	}
	l.term++
	l.refused(command.StaleEpoch, extend(active, 100))
}

func TestAnExtensionLengthensWithinTheCeiling(t *testing.T) {
	l := box(t)
	j := l.queued(asking(pinned("box:gpu0"), 60))
	l.ok(started(j, "i1"))
	r := l.sent("k", extend(j, 3600))
	l.told(command.EventJobExtended)
	if e := l.events[0]; e.Job != j.Number || e.Lease != j.Lease || e.Host != "box" {
		t.Errorf("%+v", e)
	}
	if now := l.wantJob(j.Number, model.JobRunning); now.MaxRuntimeS != 3600 || !now.CeilingAsked || r.Jobs[0] != now || now.Lease != j.Lease {
		t.Errorf("%+v", now)
	}
	if again := l.sent("k", extend(j, 3600)); !again.Repeat || again.Code != command.OK {
		t.Errorf("repeated: %+v", again)
	}
	l.told()
	// By an administrator, of a hold, on a device without a ceiling.
	hold := l.queued(command.JobSpec{Kind: model.KindHold, Pinned: "box:gpu1", Submitter: "bob", MaxRuntimeS: 60})
	l.ok(&command.LeaseExtend{Job: hold.Number, By: "root", Admin: true, MaxRuntimeS: maxRuntimeS})
	// What it inherited may be lengthened when its device allows more now.
	l = box(t)
	inherited := l.queued(pinned("box:gpu0"))
	l.refused(command.RuntimeAboveLimit, extend(inherited, 7200))
	l.ok(register("box", "i1", spec("gpu0", 7200, "rack", "r3"), spec("gpu1", 0)))
	l.ok(extend(inherited, 7200))
	if now := l.job(inherited.Number); now.MaxRuntimeS != 7200 || !now.CeilingAsked {
		t.Errorf("%+v", now)
	}
	// What was asked for by then is kept when the placement is taken back.
	l.advanceMS(minuteMS)
	dead := silent("box", "i1", 3000)
	dead.Unordered = []uint64{inherited.Number}
	l.ok(dead)
	if now := l.wantJob(inherited.Number, model.JobQueued); now.MaxRuntimeS != 7200 {
		t.Errorf("%+v", now)
	}
}

// TestAnExtendedJobInTheQueueKeepsItsPlaceAndChangesItsGroup: a device that
// does not tolerate the new runtime is not given to it any more, one that does
// is, in its old place.
func TestAnExtendedJobInTheQueueKeepsItsPlaceAndChangesItsGroup(t *testing.T) {
	l := box(t)
	l.ok(register("big", "i1", spec("g", 7200, "rack", "r3")))
	short, long := l.queued(pinned("box:gpu0")), l.queued(pinned("big:g"))
	first := l.queued(asking(selecting("rack=r3"), 60))
	second := l.queued(asking(selecting("rack=r3"), 7000))
	third := l.queued(asking(selecting("rack=r3"), 50))
	l.ok(extend(first, 7100))
	l.told(command.EventJobExtended)
	for i, j := range []*model.Job{first, second, third} {
		if p := l.m.View().QueuePosition(j.Number); p != i+1 {
			t.Errorf("job %d is at %d, want %d", j.Number, p, i+1)
		}
	}
	twin := restored(t, l.m) // a scheduler built anew groups alike
	l.ok(exited(short, "i1", 0))
	l.wantJob(first.Number, model.JobQueued)
	if j := l.wantJob(third.Number, model.JobAssigned); j.Device() != "box:gpu0" {
		t.Errorf("placed on %s", j.Device())
	}
	l.ok(exited(long, "i1", 0))
	if j := l.wantJob(first.Number, model.JobAssigned); j.Device() != "big:g" || j.MaxRuntimeS != 7100 {
		t.Errorf("%+v", j)
	}
	l.wantJob(second.Number, model.JobQueued)
	for _, e := range l.entries[len(l.entries)-2:] {
		if _, _, err := twin.Apply(e.index, e.term, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if twin.Digest() != l.m.Digest() {
		t.Error("a restored machine decided otherwise")
	}
}

func TestKillOutcomesAreTheSameForARepeatedRequest(t *testing.T) {
	l := box(t)
	retain(l)
	running, waiting := l.queued(pinned("box:gpu1")), l.queued(pinned("box:gpu1"))
	l.ok(started(running, "i1"))
	cancel := &command.JobKill{Job: waiting.Number, By: "ann"}
	ask := &command.JobKill{Job: running.Number, By: "ann", Detached: true}
	if r := l.sent("c", cancel); r.Kill != command.KillCancelled {
		t.Fatalf("%+v", r)
	}
	l.told(command.EventJobEnded)
	if r := l.sent("a", ask); r.Kill != command.KillAsked {
		t.Fatalf("%+v", r)
	}
	l.told(command.EventKillRequested)
	outOfSight(l)
	if r := l.sent("f", ask); r.Kill != command.KillFinalized {
		t.Fatalf("%+v", r)
	}
	l.told(command.EventKillRequested, command.EventJobEnded, command.EventLeaseEnded, command.EventDeviceState)
	for _, m := range []*Machine{l.m, restored(t, l.m)} {
		l.m = m
		for id, want := range map[string]command.KillOutcome{"c": command.KillCancelled, "a": command.KillAsked, "f": command.KillFinalized} {
			body := ask
			if id == "c" {
				body = cancel
			}
			if r := l.sent(id, body); !r.Repeat || r.Code != command.OK || r.Kill != want || r.Jobs[0].State != model.JobKilled {
				t.Errorf("%s: %+v", id, r)
			}
			l.told()
		}
	}
	if j := l.job(running.Number); !j.KillRequested || j.KillBy != "killed by ann" {
		t.Errorf("the flag for a late return: %+v", j)
	}
}

func TestAnAskedJobOfASilentHostIsLostWithItAndNotUnderRetain(t *testing.T) {
	for _, kept := range []bool{false, true} {
		l := box(t)
		if kept {
			retain(l)
		}
		j := l.queued(pinned("box:gpu1"))
		l.ok(started(j, "i1"))
		if r := l.ok(&command.JobKill{Job: j.Number, By: "ann", Detached: true}); r.Kill != command.KillAsked {
			t.Fatalf("outcome %d: no sweep has said that it is silent", r.Kill)
		}
		l.advanceMS(hourMS)
		l.ok(silent("box", "i1", 10*minuteMS))
		want := model.JobLost
		if kept {
			want = model.JobRunning
		}
		if end := l.wantJob(j.Number, want); !end.KillRequested {
			t.Error("the flag is gone")
		}
		l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	}
}
