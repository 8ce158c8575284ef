package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func TestAJobsLife(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	if l.wantDevice("box:gpu1", model.DeviceBusy, model.ReasonNone).Lease != j.Lease {
		t.Fatal("the device is under another lease")
	}
	l.ok(started(j, "i1"))
	if run := l.wantJob(j.Number, model.JobRunning); run.StartedAtMS != l.m.View().NowMS() {
		t.Errorf("started at %d", run.StartedAtMS)
	}
	l.ok(started(j, "i1")) // repeated
	l.advanceMS(5000)
	l.ok(exited(j, "i1", 3))
	end := l.wantJob(j.Number, model.JobFailed)
	if *end.ExitCode != 3 || end.FinishedAtMS-end.StartedAtMS != 5000 || end.Output != model.OutputStored || end.OutputLength != 5 {
		t.Errorf("%+v", end)
	}
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	l.refused(command.AlreadyEnded, exited(j, "i1", 3))
	l.refused(command.AlreadyEnded, started(j, "i1"))
}

func TestEndsMapToStates(t *testing.T) {
	code := func(n int32) *int32 { return &n }
	for _, c := range []struct {
		name   string
		end    command.EndKind
		code   *int32
		reason string
		state  model.JobState
		want   *int32
		text   string
	}{
		{"zero", command.EndExited, code(0), "", model.JobSucceeded, code(0), ""},
		{"other", command.EndExited, code(7), "", model.JobFailed, code(7), ""},
		{"killed", command.EndKilled, code(143), "cancelled", model.JobKilled, code(143), "cancelled"},
		{"killed without words", command.EndKilled, code(137), "", model.JobKilled, code(137), "killed by ann"},
		{"cannot start", command.EndStartFailed, nil, "start: no such file", model.JobFailed, code(-1), "start: no such file"},
		{"supervisor died", command.EndSupervisorDied, code(0), "", model.JobLost, nil, "supervisor_died"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := box(t)
			j := l.queued(pinned("box:gpu1"))
			l.ok(&command.JobKill{Job: j.Number, By: "ann"})
			f := exited(j, "i1", 0)
			f.End, f.ExitCode, f.Reason = c.end, c.code, c.reason
			l.ok(f)
			end := l.wantJob(j.Number, c.state)
			if end.EndReason != c.text || (end.ExitCode == nil) != (c.want == nil) || (c.want != nil && *end.ExitCode != *c.want) {
				t.Errorf("ended with %v, %q", end.ExitCode, end.EndReason)
			}
		})
	}
}

func TestOnlyTheLiveLeaseAndInstanceAreHeard(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	next := l.queued(pinned("box:gpu1"))
	for _, c := range []struct {
		name string
		code command.Code
		spec func(*command.JobFinish)
	}{
		{"another lease", command.StaleLease, func(f *command.JobFinish) { f.Lease++ }},
		{"no lease", command.StaleLease, func(f *command.JobFinish) { f.Job, f.Lease = next.Number, 0 }},
		{"another job", command.NotFound, func(f *command.JobFinish) { f.Job = 999 }},
		{"an older instance", command.StaleInstance, func(f *command.JobFinish) { f.Instance = "i0" }},
		{"another host", command.UnknownAgent, func(f *command.JobFinish) { f.Host = "elsewhere" }},
		{"an unknown end", command.BadRequest, func(f *command.JobFinish) { f.End = 77 }},
		{"a long digest", command.BadRequest, func(f *command.JobFinish) { f.OutputDigest = make([]byte, maxOutputDigest+1) }},
	} {
		f := exited(j, "i1", 0)
		c.spec(f)
		t.Run(c.name, func(t *testing.T) { l.refused(c.code, f) })
	}
	l.wantDevice("box:gpu1", model.DeviceBusy, model.ReasonNone)
	l.wantJob(next.Number, model.JobQueued)
}

func TestSurvivorsQuarantineTheDevice(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	waiting := l.queued(pinned("box:gpu1"))
	f := exited(j, "i1", 0)
	f.Survivors = "pid 77 does not end"
	l.ok(f)
	l.wantJob(j.Number, model.JobSucceeded)
	if d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault); d.Detail != f.Survivors {
		t.Errorf("detail %q", d.Detail)
	}
	l.wantJob(waiting.Number, model.JobQueued)
	l.ok(&command.DeviceClear{Device: "box:gpu1"})
	l.wantJob(waiting.Number, model.JobAssigned)
}

func TestClearCannotContradictTheLeaseTable(t *testing.T) {
	l := box(t)
	l.refused(command.DeviceNotCleared, &command.DeviceClear{Device: "no:such"})
	l.refused(command.DeviceNotCleared, &command.DeviceClear{Device: "box:gpu0"})
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 1}}})
	j := l.queued(pinned("box:gpu1"))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", 10*minuteMS))
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	l.wantJob(j.Number, model.JobAssigned)
	l.refused(command.DeviceNotCleared, &command.DeviceClear{Device: "box:gpu1"})
	// Free of a lease, but its agent is silent: not ready.
	l.ok(&command.DeviceClear{Device: "box:gpu0"})
	l.wantDevice("box:gpu0", model.DeviceUnknown, model.ReasonNone)
}

