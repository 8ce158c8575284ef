package fsm

import (
	"slices"
	"strings"
	"unicode"

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
	// A process does not outlive a reboot: the same one has not seen any.
	rebooted := fresh && old != nil && old.BootID != "" && b.BootID != "" && old.BootID != b.BootID
	if fresh && old != nil {
		row.Former = append(slices.Clone(old.Former[max(0, len(old.Former)+1-maxFormer):]), old.Instance)
	}
	row.MachineID, row.BootID, row.Instance = b.MachineID, b.BootID, b.Instance
	row.ManualClear, row.ProofDetail = b.RequireManualClear, clip(b.Proof.Detail)
	t.putAgent(*t.present(&row))
	t.reviewWithholding()

	if fresh {
		t.emit(command.Event{Kind: command.EventAgentRegistered, Host: b.Host, Instance: b.Instance})
		t.reconcileLeases(b, rebooted)
	}
	t.declareDevices(b)
	t.recoverDevices(b.Host, hello{
		jobs: b.Jobs, proof: b.Proof, manual: b.RequireManualClear, rebooted: rebooted, fresh: fresh,
	})
	return answer{}
}

func (t *txn) checkRegistration(b *command.AgentRegister) answer {
	if b.Host == "" || b.Instance == "" || b.MachineID == "" {
		return refuse(command.BadRequest, "A registration names its host, its machine and its instance; check the agent's configuration.")
	}
	for _, name := range []string{b.Host, b.Instance, b.MachineID, b.BootID} {
		if len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
			return refuse(command.BadRequest, "A host, its machine, its boot and its instance have names of at most %d bytes without control characters; check the agent's configuration.", maxName)
		}
	}
	known := t.agents.get(b.Host)
	if known == nil && int64(t.agents.len()) >= t.settings.MaxHosts {
		return refuse(command.LimitExceeded, "There are %d hosts already and no more are allowed; raise max_hosts.", t.settings.MaxHosts)
	}
	if known != nil && known.MachineID != b.MachineID {
		return refuse(command.WrongMachine, "The host name %q belongs to another machine; give this one a name of its own, or have an operator retire the old one.", b.Host)
	}
	if known != nil && slices.Contains(known.Former, b.Instance) {
		return refuse(command.StaleInstance, "Another agent process of %q has registered since; only that one is heard.", b.Host)
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
	present := t.View.devicesOn(b.Host)
	for _, d := range present {
		if _, declared := slices.BinarySearch(names, d.Name); !declared {
			rows++ // it keeps its row
		}
	}
	// Under a bound that was lowered since, a host keeps what it has.
	if rows > t.settings.MaxDevicesInHost && rows > int64(len(present)) {
		return refuse(command.LimitExceeded, "A host has at most %d devices, those it no longer declares included; declare fewer, or retire old ones.", t.settings.MaxDevicesInHost)
	}
	return answer{}
}

func (t *txn) checkDevice(d *command.DeviceSpec) answer {
	if d.Name == "" || len(d.Name) > maxName || strings.Contains(d.Name, ":") || strings.ContainsFunc(d.Name, unicode.IsControl) {
		return refuse(command.BadRequest, "The device name %q is empty, longer than %d bytes, or has a colon or a control character; choose another.", short(d.Name), maxName)
	}
	if d.MaxRuntimeS < 0 {
		return refuse(command.BadRequest, "The ceiling of %q is negative; use 0 for none.", d.Name)
	}
	if d.MaxRuntimeS > maxRuntimeS {
		return refuse(command.BadRequest, "The ceiling of %q is above ten years; use less, or 0 for none.", d.Name)
	}
	for _, labels := range [][]command.KV{d.Declared, d.Detected} {
		if a := t.checkLabels(d.Name, labels); a.Code != command.OK {
			return a
		}
	}
	return answer{}
}

// maxName bounds the names that a host gives itself and its devices, in bytes.
const maxName = 256

// maxFormer bounds the instances kept of one host. A word that is late by more
// restarts than this is not expected.
const maxFormer = 8

// reconcileLeases ends the jobs that the host began and no longer supervises.
// Leases above what it has begun are left: their order is still on its way. So is
// a job under a lease with several that nobody has seen start: such leases are
// fenced off job by job, and only the host knows whether it has begun this one.
// It is asked to start it, and says so when it has lost its record.
func (t *txn) reconcileLeases(b *command.AgentRegister, rebooted bool) {
	reason, origin := "its agent restarted and no longer supervises it", model.OriginAgent
	if rebooted {
		reason, origin = "its host rebooted", model.OriginHost
	}
	for _, l := range t.View.LeasesOn(b.Host) {
		if !l.Begun && !begunBy(b, l) {
			continue
		}
		for _, number := range slices.Backward(l.Jobs) { // what runs inside a hold before it
			j := t.mustJob(number)
			if slices.Contains(b.Jobs, command.JobRef{Job: number, Lease: l.Number}) || undelivered(l, j, begunBy(b, l)) {
				continue
			}
			t.endJob(j, ending{state: model.JobLost, reason: reason, origin: origin})
			t.leaveLease(t.mustLease(l.Number), number, quarantine(model.ReasonRegistration, "job "+model.JobID(number)+": "+reason))
		}
	}
}

// undelivered reports whether the order for a job may still be on its way
// although its lease has begun. That of a hold may be when what ran inside has
// ended first, killed before the hold came: then the host says that it has not
// begun the lease.
func undelivered(l *model.Lease, j *model.Job, begun bool) bool {
	return j.State == model.JobAssigned && (j.Hold != 0 || len(l.Jobs) > 1 || !begun && j.Kind == model.KindHold)
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
	left := t.leftOn(b.Host, b.Jobs)
	for i := range b.Devices {
		spec := &b.Devices[i]
		id := model.DeviceID(b.Host, spec.Name)
		declared = append(declared, id)
		row := model.Device{ID: id, Host: b.Host, Name: spec.Name}
		if old := t.devices.get(id); old != nil {
			row = *old
		} else if left.has(id) {
			quarantine(model.ReasonRegistration, "its host came with a job that has no lease any more")(t, &row)
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

// reinherit shows the jobs that wait for a device, and asked for no runtime,
// its present ceiling.
func (t *txn) reinherit(device string) {
	for _, j := range t.pinnedTo(device) {
		row := *j
		if t.inheritCeiling(&row); row.MaxRuntimeS != j.MaxRuntimeS {
			t.putJob(row)
		}
	}
}
