package fsm

import (
	"slices"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/scheduler"
)

// place gives a free device to a queued job under a new lease.
func (t *txn) place(number uint64, device string) { t.placeJob(*t.mustJob(number), device) }

// placeJob is place for a row that need not be in the table yet.
func (t *txn) placeJob(job model.Job, device string) {
	number, d := job.Number, *t.mustDevice(device)
	assert(job.State == model.JobQueued, "only a queued job is placed")
	assert(d.State == model.DeviceReady && d.Lease == 0, "only a ready device is given away")
	t.meta.LastLease++
	lease := model.Lease{
		Number: t.meta.LastLease, Devices: []string{d.ID}, Jobs: []uint64{number},
		Kind: job.Kind, Holder: job.Submitter, Note: job.Note, Host: d.Host,
		AcquiredAtMS: t.nowMS(), AcquiredUptimeMS: t.uptimeMS(), Term: t.meta.Term,
	}
	t.putLease(lease)

	d.State, d.Lease, d.HighestLease = model.DeviceBusy, lease.Number, lease.Number

	job.State = model.JobAssigned
	job.Devices, job.Host, job.Lease, job.PlacedTerm = lease.Devices, d.Host, lease.Number, t.meta.Term
	if !job.CeilingAsked {
		job.MaxRuntimeS = d.MaxRuntimeS
	}
	t.putJob(job)
	t.putDevice(d)
	t.placed = append(t.placed, number)
	t.emit(command.Event{Kind: command.EventJobPlaced, Job: number, Lease: lease.Number, Host: d.Host, Device: d.ID})
}

// requeue puts a job whose order never left the leader back to its old place.
// Its lease number is burnt. One that was not to wait ends unless this entry
// places it again.
func (t *txn) requeue(j *model.Job) {
	l := t.mustLease(j.Lease)
	row := *j
	row.State = model.JobQueued
	row.Devices, row.Host, row.Lease, row.PlacedTerm = nil, "", 0, 0
	t.inheritCeiling(&row)
	row.QueueAtMS = scheduler.KeyAt(row.QueuedUptimeMS, row.Priority, t.settings.AgingMS)
	t.putJob(row)
	t.sched.Touch(targetOf(&row)) // nobody has asked whether it is still served
	if row.NoWait {
		t.noWait = append(t.noWait, row.Number)
	}
	t.emit(command.Event{Kind: command.EventJobRequeued, Job: j.Number, Lease: l.Number, Host: l.Host})
	t.leaveLease(l, j.Number, rest)
}

// ending is how a job ends.
type ending struct {
	state  model.JobState
	reason string
	origin model.Origin
	code   *int32
}

// endJob makes a job terminal. Its lease is left to the caller.
func (t *txn) endJob(j *model.Job, e ending) *model.Job {
	assert(!j.State.Terminal(), "a terminal state is final")
	assert(e.state.Terminal(), "a job ends in a terminal state")
	row := *j
	row.State, row.EndReason, row.Origin, row.ExitCode = e.state, e.reason, e.origin, e.code
	row.FinishedAtMS, row.EndUptimeMS = t.nowMS(), t.uptimeMS()
	if row.Lease != 0 {
		row.Output = model.OutputPartial // until its host states the length
	}
	now := t.putJob(row)
	t.emit(command.Event{Kind: command.EventJobEnded, Job: j.Number, Host: j.Host, Reason: e.reason})
	return now
}

// leaveLease takes an ended or requeued job out of its lease. The lease ends
// with its last job; until then its devices are held. What becomes of them is up
// to after, in either case: a process that a job inside a hold has left behind
// is on the device of the hold.
func (t *txn) leaveLease(l *model.Lease, job uint64, after func(*txn, *model.Device)) {
	i := slices.Index(l.Jobs, job)
	assert(i >= 0, "a job is not in its lease")
	last := len(l.Jobs) == 1
	if last {
		t.dropLease(l)
		t.emit(command.Event{Kind: command.EventLeaseEnded, Lease: l.Number, Host: l.Host})
	} else {
		row := *l
		row.Jobs = slices.Delete(slices.Clone(l.Jobs), i, i+1)
		t.askInside(t.putLease(row), job)
	}
	for _, id := range l.Devices {
		was := t.mustDevice(id)
		assert(was.Lease == l.Number, "a device does not hold its lease")
		d := *was
		if last {
			d.Lease = 0
		}
		if after(t, &d); last || d.State != was.State || d.Reason != was.Reason || d.Detail != was.Detail {
			t.putDevice(d)
		}
	}
}

// rest gives a device the state that follows from its lease and its agent. A
// quarantine stays.
func rest(t *txn, d *model.Device) {
	if d.State == model.DeviceUnhealthy {
		return
	}
	agent := t.agents.get(d.Host)
	switch {
	case agent == nil || agent.Silent || (d.Absent && d.Lease == 0):
		t.makeUnknown(d)
	case d.Lease != 0:
		d.State, d.UnknownUptimeMS, d.Detail = model.DeviceBusy, 0, ""
	default:
		d.State, d.UnknownUptimeMS, d.Detail = model.DeviceReady, 0, ""
	}
}

func (t *txn) makeUnknown(d *model.Device) {
	if d.State != model.DeviceUnknown || d.UnknownUptimeMS == 0 {
		d.UnknownUptimeMS = max(t.uptimeMS(), 1) // 0 would mean that it is not unknown
	}
	d.State, d.Detail = model.DeviceUnknown, ""
	if d.Absent {
		d.Detail = "its host no longer declares it"
	}
}

// quarantine returns what takes a device out of the pool for a reason. A
// reason that is there stays when the new one is milder or equal. The words of
// one fault more are added: who clears the first must see them all.
func quarantine(reason model.Reason, detail string) func(*txn, *model.Device) {
	return func(_ *txn, d *model.Device) {
		if d.State == model.DeviceUnhealthy && gravity(reason) <= gravity(d.Reason) {
			if reason == model.ReasonFault && d.Reason == reason && !strings.Contains(d.Detail, detail) {
				d.Detail = clip(d.Detail + "; " + detail)
			}
			return
		}
		d.State, d.Reason, d.Detail, d.UnknownUptimeMS = model.DeviceUnhealthy, reason, detail, 0
	}
}

// gravity orders reasons: what a proof of dead processes answers, then what
// only an operator answers.
func gravity(r model.Reason) int {
	switch r {
	case model.ReasonNone:
		return 0
	case model.ReasonWorkerLost, model.ReasonLeaseExpired, model.ReasonRegistration:
		return 1
	}
	return 2
}