func TestKillHasThreeOutcomes(t *testing.T) {
	l := box(t)
	running := l.queued(pinned("box:gpu1"))
	waiting := l.queued(pinned("box:gpu1"))
	l.refused(command.NotFound, &command.JobKill{Job: 999, By: "ann"})
	l.refused(command.NotJobOwner, &command.JobKill{Job: waiting.Number, By: "bob"})
	if r := l.ok(&command.JobKill{Job: waiting.Number, By: "bob", Admin: true}); r.Kill != command.KillCancelled {
		t.Errorf("outcome %d", r.Kill)
	}
	if j := l.wantJob(waiting.Number, model.JobKilled); j.EndReason != "killed by admin override (as bob)" {
		t.Errorf("reason %q", j.EndReason)
	}
	l.refused(command.NotCancellable, &command.JobKill{Job: waiting.Number, By: "ann"})
	for range 2 { // asked, and asked again
		if r := l.ok(&command.JobKill{Job: running.Number, By: "ann", Detached: true}); r.Kill != command.KillAsked || !r.Jobs[0].KillRequested {
			t.Errorf("outcome %d", r.Kill)
		}
	}
	l.wantJob(running.Number, model.JobAssigned)
}

func TestKillOutOfReachIsFinalOnlyUnderRetainAndNeverInTheHoldoff(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	kill := &command.JobKill{Job: j.Number, By: "ann", Detached: true}
	asked := func(step string) {
		t.Helper()
		if r := l.ok(kill); r.Kill != command.KillAsked {
			t.Fatalf("%s: outcome %d", step, r.Kill)
		}
	}
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", 60_000))
	asked("without the policy")
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs", Value: 1}}})
	l.lead()
	asked("in the holdoff")
	l.advanceMS(hourMS)
	if r := l.ok(kill); r.Kill != command.KillFinalized {
		t.Fatalf("outcome %d", r.Kill)
	}
	if end := l.wantJob(j.Number, model.JobKilled); !end.KillRequested || end.ExitCode != nil {
		t.Errorf("the flag is gone, or a code is known: %+v", end)
	}
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	// The host comes back: its silence is over, its device is not free for that.
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	if r := l.one(exited(j, "i1", 143)); r.Code != command.AlreadyEnded || *r.Jobs[0].LateExitCode != 143 {
		t.Errorf("late truth: %+v", r)
	}
}

func TestLateTruthIsAddedOnceAndFinal(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", 10*minuteMS))
	if lost := l.wantJob(j.Number, model.JobLost); lost.ExitCode != nil || lost.Output != model.OutputPartial {
		t.Errorf("%+v", lost)
	}
	f := exited(j, "i1", 0)
	if r := l.one(f); r.Code != command.AlreadyEnded {
		t.Fatalf("code %s", r.Code)
	}
	late := l.wantJob(j.Number, model.JobLost)
	if late.ExitCode != nil || *late.LateExitCode != 0 || late.Output != model.OutputStored || late.OutputLength != 5 {
		t.Errorf("%+v", late)
	}
	l.refused(command.AlreadyEnded, exited(j, "i1", 9))
	if d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost); d.Lease != 0 {
		t.Error("a late report freed or took something")
	}
}

// TestSurvivorsOfAnEndedJobTakeItsDeviceOutAlsoUnderTheNext: the next job goes
// on, and nobody comes after it.
func TestSurvivorsOfAnEndedJobTakeItsDeviceOutAlsoUnderTheNext(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", hourMS))
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	l.ok(&command.DeviceClear{Device: "box:gpu1"}) // an operator was sure
	late := exited(j, "i1", 0)
	late.Survivors = "pid 77"
	next := l.queued(pinned("box:gpu1"))
	if r := l.one(late); r.Code != command.AlreadyEnded {
		t.Fatal(r.Code)
	}
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault)
	if j := l.job(next.Number); j.State != model.JobAssigned {
		t.Errorf("the next job is %s", j.State)
	}
	l.ok(exited(next, "i1", 0))
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault)
}

// TestWhatAHostSaysIsCut: its texts stay with the row for months.
func TestWhatAHostSaysIsCut(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	f := exited(j, "i1", 1)
	f.Reason, f.Survivors = strings.Repeat("r", 100_000), strings.Repeat("s", 100_000)
	l.ok(f)
	if n := len(l.job(j.Number).EndReason); n > maxNote+3 {
		t.Errorf("%d bytes of reason are kept", n)
	}
	if n := len(l.device("box:gpu1").Detail); n > maxNote+3 {
		t.Errorf("%d bytes of detail are kept", n)
	}
}

// TestWhoAsksForAnEndIsNamedShort: the name stands in the row, twice when the
// job was placed, and nothing else bounds what an administrator calls himself.
func TestWhoAsksForAnEndIsNamedShort(t *testing.T) {
	l := box(t)
	placed := l.queued(pinned("box:gpu1"))
	waiting := l.queued(pinned("box:gpu1"))
	for _, by := range []string{strings.Repeat("x", 257), strings.Repeat("é", 129), "root\nkilled by ann", "root\x00", "\x1b[2Jroot"} {
		for _, j := range []*model.Job{placed, waiting} {
			l.refused(command.BadRequest, &command.JobKill{Job: j.Number, By: by, Admin: true})
			l.refused(command.BadRequest, &command.LeaseRelease{Job: j.Number, By: by, Admin: true, Detached: true, Force: true})
			l.refused(command.BadRequest, &command.LeaseExtend{Job: j.Number, By: by, Admin: true, MaxRuntimeS: 3600})
			l.refused(command.NotJobOwner, &command.JobKill{Job: j.Number, By: by})
		}
	}
	l.ok(&command.JobKill{Job: waiting.Number, Admin: true}) // an administrator need not say who
	l.ok(&command.JobKill{Job: placed.Number, By: strings.Repeat("x", 256), Admin: true})
}
