package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func fault(device, instance, detail string) *command.DeviceFault {
	return &command.DeviceFault{Device: device, Instance: instance, Detail: detail}
}

func TestRefusedFaultsChangeNothing(t *testing.T) {
	l := box(t)
	l.ok(register("far", "f1", spec("g", 0)))
	l.refused(command.DeviceNotFound, fault("box:gpu7", "i1", "ECC"))
	l.refused(command.DeviceNotFound, fault("", "", "ECC"))
	l.refused(command.BadRequest, fault("box:gpu0", "i1", ""))
	l.refused(command.BadRequest, fault("box:gpu0", "", ""))
	l.refused(command.StaleInstance, fault("box:gpu0", "i0", "ECC"))
	l.refused(command.StaleInstance, fault("box:gpu0", "f1", "ECC")) // another host's agent
}

func TestAFaultTakesADeviceOutUntilAnOperatorClearsIt(t *testing.T) {
	l := box(t)
	if r := l.ok(fault("box:gpu0", "i1", "ECC")); r.Device.State != model.DeviceUnhealthy {
		t.Errorf("answered with %+v", r.Device)
	}
	if events := told(l, command.EventDeviceState); len(events) != 1 || events[0].Device != "box:gpu0" || events[0].Reason != "fault" {
		t.Errorf("events %+v", events)
	}
	j := l.queued(pinned("box:gpu0"))
	l.wantJob(j.Number, model.JobQueued)
	l.ok(&command.Recover{Host: "box", Instance: "i1", Proof: clean})
	if d := l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonFault); d.Detail != "ECC" {
		t.Errorf("detail %q", d.Detail)
	}
	l.ok(&command.DeviceClear{Device: "box:gpu0"})
	l.wantJob(j.Number, model.JobAssigned)
	if d := l.wantDevice("box:gpu0", model.DeviceBusy, model.ReasonNone); d.Detail != "" {
		t.Errorf("detail %q", d.Detail)
	}
}

func TestAJobOnAFaultyDeviceGoesOnAndTheDeviceStaysOut(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	next := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.ok(fault("box:gpu1", "i1", "ECC"))
	l.wantJob(j.Number, model.JobRunning)
	if d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault); d.Lease != j.Lease {
		t.Errorf("it is under lease %d", d.Lease)
	}
	l.refused(command.DeviceNotCleared, &command.DeviceClear{Device: "box:gpu1"})
	l.ok(exited(j, "i1", 0))
	l.wantJob(j.Number, model.JobSucceeded)
	if d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault); d.Lease != 0 || d.Detail != "ECC" {
		t.Errorf("%+v", d)
	}
	l.wantJob(next.Number, model.JobQueued)
	l.ok(&command.DeviceClear{Device: "box:gpu1"})
	l.wantJob(next.Number, model.JobAssigned)
}

func TestAJobThatWasPlacedBeforeAFaultStillStarts(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(fault("box:gpu1", "", "an operator heard it"))
	l.ok(started(j, "i1"))
	l.wantJob(j.Number, model.JobRunning)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault)
}

func TestAnOperatorsFaultNeedsNoAgent(t *testing.T) {
	l := box(t)
	l.advanceMS(minuteMS)
	l.ok(silent("box", "i1", 3000))
	l.ok(fault("box:gpu0", "", "smoke"))
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonFault)
	l.wantDevice("box:gpu1", model.DeviceUnknown, model.ReasonNone) // an operator is no contact
	l.ok(fault("box:gpu0", "i1", "smoke"))
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestALongFaultIsCut(t *testing.T) {
	l := box(t)
	l.ok(fault("box:gpu0", "i1", "x"+strings.Repeat("é", 5000)))
	if d := l.device("box:gpu0").Detail; len(d) > maxNote+len("…") || !strings.HasSuffix(d, "é…") {
		t.Errorf("%d bytes, ending %q", len(d), d[len(d)-8:])
	}
}

// TestEveryFaultIsTold: who clears a device must see all that was said of it.
func TestEveryFaultIsTold(t *testing.T) {
	l := box(t)
	for _, detail := range []string{"pid 4711 will not end", "XID 79", "XID 79", strings.Repeat("x", 3*maxNote), "lost in the flood"} {
		l.ok(&command.DeviceFault{Device: "box:gpu0", Instance: "i1", Detail: detail})
	}
	d := l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonFault)
	if !strings.HasPrefix(d.Detail, "pid 4711 will not end; XID 79; xxx") || len(d.Detail) > maxNote+len("…") {
		t.Errorf("%d bytes: %.60s", len(d.Detail), d.Detail)
	}
}
