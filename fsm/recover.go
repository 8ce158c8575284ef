package fsm

import (
	"slices"

	"rcd/fsm/command"
	"rcd/model"
)

// hello is what an agent says that may answer a quarantine.
type hello struct {
	jobs     []command.JobRef // it supervises them
	proof    command.Proof
	manual   bool // it wants no automatic return
	rebooted bool // the boot ID differs from the one before
	fresh    bool // the first word of this instance
}

// recoverAgain takes a later word of the registered instance.
func (t *txn) recoverAgain(b *command.Recover) answer {
	if a := t.reporter(b.Host, b.Instance); a.Code != command.OK {
		return a
	}
	t.hear(b.Host)
	row := *t.agents.get(b.Host)
	row.ManualClear, row.ProofDetail = b.RequireManualClear, clip(b.Proof.Detail)
	t.putAgent(row)
	t.recoverDevices(b.Host, hello{jobs: b.Jobs, proof: b.Proof, manual: b.RequireManualClear})
	return answer{}
}

// recoverDevices returns quarantined devices to the pool when the host proves
// that nothing of an earlier job can hold them. Nothing outlives a reboot. That
// a process began alone in its namespace speaks only for what was before it, so
// a later word of the same process must have looked. And a job that the host
// still names may be in another namespace, or was left out of the search.
func (t *txn) recoverDevices(host string, h hello) {
	if h.manual {
		return
	}
	looked := h.proof.SurvivorsChecked && !h.proof.SurvivorsFound
	none := looked || (h.fresh && h.proof.Isolated)
	if !h.rebooted && !none {
		return
	}
	left := t.leftOn(host, h.jobs)
	for _, d := range t.View.devicesOn(host) {
		if d.State != model.DeviceUnhealthy || d.Lease != 0 || gravity(d.Reason) != 1 {
			continue
		}
		if h.rebooted || !left.has(d.ID) {
			t.recover(d)
		}
	}
}

// ProofWanted reports whether a device of the host is in quarantine for a reason
// that a fresh proof may answer. A device that has had its automatic returns
// waits for a person, and one with a live lease for its job.
func (v *View) ProofWanted(host string) bool {
	for _, d := range v.devicesOn(host) {
		if d.State != model.DeviceUnhealthy || d.Lease != 0 || gravity(d.Reason) != 1 {
			continue
		}
		if h, err := v.RecoveryHistory(d.ID); err == nil && h.Remaining > 0 {
			return true
		}
	}
	return false
}

// leftovers are the devices on which a host still names a job without a live
// lease there.
type leftovers struct {
	all     bool // one of the jobs may be anywhere on the host
	devices []string
}

func (l leftovers) has(device string) bool { return l.all || slices.Contains(l.devices, device) }

func (t *txn) leftOn(host string, jobs []command.JobRef) leftovers {
	var left leftovers
	for _, ref := range jobs {
		if l := t.leases.get(ref.Lease); l != nil && l.Host == host && slices.Contains(l.Jobs, ref.Job) {
			continue
		}
		j := t.jobs.get(ref.Job)
		if j == nil || j.Lease != ref.Lease || j.Host != host {
			// Forgotten, or placed elsewhere since: where it was here is not known.
			left.all = true
			continue
		}
		for _, id := range j.Devices {
			if !slices.Contains(left.devices, id) {
				left.devices = append(left.devices, id)
			}
		}
	}
	return left
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
		t.emit(command.Event{Kind: command.EventRecoveryWithheld, Device: d.ID, Host: d.Host, Reason: d.Reason.String()})
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
