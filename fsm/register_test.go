package fsm

import (
	"slices"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// again is a registration of box by a fresh agent process that has begun
// everything up to the given lease.
func again(instance string, begun uint64, jobs ...command.JobRef) *command.AgentRegister {
	b := register("box", instance, spec("gpu0", 3600, "rack", "r3", "vram", "80G"), spec("gpu1", 0))
	b.Devices[0].Begun, b.Devices[1].Begun = begun, begun
	b.Jobs = jobs
	return b
}

var clean = command.Proof{SurvivorsChecked: true}

func TestAFreshAgentKeepsWhatItStillSupervises(t *testing.T) {
	l := box(t)
	kept, gone := l.queued(pinned("box:gpu0")), l.queued(pinned("box:gpu1"))
	l.ok(started(kept, "i1"))
	l.ok(started(gone, "i1"))
	l.ok(again("i2", gone.Lease, ref(kept)))
	l.wantJob(kept.Number, model.JobRunning)
	l.wantDevice("box:gpu0", model.DeviceBusy, model.ReasonNone)
	l.wantJob(gone.Number, model.JobLost)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	l.ok(exited(kept, "i2", 0))
	l.refused(command.StaleInstance, exited(kept, "i1", 0))
}

func TestALeaseTheHostHasNotBegunIsDeliveredNotEnded(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(again("i2", j.Lease-1))
	l.wantJob(j.Number, model.JobAssigned)
	l.ok(again("i3", j.Lease)) // now it says that it began it, and does not have it
	l.wantJob(j.Number, model.JobLost)
}

func TestAHostThatLostItsRecordsDoesNotRunAJobTwice(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.ok(again("i2", 0)) // data directory wiped: it has begun nothing
	l.wantJob(j.Number, model.JobLost)
}

func TestProofDecidesTheFateOfDevices(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  func(*command.AgentRegister)
		state model.DeviceState
	}{
		{"no proof", func(*command.AgentRegister) {}, model.DeviceUnhealthy},
		{"survivors found", func(b *command.AgentRegister) {
			b.Proof = command.Proof{SurvivorsChecked: true, SurvivorsFound: true}
		}, model.DeviceUnhealthy},
		{"found but not checked", func(b *command.AgentRegister) { b.Proof = command.Proof{SurvivorsFound: true} }, model.DeviceUnhealthy},
		{"none found", func(b *command.AgentRegister) { b.Proof = clean }, model.DeviceReady},
		{"isolated", func(b *command.AgentRegister) { b.Proof = command.Proof{Isolated: true} }, model.DeviceReady},
		{"rebooted", func(b *command.AgentRegister) { b.BootID = "boot-2" }, model.DeviceReady},
		{"an operator must look", func(b *command.AgentRegister) { b.BootID, b.RequireManualClear = "boot-2", true }, model.DeviceUnhealthy},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := box(t)
			j := l.queued(pinned("box:gpu1"))
			l.ok(started(j, "i1"))
			b := again("i2", j.Lease)
			c.spec(b)
			l.ok(b)
			l.wantJob(j.Number, model.JobLost)
			if d := l.device("box:gpu1"); d.State != c.state {
				t.Errorf("the device is %s (%s)", d.State, d.Reason)
			}
		})
	}
}

func TestASearchThatLeftAWrittenOffJobOutIsNoProof(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", hourMS))
	l.wantJob(j.Number, model.JobLost)
	b := again("i2", j.Lease, ref(j)) // it still has the job that was written off
	b.Proof = clean
	l.ok(b)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	l.wantJob(j.Number, model.JobLost)
	b = again("i3", j.Lease)
	b.Proof = clean
	l.ok(b)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestAFaultWaitsForAnOperatorWhateverIsProven(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	f := exited(j, "i1", 0)
	f.Survivors = "pid 77"
	l.ok(f)
	b := again("i2", j.Lease)
	b.BootID, b.Proof = "boot-2", command.Proof{Isolated: true, SurvivorsChecked: true}
	l.ok(b)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault)
}

func TestTheFirstReasonStaysUnlessAGraverComes(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.ok(again("i2", j.Lease))
	first := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	l.advanceMS(hourMS)
	l.ok(silent("box", "i2", hourMS))
	if d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration); d.Detail != first.Detail {
		t.Errorf("detail %q became %q", first.Detail, d.Detail)
	}
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i2"}}})
	late := exited(j, "i2", 0)
	late.Survivors = "pid 77"
	if r := l.one(late); r.Code != command.AlreadyEnded {
		t.Fatal(r.Code)
	}
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault)
}

