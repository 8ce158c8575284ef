package fsm

import (
	"slices"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/scheduler"
)

// A job inside a hold shares the hold's lease: its devices, its host, its fencing
// token. It never queues. The lease ends with its last job, so that a device whose
// hold has ended is not free before what ran inside has ended too; nothing new
// starts there meanwhile, for the hold takes nobody in any more.

// Bounds of the jobs inside one hold that have not ended. The second leaves room
// for as many environments of the largest size that is allowed by default.
const (
	maxInside      = 64
	maxInsideBytes = 4 << 20
)

// checkHoldShape refuses what a job inside a hold cannot have, and sessions that
// are none.
func checkHoldShape(s *command.JobSpec) answer {
	bad := func(sentence string) answer { return refuse(command.BadRequest, "%s", sentence) }
	switch {
	case s.Hold != 0 && s.Kind != model.KindJob:
		return bad("A hold is not inside another; submit it with a target of its own.")
	case s.Hold != 0 && (s.Pinned != "" || s.Selector != ""):
		return bad("A job inside a hold runs on the device of the hold; leave out device and selector.")
	case s.Hold != 0 && (s.Priority != 0 || s.NoWait):
		return bad("A job inside a hold never queues; leave out priority and no_wait.")
	case s.SessionS != 0 && s.Kind != model.KindHold:
		return bad("Only a hold has a session; leave it out.")
	case s.SessionS != 0 && (s.SessionS < model.MinSessionS || s.SessionS > model.MaxSessionS):
		return refuse(command.BadRequest, "The client of a hold's session may be silent for %d to %d s; choose a number from there.", model.MinSessionS, model.MaxSessionS)
	}
	return answer{}
}

// checkInside refuses a job for a hold that is not the submitter's, or that takes
// nobody in.
func (t *txn) checkInside(s *command.JobSpec) answer {
	h := t.jobs.get(s.Hold)
	switch {
	case h == nil:
		return refuse(command.NotFound, "There is no hold %s; list your holds to see their IDs.", model.JobID(s.Hold))
	case h.Kind != model.KindHold:
		return refuse(command.BadRequest, "%s is a job and not a hold; name a hold to run inside.", h.ID())
	case h.Submitter != s.Submitter:
		return refuse(command.NotJobOwner, "Hold %s belongs to %s, and nobody else runs inside it; make a hold of your own.", h.ID(), h.Submitter)
	case h.State.Terminal():
		return refuse(command.HoldEnded, "Hold %s has ended as %s; make a new one.", h.ID(), h.State)
	case h.KillRequested:
		return refuse(command.HoldEnded, "Hold %s is being ended (%s); make a new one.", h.ID(), h.KillBy)
	case h.State == model.JobQueued:
		return refuse(command.HoldWaiting, "Hold %s is still in the queue; wait until it has its device.", h.ID())
	}
	for _, id := range h.Devices {
		if d := t.mustDevice(id); !scheduler.Tolerates(d.MaxRuntimeS, s.MaxRuntimeS) {
			return refuse(command.RuntimeAboveLimit, "The job asks for %d s and %s allows %d s at most; ask for less.", s.MaxRuntimeS, d.ID, d.MaxRuntimeS)
		}
	}
	return answer{}
}

// checkRoomInside refuses what would pass the bounds of the holds that rows are
// to run inside.
func (t *txn) checkRoomInside(rows []model.Job) answer {
	type load struct{ jobs, bytes int64 }
	loads := map[uint64]load{} // by hold; only looked up
	for i := range rows {
		hold := rows[i].Hold
		if hold == 0 {
			continue
		}
		l, known := loads[hold]
		if !known {
			for _, j := range t.View.LiveInside(hold) {
				l = load{l.jobs + 1, l.bytes + jobBytes(j)}
			}
		}
		l = load{l.jobs + 1, l.bytes + jobBytes(&rows[i])}
		loads[hold] = l
		switch {
		case l.jobs > maxInside:
			return refuse(command.HoldFull, "At most %d jobs run inside hold %s at a time; wait until some have ended.", maxInside, model.JobID(hold))
		case l.bytes > maxInsideBytes:
			return refuse(command.HoldFull, "The jobs inside hold %s may take %d bytes in all; wait until some have ended, or shrink environments and commands.", model.JobID(hold), maxInsideBytes)
		}
	}
	return answer{}
}

// enterHold places a checked job under the lease of its hold.
func (t *txn) enterHold(row model.Job) {
	l := *t.mustLease(t.mustJob(row.Hold).Lease)
	l.Jobs = append(slices.Clone(l.Jobs), row.Number) // the newest number of all
	t.putLease(l)
	row.State, row.Pinned = model.JobAssigned, l.Devices[0]
	row.Devices, row.Host, row.Lease, row.PlacedTerm = l.Devices, l.Host, l.Number, l.Term
	if !row.CeilingAsked {
		row.MaxRuntimeS = t.mustDevice(row.Pinned).MaxRuntimeS
	}
	t.putJob(row)
	t.emit(command.Event{Kind: command.EventJobPlaced, Job: row.Number, Lease: l.Number, Host: l.Host, Device: row.Pinned})
}

// askInside asks for the end of every job inside a hold that has ended or is to
// end. It does nothing for other jobs of the lease.
func (t *txn) askInside(l *model.Lease, hold uint64) {
	for _, number := range l.Jobs {
		if j := t.mustJob(number); j.Hold == hold && !j.KillRequested {
			t.flagKill(j, "hold "+model.JobID(hold)+" ended")
		}
	}
}

// endWithoutHost ends a job whose end has been asked for and whose host is out of
// reach, and before it what runs inside. What may still live there keeps the
// devices in quarantine.
func (t *txn) endWithoutHost(j *model.Job, reason, how string) {
	after := quarantine(model.ReasonWorkerLost, "its host is out of reach and job "+j.ID()+" was "+how+" without it")
	for _, number := range slices.Backward(t.mustLease(j.Lease).Jobs) {
		e := ending{state: model.JobKilled, reason: reason, origin: model.OriginUser}
		each := t.mustJob(number)
		if number != j.Number {
			if each.Hold != j.Number {
				continue
			}
			e.reason = each.KillBy
		}
		t.endJob(each, e)
		t.leaveLease(t.mustLease(j.Lease), number, after)
	}
}

// noneOrdered reports whether the order of no job of a lease has been written to
// any session, its first being known not to.
func noneOrdered(l *model.Lease, unordered []uint64) bool {
	return !slices.ContainsFunc(l.Jobs[1:], func(job uint64) bool { return !slices.Contains(unordered, job) })
}

// emptyHold ends the jobs inside a hold that goes back to the queue. Nothing of
// them has begun.
func (t *txn) emptyHold(hold *model.Job) {
	for _, number := range slices.Backward(t.mustLease(hold.Lease).Jobs) {
		if number == hold.Number {
			continue
		}
		t.endJob(t.mustJob(number), ending{state: model.JobKilled, reason: "hold " + hold.ID() + " went back to the queue", origin: model.OriginHost})
		t.leaveLease(t.mustLease(hold.Lease), number, rest)
	}
}

// LiveInside returns the jobs inside a hold that have not ended, by number. The
// caller owns the slice.
func (v *View) LiveInside(hold uint64) []*model.Job {
	var rows []*model.Job
	h := v.jobs.get(hold)
	if h == nil {
		return nil
	}
	if l := v.leases.get(h.Lease); l != nil { // also after the end of the hold
		for _, number := range l.Jobs {
			if j := v.jobs.get(number); j.Hold == hold {
				rows = append(rows, j)
			}
		}
	}
	return rows
}
