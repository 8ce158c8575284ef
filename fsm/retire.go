package fsm

import (
	"rcd/fsm/command"
	"rcd/model"
)

// deviceFault takes a device out of the pool because it is unfit. A job on it
// goes on; the device stays out after it.
func (t *txn) deviceFault(b *command.DeviceFault) answer {
	d := t.devices.get(b.Device)
	if d == nil {
		return refuse(command.DeviceNotFound, "There is no device %q; list the devices to see their names.", short(b.Device))
	}
	if b.Instance != "" {
		if a := t.reporter(d.Host, b.Instance); a.Code != command.OK {
			return a
		}
	}
	if b.Detail == "" {
		return refuse(command.BadRequest, "A fault says what is wrong; give a reason.")
	}
	if b.Instance != "" {
		t.hear(d.Host)
	}
	row := *t.mustDevice(d.ID)
	quarantine(model.ReasonFault, clip(b.Detail))(t, &row)
	t.putDevice(row)
	return answer{device: d.ID}
}

// deviceRetire takes a device out of the fleet, or a host that is gone with all
// its devices. The history of their jobs stays; what waits for them ends. A
// host that still declares a device brings it back when it registers. Like a
// clear it is an operator's word, so a quarantine goes with the row.
func (t *txn) deviceRetire(b *command.DeviceRetire) answer {
	switch {
	case (b.Device == "") == (b.Host == ""):
		return refuse(command.BadRequest, "Name a device or a host to retire.")
	case b.Host != "":
		return t.retireHost(b.Host)
	}
	d := t.devices.get(b.Device)
	if d == nil {
		return refuse(command.DeviceNotFound, "There is no device %q; list the devices to see their names.", short(b.Device))
	}
	if d.Lease != 0 {
		return refuse(command.DeviceBusy, "%s", t.heldBy(d))
	}
	t.retire(d)
	// The last device of a host that is gone takes the host with it, so that
	// another machine may have its name.
	if a := t.agents.get(d.Host); a != nil && a.Silent && len(t.View.devicesOn(d.Host)) == 0 {
		t.dropHost(d.Host)
	}
	return answer{}
}

func (t *txn) retireHost(host string) answer {
	a := t.agents.get(host)
	if a == nil {
		return refuse(command.NotFound, "There is no host %q; list the devices to see their hosts.", short(host))
	}
	if !a.Silent {
		return refuse(command.DeviceBusy, "The agent of %q is in contact; stop it first, for it would bring its devices back.", host)
	}
	devices := t.View.devicesOn(host)
	for _, d := range devices {
		if d.Lease != 0 {
			return refuse(command.DeviceBusy, "%s", t.heldBy(d))
		}
	}
	for _, d := range devices {
		t.retire(d)
	}
	t.dropHost(host)
	return answer{}
}

// heldBy says who holds a device, and whose end frees it. That of a hold is named
// for what is inside it.
func (t *txn) heldBy(d *model.Device) string {
	l := t.mustLease(d.Lease)
	first := t.mustJob(l.Jobs[0])
	if first.Hold == 0 {
		return d.ID + " is held under lease " + model.LeaseID(l.Number) + "; end its job " + first.ID() + " first."
	}
	var left []*model.Job
	for _, number := range l.Jobs {
		left = append(left, t.mustJob(number))
	}
	return d.ID + " is held under lease " + model.LeaseID(l.Number) + " of a hold that has ended; what ran inside, " + jobList(left) + ", must end first."
}

// retire drops a device that nobody holds.
func (t *txn) retire(d *model.Device) {
	t.devices.remove(&t.digest, d.ID)
	t.sheets.remove(&t.digest, d.ID)
	t.sched.RemoveDevice(d.ID)
	t.emit(command.Event{Kind: command.EventDeviceRetired, Device: d.ID, Host: d.Host})
	for _, j := range t.pinnedTo(d.ID) {
		t.endJob(j, ending{state: model.JobKilled, reason: "its device " + d.ID + " was retired", origin: model.OriginDevice})
	}
}

func (t *txn) dropHost(host string) {
	t.agents.remove(&t.digest, host)
	t.sheets.remove(&t.digest, model.DeviceID(host, ""))
	t.reviewWithholding()
}

// pinnedTo returns the jobs that wait for a device, in their order.
func (t *txn) pinnedTo(device string) []*model.Job {
	var rows []*model.Job
	t.pinned.tree.Ascend(pinnedKey{device: device, order: firstOrder}, func(k pinnedKey) bool {
		if k.device != device {
			return false
		}
		rows = append(rows, t.mustJob(k.order.Number))
		return true
	})
	return rows
}
