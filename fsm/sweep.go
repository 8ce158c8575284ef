package fsm

import (
	"slices"

	"rcd/fsm/command"
	"rcd/model"
)

// Why a sweep ends a job as lost: the job's EndReason.
const (
	HostSilent   = "its agent was silent past the bound"
	LeaseUnnamed = "its host has not named it for too long"
)

// sweep judges by the leader's evidence. Every rule is checked again here, and
// no evidence may reach back before the epoch, so that a leader that wakes up
// or has just begun judges nobody.
func (t *txn) sweep(b *command.Sweep) answer {
	age := min(max(b.EpochMS, 0), t.epochAgeMS())
	judging := age >= t.settings.HoldoffMS
	heard := make([]string, 0, len(b.Heard))
	for _, h := range b.Heard {
		heard = append(heard, h.Host)
		if t.isInstance(h.Host, h.Instance) {
			t.hearAgain(h.Host)
		}
	}
	slices.Sort(heard)
	var due []string
	for i := range b.Silent {
		s := &b.Silent[i]
		if _, contact := slices.BinarySearch(heard, s.Host); !contact && t.isInstance(s.Host, s.Instance) && t.judgeSilence(s, age, judging) {
			due = append(due, s.Host)
		}
	}
	for _, number := range b.Unordered {
		t.judgeUnordered(number, b.Unordered) // first, or the jobs would be lost with their host
	}
	t.writeOffAll(due)
	if judging {
		for _, u := range b.Unnamed {
			t.judgeUnnamed(u, age)
		}
	}
	for _, s := range b.Sessions {
		t.judgeSession(s, age, judging)
	}
	t.endUnserved()
	return answer{}
}

func (t *txn) isInstance(host, instance string) bool {
	a := t.agents.get(host)
	return a != nil && a.Instance == instance
}

// hear takes contact with an agent as evidence that its host is there: its
// unknown devices are busy or ready again. A quarantine stays.
func (t *txn) hear(host string) {
	if t.hearAgain(host) {
		t.reviewWithholding()
	}
}

// hearAgain is hear without its effect on a mass write-off, and reports whether
// the host was silent.
func (t *txn) hearAgain(host string) bool {
	a := t.agents.get(host)
	if a == nil || !a.Silent {
		return false
	}
	row := *a
	t.putAgent(*t.present(&row))
	for _, d := range t.View.devicesOn(host) {
		if d.State == model.DeviceUnknown {
			row := *d
			rest(t, &row)
			t.putDevice(row)
		}
	}
	return true
}

// present marks that an agent is in contact now.
func (t *txn) present(row *model.Agent) *model.Agent {
	row.Silent, row.WrittenOff = false, false
	row.LastHeardMS, row.HeardUptimeMS = t.nowMS(), t.uptimeMS()
	return row
}

// judgeSilence turns the devices of a silent agent unknown, which the next
// contact undoes, and reports whether the long bound has passed too.
func (t *txn) judgeSilence(s *command.AgentSilence, age int64, judging bool) (due bool) {
	a := t.agents.get(s.Host)
	bound := min(age, t.uptimeMS()-a.RegisteredUptime)
	silence, detached := min(s.SilenceMS, bound, t.uptimeMS()-a.HeardUptimeMS), min(s.DetachedMS, bound)
	if detached < t.settings.UnknownAfterMS && silence < t.settings.UnknownSilenceMS {
		return false
	}
	if !a.Silent {
		row := *a
		row.Silent = true
		if s.SilenceMS < age { // else it was not heard since the epoch began, and nobody knows when
			row.LastHeardMS = max(a.LastHeardMS, t.nowMS()-max(silence, 0))
		}
		row.HeardUptimeMS = max(a.HeardUptimeMS, t.uptimeMS()-max(silence, 0))
		t.putAgent(row)
	}
	for _, d := range t.View.devicesOn(s.Host) {
		if d.State == model.DeviceReady || d.State == model.DeviceBusy {
			row := *d
			t.makeUnknown(&row)
			t.putDevice(row)
		}
	}
	return judging && silence >= t.settings.WriteOffAfterMS
}

// writeOff takes the devices of a lost agent out of the pool and, unless jobs
// of disconnected hosts are retained, ends its jobs as lost.
func (t *txn) writeOff(host string) {
	const detail = HostSilent
	if !t.settings.RetainDisconnected {
		for _, l := range t.View.LeasesOn(host) {
			t.loseLease(l, detail, model.OriginHost, quarantine(model.ReasonWorkerLost, detail))
		}
	}
	a := t.agents.get(host)
	if a.WrittenOff {
		return // a device that an operator cleared since stays cleared
	}
	row := *a
	row.WrittenOff = true
	t.putAgent(row)
	for _, d := range t.View.devicesOn(host) {
		if d.State != model.DeviceUnhealthy {
			row := *d
			quarantine(model.ReasonWorkerLost, detail)(t, &row)
			t.putDevice(row)
		}
	}
}

// loseLease ends every job of a lease as lost, those inside a hold before it, and
// with them the lease.
func (t *txn) loseLease(l *model.Lease, reason string, origin model.Origin, after func(*txn, *model.Device)) {
	for _, number := range slices.Backward(l.Jobs) {
		t.endJob(t.mustJob(number), ending{state: model.JobLost, reason: reason, origin: origin})
		t.leaveLease(t.mustLease(l.Number), number, after)
	}
}

// judgeUnnamed ends a lease that its host, attached all the while, has not
// named for long: nobody can account for its job.
func (t *txn) judgeUnnamed(u command.LeaseUnnamed, age int64) {
	l := t.leases.get(u.Lease)
	if l == nil {
		return
	}
	a := t.agents.get(l.Host)
	if a == nil || a.Silent {
		return // silence has rules of its own
	}
	limit := t.settings.LeaseUnstartedMS
	if l.Begun {
		limit = t.settings.LeaseUnnamedMS
	}
	unnamed := min(u.UnnamedMS, age, t.uptimeMS()-a.RegisteredUptime, t.uptimeMS()-l.AcquiredUptimeMS)
	if unnamed < limit {
		return
	}
	const reason = LeaseUnnamed
	t.loseLease(l, reason, model.OriginAgent, quarantine(model.ReasonLeaseExpired, "lease "+model.LeaseID(l.Number)+": "+reason))
}

// judgeUnordered takes back a placement of this epoch whose order was never
// written to any session, when its host has fallen silent: a dead host must
// not swallow the queue. A job that was asked to end meanwhile ends instead. A
// job inside a hold has no place in the queue: it ends with the hold's return
// there, which waits until no job of the lease can have reached the host.
func (t *txn) judgeUnordered(number uint64, unordered []uint64) {
	j := t.jobs.get(number)
	if j == nil || j.State != model.JobAssigned || j.PlacedTerm != t.meta.Term {
		return
	}
	l := t.mustLease(j.Lease)
	a := t.agents.get(l.Host)
	switch {
	case l.Begun || a == nil || !a.Silent:
	case j.KillRequested:
		t.endJob(j, ending{state: model.JobKilled, reason: j.KillBy, origin: model.OriginUser})
		t.leaveLease(l, number, rest)
	case j.Hold == 0 && noneOrdered(l, unordered):
		t.emptyHold(j)
		t.requeue(j)
	}
}