func TestThreeAutomaticReturnsThenAPerson(t *testing.T) {
	l := box(t)
	crash := func(instance string) {
		t.Helper()
		j := l.queued(pinned("box:gpu1"))
		l.ok(started(j, l.m.View().Agent("box").Instance))
		b := again(instance, j.Lease)
		b.Proof = clean
		l.ok(b)
	}
	for _, instance := range []string{"i2", "i3", "i4"} {
		l.advanceMS(minuteMS)
		crash(instance)
		l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	}
	h, err := l.m.View().RecoveryHistory("box:gpu1")
	if err != nil || len(h.Recoveries) != 3 || h.Remaining != 0 || h.Recoveries[0].UptimeMS <= h.Recoveries[2].UptimeMS {
		t.Errorf("history %+v, %v", h, err)
	}
	crash("i5")
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	// The window moves on: by uptime, an hour after the first.
	l.advanceMS(hourMS)
	b := again("i6", 99)
	b.Proof = clean
	l.ok(b)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestRefusedRegistrationsChangeNothing(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_hosts", Value: 1}, {Name: "max_labels", Value: 2}, {Name: "max_devices_in_host", Value: 3}}})
	with := func(change func(*command.AgentRegister)) *command.AgentRegister {
		b := again("i2", 0)
		change(b)
		return b
	}
	for _, c := range []struct {
		name string
		code command.Code
		body *command.AgentRegister
	}{
		{"another machine", command.WrongMachine, with(func(b *command.AgentRegister) { b.MachineID = "m2" })},
		{"no instance", command.BadRequest, with(func(b *command.AgentRegister) { b.Instance = "" })},
		{"one name twice", command.BadRequest, with(func(b *command.AgentRegister) { b.Devices[1].Name = "gpu0" })},
		{"a colon", command.BadRequest, with(func(b *command.AgentRegister) { b.Devices[1].Name = "a:b" })},
		{"one key twice", command.BadRequest, with(func(b *command.AgentRegister) { b.Devices[1] = spec("gpu1", 0, "a", "1", "a", "2") })},
		{"a negative ceiling", command.BadRequest, with(func(b *command.AgentRegister) { b.Devices[1].MaxRuntimeS = -1 })},
		{"too many labels", command.LimitExceeded, with(func(b *command.AgentRegister) { b.Devices[1] = spec("gpu1", 0, "a", "1", "b", "1", "c", "1") })},
		{"too many devices", command.LimitExceeded, with(func(b *command.AgentRegister) {
			b.Devices = append(b.Devices, spec("x", 0), spec("y", 0))
		})},
		{"too many with those gone", command.LimitExceeded, register("box", "i2", spec("x", 0), spec("y", 0))},
		{"too many hosts", command.LimitExceeded, register("other", "i1", spec("g", 0))},
	} {
		t.Run(c.name, func(t *testing.T) { l.refused(c.code, c.body) })
	}
}

func TestAnUndeclaredDeviceIsNeverGivenAway(t *testing.T) {
	l := box(t)
	j, waiting := l.queued(pinned("box:gpu1")), l.queued(pinned("box:gpu1"))
	only := register("box", "i2", spec("gpu0", 3600, "rack", "r3"))
	only.Jobs = []command.JobRef{ref(j)}
	l.ok(only)
	l.wantDevice("box:gpu1", model.DeviceBusy, model.ReasonNone) // its job goes on
	l.refused(command.UnknownDevice, submit(pinned("box:gpu1")))
	l.refused(command.NoMatchingDevice, submit(selecting("!rack")))
	l.ok(exited(j, "i2", 0))
	if d := l.wantDevice("box:gpu1", model.DeviceUnknown, model.ReasonNone); d.Detail == "" {
		t.Error("nobody is told why")
	}
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i2"}}})
	l.wantJob(waiting.Number, model.JobQueued)
	l.ok(again("i3", j.Lease))
	l.wantJob(waiting.Number, model.JobAssigned)
}

func TestLabelsAreReplacedAndDetectedWins(t *testing.T) {
	l := box(t)
	b := again("i1", 0)
	b.Devices[0].Detected = []command.KV{{Key: "driver", Value: "535.1.2"}, {Key: "rack", Value: "r9"}}
	l.ok(b)
	if v, _ := l.device("box:gpu0").Label("rack"); v != "r9" {
		t.Errorf("rack is %q", v)
	}
	keep := again("i1", 0)
	keep.Devices[0].KeepDetected = true
	l.ok(keep)
	if n := len(l.device("box:gpu0").Detected); n != 2 {
		t.Errorf("%d detected labels after a failed probe", n)
	}
	l.ok(again("i1", 0))
	if n := len(l.device("box:gpu0").Detected); n != 0 {
		t.Errorf("%d detected labels after a probe that found nothing", n)
	}
}

func TestAnythingThatChangesWhatMatchesSchedules(t *testing.T) {
	l := box(t)
	b := again("i1", 0)
	b.Devices[0].Detected = []command.KV{{Key: "vram_free", Value: "1G"}}
	l.ok(b)
	j := l.queued(selecting("rack,vram_free>=40G"))
	if j.State != model.JobQueued {
		t.Fatal("placed on a device without room")
	}
	b.Devices[0].Detected[0].Value = "80G"
	l.ok(b)
	l.wantJob(j.Number, model.JobAssigned)
	if !slices.ContainsFunc(l.events, func(e command.Event) bool { return e.Kind == command.EventLabels }) {
		t.Error("no event says that labels changed")
	}
}

// TestAHostKeepsWhatItHasUnderALoweredBound: a setting must not lock a host out.
func TestAHostKeepsWhatItHasUnderALoweredBound(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_devices_in_host", Value: 1}}})
	l.ok(again("i2", 0))
	more := again("i3", 0)
	more.Devices = append(more.Devices, spec("x", 0))
	l.refused(command.LimitExceeded, more)
}
