package fsm

import (
	"slices"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
)

// agentRegister takes the word of a fresh agent process: what its host is and
// has, which jobs it still supervises, and what it can prove about the rest.
// The same instance again only refreshes.
func (t *txn) agentRegister(b *command.AgentRegister) answer {
	if a := t.checkRegistration(b); a.Code != command.OK {
		return a
	}
	old := t.agents.get(b.Host)
	fresh := old == nil || old.Instance != b.Instance
	row := model.Agent{Host: b.Host, RegisteredAtMS: t.nowMS(), RegisteredUptime: t.uptimeMS()}
	if !fresh {
		row = *old
	}
	rebooted := old != nil && old.BootID != "" && b.BootID != "" && old.BootID != b.BootID
	row.MachineID, row.BootID, row.Instance = b.MachineID, b.BootID, b.Instance
	row.Silent, row.WrittenOff, row.LastHeardMS = false, false, t.nowMS()
	t.putAgent(row)

	if fresh {
		t.emit(command.Event{Kind: command.EventAgentRegistered, Host: b.Host, Instance: b.Instance})
		t.reconcileLeases(b, rebooted)
	}
	t.declareDevices(b)
	if !b.RequireManualClear {
		t.recoverDevices(b, rebooted, fresh)
	}
	return answer{}
}

