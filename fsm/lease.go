package fsm

import (
	"slices"
	"strconv"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// leaseRelease gives a lease back: as a kill does, or, by an operator's force,
// without its host when that is out of reach. What may still run there keeps
// the device in quarantine. Of a hold that has ended force takes what ran inside
// and has not.
func (t *txn) leaseRelease(b *command.LeaseRelease) answer {
	j, a := t.owned(b.Job, b.By, b.Admin)
	if j == nil {
		return a
	}
	if j.State.Terminal() {
		return t.releaseRest(j, b)
	}
	if !b.Force || j.State == model.JobQueued {
		return t.endByWish(j, byWhom("released", j, b.By), b.Detached)
	}
	if !b.Admin {
		return refuse(command.NotJobOwner, "Only an administrator releases by force; release it without.")
	}
	if !b.Detached || !t.outOfReach(j.Host) {
		return refuse(command.NotReleasable, "The host of %s is in contact, or not silent for long enough to say; release it without force.", j.ID())
	}
	by := byWhom("released by force", j, b.By)
	t.endWithoutHost(t.flagKill(j, by), by, "released")
	return answer{Result: command.Result{Kill: command.KillFinalized}, jobs: []uint64{j.Number}}
}

// releaseRest releases what a hold that has ended still has: jobs that ran inside
// and that nobody has seen end. Their end is asked for already; without their
// host only force ends them.
func (t *txn) releaseRest(j *model.Job, b *command.LeaseRelease) answer {
	left := t.View.LiveInside(j.Number)
	switch {
	case len(left) == 0:
		return refuse(command.NotReleasable, "Job %s has ended as %s; there is nothing left to release.", j.ID(), j.State)
	case !b.Force:
		return refuse(command.NotReleasable, "Hold %s has ended as %s and what ran inside, %s, is being ended too; wait for that, or have an administrator release %s by force if its host is gone.", j.ID(), j.State, jobList(left), j.ID())
	case !b.Admin:
		return refuse(command.NotJobOwner, "Only an administrator releases by force; what ran inside %s is being ended already.", j.ID())
	case !b.Detached || !t.outOfReach(j.Host):
		return refuse(command.NotReleasable, "The host of %s is in contact, or not silent for long enough to say, and is ending what ran inside, %s; wait for that.", j.ID(), jobList(left))
	}
	by := byWhom("released by force", j, b.By)
	for _, each := range slices.Backward(left) {
		t.endWithoutHost(each, by, "released")
	}
	return answer{Result: command.Result{Kill: command.KillFinalized}, jobs: []uint64{j.Number}}
}

// jobList names a few jobs in a sentence.
func jobList(rows []*model.Job) string {
	const most = 5
	var names []string
	for _, j := range rows[:min(len(rows), most)] {
		names = append(names, j.ID())
	}
	list := strings.Join(names, ", ")
	if more := len(rows) - most; more > 0 {
		list += " and " + strconv.Itoa(more) + " more"
	}
	return list
}

// owned returns a job that the caller may end or lengthen, or the refusal.
func (t *txn) owned(number uint64, by string, admin bool) (*model.Job, answer) {
	j := t.jobs.get(number)
	if j == nil {
		return nil, refuse(command.NotFound, "There is no job %s; list the jobs to see their IDs.", model.JobID(number))
	}
	if by != j.Submitter && !admin {
		return nil, refuse(command.NotJobOwner, "Job %s belongs to %s; ask them, or an administrator.", j.ID(), j.Submitter)
	}
	if badName(by) { // it becomes part of the row
		return nil, refuse(command.BadRequest, "The name of who asks is longer than 256 bytes or holds a control character; give a short one.")
	}
	return j, answer{}
}

// byWhom is the reason text of an end that somebody asked for.
func byWhom(verb string, j *model.Job, by string) string {
	if by != j.Submitter {
		return verb + " by admin override (as " + by + ")"
	}
	return verb + " by " + by
}

// flagKill marks that the end of a placed job is wished for, and with the end of
// a hold that of what runs inside. The first wish stays.
func (t *txn) flagKill(j *model.Job, by string) *model.Job {
	if !j.KillRequested {
		row := *j
		row.KillRequested, row.KillBy = true, by
		j = t.putJob(row)
	}
	t.emit(command.Event{Kind: command.EventKillRequested, Job: j.Number, Lease: j.Lease, Host: j.Host})
	t.askInside(t.mustLease(j.Lease), j.Number)
	return j
}

// leaseExtend lengthens the runtime of a job, within what its devices allow. It
// never shortens.
func (t *txn) leaseExtend(b *command.LeaseExtend) answer {
	j, a := t.owned(b.Job, b.By, b.Admin)
	if j == nil {
		return a
	}
	switch {
	case j.State.Terminal():
		return refuse(command.NotExtendable, "Job %s has ended as %s; submit it again.", j.ID(), j.State)
	case j.KillRequested:
		return refuse(command.NotExtendable, "Job %s is being ended (%s); submit it again.", j.ID(), j.KillBy)
	case j.State == model.JobQueued && !j.CeilingAsked:
		return refuse(command.NotExtendable, "Job %s asked for no runtime and gets all that its device allows; there is nothing to lengthen.", j.ID())
	case j.MaxRuntimeS == 0:
		return refuse(command.NotExtendable, "Job %s has no limit; there is nothing to lengthen.", j.ID())
	case b.MaxRuntimeS <= j.MaxRuntimeS:
		return refuse(command.NotExtendable, "Job %s may run %d s already and is never shortened; ask for more.", j.ID(), j.MaxRuntimeS)
	case b.MaxRuntimeS > maxRuntimeS:
		return refuse(command.BadRequest, "A runtime is at most ten years; ask for less.")
	}
	if a := t.tolerated(j, b.MaxRuntimeS); a.Code != command.OK {
		return a
	}
	row := *j
	row.MaxRuntimeS, row.CeilingAsked = b.MaxRuntimeS, true
	t.putJob(row)
	t.emit(command.Event{Kind: command.EventJobExtended, Job: j.Number, Lease: j.Lease, Host: j.Host})
	return answer{jobs: []uint64{j.Number}}
}

// tolerated refuses a runtime that the devices of a job, or for a queued one
// those that could run it, do not allow.
func (t *txn) tolerated(j *model.Job, runtimeS int64) answer {
	devices := j.Devices
	if j.State == model.JobQueued && j.Pinned != "" {
		devices = []string{j.Pinned}
	}
	for _, id := range devices {
		if d := t.devices.get(id); d != nil && !scheduler.Tolerates(d.MaxRuntimeS, runtimeS) {
			return refuse(command.RuntimeAboveLimit, "%s allows %d s at most; ask for no more than that.", d.ID, d.MaxRuntimeS)
		}
	}
	if len(devices) > 0 {
		return answer{}
	}
	parsed, err := selector.Parse(j.Selector)
	assert(err == nil, "a queued selector parses")
	if _, ok := t.sched.Serves(j.Selector, parsed, runtimeS); !ok {
		return refuse(command.RuntimeAboveLimit, "No device that matches %q allows %d s; ask for less.", short(j.Selector), runtimeS)
	}
	return answer{}
}
