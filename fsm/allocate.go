package fsm

import (
	"rcd/fsm/command"
)

// scheduleAll has the whole queue looked at again after the entry's commands.
func (t *txn) scheduleAll() answer {
	t.sched.Recheck()
	return answer{placed: true}
}

// leaseAllocate gives a ready device to a job at once. By law 6 nobody in the
// queue could have used it, unless this entry has freed it and not scheduled
// yet: then the queue comes first.
func (t *txn) leaseAllocate(b *command.LeaseAllocate, identity string) answer {
	if b.Job.Pinned == "" {
		return refuse(command.BadRequest, "An allocation names its device; submit the job to have one chosen.")
	}
	if a := t.checkSpec(&b.Job); a.Code != command.OK {
		return a
	}
	if t.sched.Pending() {
		return refuse(command.Unscheduled, "The queue comes first, and this entry still has jobs to place; send this again.")
	}
	d := t.mustDevice(b.Job.Pinned)
	if !t.sched.Free(d.ID) {
		return refuse(command.NoDevice, "%s is %s; wait for it in the queue, or choose another.", d.ID, d.State)
	}
	row := t.newJob(&b.Job, identity)
	t.meta.LastJob++
	row.Number = t.meta.LastJob
	t.emit(command.Event{Kind: command.EventJobQueued, Job: row.Number})
	// Never in the queue, not even for a moment: the scheduler has nothing to
	// look at for it, so that the next allocation of this entry may pass.
	t.placeJob(row, d.ID)
	return answer{jobs: []uint64{row.Number}}
}