func (t *txn) checkRegistration(b *command.AgentRegister) answer {
	if b.Host == "" || b.Instance == "" || b.MachineID == "" {
		return refuse(command.BadRequest, "A registration names its host, its machine and its instance; check the agent's configuration.")
	}
	known := t.agents.get(b.Host)
	if known == nil && int64(t.agents.len()) >= t.settings.MaxHosts {
		return refuse(command.LimitExceeded, "There are %d hosts already and no more are allowed; raise max_hosts.", t.settings.MaxHosts)
	}
	if known != nil && known.MachineID != b.MachineID {
		return refuse(command.WrongMachine, "The host name %q belongs to another machine; give this one a name of its own, or have an operator retire the old one.", b.Host)
	}
	names := make([]string, 0, len(b.Devices))
	for i := range b.Devices {
		if a := t.checkDevice(&b.Devices[i]); a.Code != command.OK {
			return a
		}
		names = append(names, b.Devices[i].Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(b.Devices) {
		return refuse(command.BadRequest, "Two devices of %q have one name; give each its own.", b.Host)
	}
	rows := int64(len(names))
	for _, d := range t.View.devicesOn(b.Host) {
		if _, declared := slices.BinarySearch(names, d.Name); !declared {
			rows++ // it keeps its row
		}
	}
	if rows > t.settings.MaxDevicesInHost {
		return refuse(command.LimitExceeded, "A host has at most %d devices, those it no longer declares included; declare fewer, or retire old ones.", t.settings.MaxDevicesInHost)
	}
	return answer{}
}

func (t *txn) checkDevice(d *command.DeviceSpec) answer {
	if d.Name == "" || strings.Contains(d.Name, ":") {
		return refuse(command.BadRequest, "The device name %q is empty or has a colon; choose another.", d.Name)
	}
	if d.MaxRuntimeS < 0 {
		return refuse(command.BadRequest, "The ceiling of %q is negative; use 0 for none.", d.Name)
	}
	if d.MaxRuntimeS > maxRuntimeS {
		return refuse(command.BadRequest, "The ceiling of %q is above ten years; use less, or 0 for none.", d.Name)
	}
	for _, labels := range [][]command.KV{d.Declared, d.Detected} {
		if int64(len(labels)) > t.settings.MaxLabels {
			return refuse(command.LimitExceeded, "A device has at most %d labels of one source; %q has %d.", t.settings.MaxLabels, d.Name, len(labels))
		}
		keys := make([]string, 0, len(labels))
		for _, l := range labels {
			keys = append(keys, l.Key)
		}
		slices.Sort(keys)
		if len(slices.Compact(keys)) != len(labels) || slices.Contains(keys, "") {
			return refuse(command.BadRequest, "Two labels of %q have one key, or a key is empty.", d.Name)
		}
	}
	return answer{}
}

// reconcileLeases ends the jobs that the host began and no longer supervises.
// Leases above what it has begun are left: their order is still on its way.
func (t *txn) reconcileLeases(b *command.AgentRegister, rebooted bool) {
	reason, origin := "its agent restarted and no longer supervises it", model.OriginAgent
	if rebooted {
		reason, origin = "its host rebooted", model.OriginHost
	}
	for _, l := range t.View.LeasesOn(b.Host) {
		if !l.Begun && !begunBy(b, l) {
			continue
		}
		for _, number := range l.Jobs {
			if slices.Contains(b.Jobs, command.JobRef{Job: number, Lease: l.Number}) {
				continue
			}
			t.endJob(t.mustJob(number), ending{state: model.JobLost, reason: reason, origin: origin})
			t.leaveLease(t.mustLease(l.Number), number, quarantine(model.ReasonRegistration, "job "+model.JobID(number)+": "+reason))
		}
	}
}

// begunBy reports whether the host says that it has begun the lease.
func begunBy(b *command.AgentRegister, l *model.Lease) bool {
	for i := range b.Devices {
		d := &b.Devices[i]
		if d.Begun >= l.Number && slices.Contains(l.Devices, model.DeviceID(b.Host, d.Name)) {
			return true
		}
	}
	return false
}

// declareDevices makes the host's devices what the registration says. One that
// it no longer declares keeps its row and its job, and is never given away.
func (t *txn) declareDevices(b *command.AgentRegister) {
	declared := make([]string, 0, len(b.Devices))
	for i := range b.Devices {
		spec := &b.Devices[i]
		id := model.DeviceID(b.Host, spec.Name)
		declared = append(declared, id)
		row := model.Device{ID: id, Host: b.Host, Name: spec.Name}
		if old := t.devices.get(id); old != nil {
			row = *old
		}
		row.Absent = false
		row.MaxRuntimeS = spec.MaxRuntimeS
		row.Declared = t.labels(spec.Declared)
		if !spec.KeepDetected {
			row.Detected = t.labels(spec.Detected)
		}
		rest(t, &row)
		t.putDevice(row)
		t.reinherit(id)
	}
	slices.Sort(declared)
	for _, d := range t.View.devicesOn(b.Host) {
		if _, ok := slices.BinarySearch(declared, d.ID); ok {
			continue
		}
		row := *d
		row.Absent = true
		rest(t, &row)
		t.putDevice(row)
	}
}

// labels returns the set that replaces a stored one: a key that is no longer
// told is gone, for a stale fact is worse than a missing one.
func (t *txn) labels(set []command.KV) []model.Label {
	if len(set) == 0 {
		return nil
	}
	labels := make([]model.Label, len(set))
	for i, kv := range set {
		labels[i] = model.Label{Key: kv.Key, Value: kv.Value, UpdatedAtMS: t.nowMS()}
	}
	slices.SortFunc(labels, func(a, b model.Label) int { return strings.Compare(a.Key, b.Key) })
	return labels
}

// reinherit shows the jobs that wait for a device, and asked for no runtime,
// its present ceiling.
func (t *txn) reinherit(device string) {
	var stale []*model.Job
	t.pinned.tree.Ascend(pinnedKey{device: device, order: firstOrder}, func(k pinnedKey) bool {
		if k.device != device {
			return false
		}
		if j := t.mustJob(k.order.Number); !j.CeilingAsked {
			stale = append(stale, j)
		}
		return true
	})
	for _, j := range stale {
		row := *j
		if t.inheritCeiling(&row); row.MaxRuntimeS != j.MaxRuntimeS {
			t.putJob(row)
		}
	}
}

// recoverDevices returns quarantined devices to the pool when the registration
// proves that nothing of an earlier job can hold them. That a process began
// alone in its namespace speaks only for what was before it; a later word of
// the same process must have looked.
func (t *txn) recoverDevices(b *command.AgentRegister, rebooted, fresh bool) {
	checked := b.Proof.SurvivorsChecked && !b.Proof.SurvivorsFound
	for _, d := range t.View.devicesOn(b.Host) {
		if d.State != model.DeviceUnhealthy || d.Lease != 0 || gravity(d.Reason) != 1 {
			continue
		}
		if rebooted || (fresh && b.Proof.Isolated) || (checked && !t.stillRuns(b, d.ID)) {
			t.recover(d)
		}
	}
}

// stillRuns reports whether the host names a job of this device whose lease is
// no longer live: its processes were left out of the search for survivors.
func (t *txn) stillRuns(b *command.AgentRegister, device string) bool {
	return slices.ContainsFunc(b.Jobs, func(ref command.JobRef) bool {
		if l := t.leases.get(ref.Lease); l != nil && slices.Contains(l.Jobs, ref.Job) {
			return false
		}
		j := t.jobs.get(ref.Job)
		return j == nil || slices.Contains(j.Devices, device)
	})
}

// recover returns one device to the pool, unless it has had its automatic
// returns: then it waits for a person.
func (t *txn) recover(d *model.Device) {
	since := t.uptimeMS() - t.settings.FlapWindowMS
	row := *d
	row.Recoveries = nil
	for _, r := range d.Recoveries {
		if r.UptimeMS > since {
			row.Recoveries = append(row.Recoveries, r)
		}
	}
	if int64(len(row.Recoveries)) >= t.settings.FlapLimit {
		return
	}
	row.Recoveries = append(row.Recoveries, model.Recovery{UptimeMS: t.uptimeMS(), AtMS: t.nowMS(), Reason: d.Reason})
	t.release(&row)
	t.emit(command.Event{Kind: command.EventDeviceRecovered, Device: d.ID, Host: d.Host, Reason: d.Reason.String()})
}

// release ends the quarantine of a device.
func (t *txn) release(row *model.Device) {
	row.State, row.Reason, row.Detail = model.DeviceUnknown, model.ReasonNone, ""
	rest(t, row)
	t.putDevice(*row)
}
