package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func retired(device string) *command.DeviceRetire { return &command.DeviceRetire{Device: device} }

// gone makes a host silent for long enough to be called gone.
func (l *log) gone(host, instance string) {
	l.tb.Helper()
	l.advanceMS(minuteMS)
	l.ok(silent(host, instance, minuteMS))
}

func TestRefusedRetirementsChangeNothing(t *testing.T) {
	l := box(t)
	l.refused(command.DeviceBusy, retiredHost("box")) // its agent is in contact
	j := l.queued(pinned("box:gpu1"))
	l.refused(command.BadRequest, &command.DeviceRetire{})
	l.refused(command.BadRequest, &command.DeviceRetire{Device: "box:gpu0", Host: "box"})
	l.refused(command.DeviceNotFound, retired("box:gpu7"))
	l.refused(command.NotFound, retiredHost("far"))
	l.refused(command.DeviceBusy, retired("box:gpu1"))
	l.gone("box", "i1")
	l.refused(command.DeviceBusy, retired("box:gpu1"))
	l.refused(command.DeviceBusy, retiredHost("box")) // one of its devices is held
	l.wantJob(j.Number, model.JobAssigned)
}

func TestARetiredDeviceEndsWhatWaitsForItAlone(t *testing.T) {
	l := box(t)
	l.ok(labelled2("i1"))
	l.ok(submit(selecting("a=1,!rack")))
	done := l.job(1)
	l.ok(started(done, "i1"))
	l.ok(exited(done, "i1", 3))
	l.ok(fault("box:gpu1", "i1", "ECC"))
	l.ok(boxSheets(sheet("gpu1", "slow fan")))
	first, second := l.queued(pinned("box:gpu1")), l.queued(pinned("box:gpu1"))
	busy := l.queued(pinned("box:gpu0"))
	other, selector := l.queued(pinned("box:gpu0")), l.queued(selecting("rack"))
	l.ok(retired("box:gpu1"))
	for _, j := range []*model.Job{first, second} {
		end := l.wantJob(j.Number, model.JobKilled)
		if !strings.Contains(end.EndReason, "box:gpu1") || end.Origin != model.OriginDevice || end.ExitCode != nil || end.FinishedAtMS == 0 {
			t.Errorf("%+v", end)
		}
	}
	if gone := told(l, command.EventDeviceRetired); len(gone) != 1 || gone[0].Device != "box:gpu1" || gone[0].Host != "box" {
		t.Errorf("events %+v", l.events)
	}
	if ends := told(l, command.EventJobEnded); len(ends) != 2 || ends[0].Job != first.Number || ends[0].Reason == "" {
		t.Errorf("events %+v", l.events)
	}
	l.wantJob(busy.Number, model.JobAssigned)
	l.wantJob(other.Number, model.JobQueued)
	l.wantJob(selector.Number, model.JobQueued)
	v := l.m.View()
	if v.Device("box:gpu1") != nil || v.sheets.get("box:gpu1") != nil || v.Agent("box") == nil {
		t.Error("a row is left, or the host is gone with its device")
	}
	// What ran where outlives the device.
	if rows := v.Jobs(JobFilter{Limit: 10, Device: "box:gpu1"}); len(rows) != 3 || rows[2].Number != done.Number || *rows[2].ExitCode != 3 {
		t.Errorf("history %+v", rows)
	}
	l.refused(command.UnknownDevice, submit(pinned("box:gpu1")))
	l.refused(command.NoMatchingDevice, submit(selecting("a=1,!rack")))
	l.refused(command.DeviceNotFound, retired("box:gpu1"))
	if _, err := v.RecoveryHistory("box:gpu1"); err == nil {
		t.Error("it has a recovery history")
	}
}

func TestANoWaitJobAndARetirementInOneEntry(t *testing.T) {
	l := box(t)
	s := pinned("box:gpu1")
	s.NoWait = true
	results := l.many(submit(s), retired("box:gpu1"))
	if results[0].Code != command.OK || results[1].Code != command.OK {
		t.Fatalf("%+v", results)
	}
	if end := l.wantJob(results[0].Jobs[0].Number, model.JobKilled); !strings.Contains(end.EndReason, "retired") {
		t.Errorf("reason %q", end.EndReason)
	}
}

func TestRegistrationBringsARetiredDeviceBack(t *testing.T) {
	l := box(t)
	l.ok(fault("box:gpu1", "i1", "ECC"))
	l.ok(retired("box:gpu1"))
	l.ok(again("i2", 0)) // the operator's word was that the old card is out
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	j := l.queued(pinned("box:gpu1"))
	l.wantJob(j.Number, model.JobAssigned)
}

func TestARetiredDeviceComesBackInQuarantineWhileItsOldJobIsThere(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", hourMS))
	l.wantJob(j.Number, model.JobLost)
	l.ok(retired("box:gpu1"))
	b := again("i2", j.Lease, ref(j)) // cut off, not gone: the job still runs there
	b.Proof = clean
	l.ok(b)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	l.ok(&command.Recover{Host: "box", Instance: "i2", Proof: clean})
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestTheLastDeviceOfAGoneHostTakesTheHostWithIt(t *testing.T) {
	l := box(t)
	l.ok(boxSheets(sheet("", "ask ann")))
	l.ok(retired("box:gpu0"))
	l.ok(retired("box:gpu1"))
	if l.m.View().Agent("box") == nil {
		t.Fatal("a host in contact is gone")
	}
	l.ok(again("i2", 0))
	l.gone("box", "i2")
	l.ok(retired("box:gpu0"))
	if l.m.View().Agent("box") == nil {
		t.Fatal("a host with a device is gone")
	}
	l.ok(retired("box:gpu1"))
	if v := l.m.View(); v.Agent("box") != nil || v.sheets.len() != 0 {
		t.Error("a row is left")
	}
	l.refused(command.UnknownAgent, fleetWords()[0])
}

func TestAnotherMachineMayTakeTheNameOfARetiredHost(t *testing.T) {
	l := box(t)
	l.ok(boxSheets(sheet("", "ask ann"), sheet("gpu0", "slow fan")))
	l.gone("box", "i1")
	waiting := []*model.Job{l.queued(pinned("box:gpu0")), l.queued(pinned("box:gpu1"))}
	other := register("box", "n1", spec("gpu0", 60))
	other.MachineID = "m-other"
	l.refused(command.WrongMachine, other)
	l.ok(retiredHost("box"))
	for _, j := range waiting {
		l.wantJob(j.Number, model.JobKilled)
	}
	if n := len(told(l, command.EventDeviceRetired)); n != 2 {
		t.Errorf("%d devices are told to be gone", n)
	}
	if v := l.m.View(); v.Agent("box") != nil || v.devices.len() != 0 || v.sheets.len() != 0 {
		t.Error("a row is left")
	}
	l.refused(command.NotFound, retiredHost("box"))
	l.ok(other)
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	if l.m.View().Agent("box").MachineID != "m-other" {
		t.Error("the old machine has the name")
	}
	l.refused(command.WrongMachine, again("i2", 0))
}

func TestRetiringAHostLeavesOneWhoseNameBeginsAlike(t *testing.T) {
	l := box(t)
	l.ok(register("box:far", "f1", spec("g", 0)))
	l.ok(sheetsOf("box:far", "f1", sheet("", "ask bob")))
	l.gone("box", "i1")
	l.ok(retiredHost("box"))
	l.wantDevice("box:far:g", model.DeviceReady, model.ReasonNone)
	l.wantSheet("box:far:g", "ask bob")
}
