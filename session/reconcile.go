package session

import (
	"cmp"
	"slices"

	"rcd/model"
	"rcd/wire"
)

// Desired is one job that the lease table wants on a host: assigned or
// running, under a live lease.
type Desired struct {
	Job   uint64
	Lease uint64
	State model.JobState // JobAssigned or JobRunning
	// KillRequested: somebody asked for its end, KillReason says who.
	KillRequested bool
	KillReason    string
	Start         wire.StartJob
}

// ActionKind says what is to be done about one job on a host.
type ActionKind uint8

// The kinds, in the order in which Reconcile returns them: what frees a device
// comes before what needs one.
const (
	// ActReport asks for the outcome of an ended job again.
	ActReport ActionKind = iota + 1
	// ActKill ends a process tree.
	ActKill
	// ActAdopt takes a running job as it is; nothing is sent.
	ActAdopt
	// ActStart orders the start of a job that the host does not name.
	ActStart
	// ActExtend lengthens the limit of a job that the host ends by a shorter one.
	ActExtend
)

var actionNames = [...]string{"none", "report", "kill", "adopt", "start", "extend"}

// String returns the kind's name.
func (k ActionKind) String() string {
	if int(k) < len(actionNames) {
		return actionNames[k]
	}
	return "unknown"
}

// Action is one thing to do about one job under one lease.
type Action struct {
	Kind  ActionKind
	Job   uint64
	Lease uint64
	// Reason is that of a kill.
	Reason string
	// MarkStarted, of an adopt: the table still has the job as assigned.
	MarkStarted bool
	// Start is what the host needs: always for a start, and for the kill of a
	// job that it does not name, so that it can fence the lease off.
	Start *wire.StartJob
	// MaxRuntimeS is the limit of an extend, in seconds.
	MaxRuntimeS int64
}

// Reasons of kills that no person asked for.
const (
	ReasonNotDesired = "no longer wanted by the lease table"
	ReasonOldLease   = "placed again under a newer lease"
	reasonCancelled  = "cancelled"
)

// Reconcile compares what the lease table wants on a host with what the host
// says it has, and returns what is to be done, sorted by kind, job and lease.
// It is pure: equal arguments give equal results, whatever their order, and
// nothing in them is changed. Start pointers refer into desired.
//
// The rules, for a job that the table wants under lease L:
//   - named under L and alive: adopt, or kill if that was asked for; a limit
//     that the host says is below the table's is extended, never shortened;
//   - named under L and ended: report;
//   - named under an older lease only: kill or report that one, start L;
//   - named under a newer lease: nothing, because whoever computed desired is
//     behind; the host would refuse its orders too;
//   - not named: start. Whether it may still be started is for the host's
//     fence to decide: a lease that it has begun answers with its present
//     state, or with an outcome when its record is lost. If the end was asked
//     for, kill instead: the host then never starts it and says so.
//
// A job that the table does not want is killed while alive (once: not while the
// host is already ending it) and reported after its end.
func Reconcile(desired []Desired, reported []wire.ReportedJob) []Action {
	wanted := make(map[uint64]*Desired, len(desired))
	for i := range desired {
		wanted[desired[i].Job] = &desired[i]
	}
	newest := make(map[uint64]uint64, len(reported))
	for _, r := range reported {
		newest[r.Job] = max(newest[r.Job], r.Lease)
	}

	var actions []Action
	for _, r := range reported {
		d := wanted[r.Job]
		switch {
		case d != nil && newest[r.Job] > d.Lease:
			// Stale view: touch nothing of this job.
		case r.Phase == wire.PhaseEnded:
			actions = append(actions, Action{Kind: ActReport, Job: r.Job, Lease: r.Lease})
		case d == nil:
			actions = appendKill(actions, r, ReasonNotDesired)
		case r.Lease < d.Lease:
			actions = appendKill(actions, r, ReasonOldLease)
		case d.KillRequested:
			actions = appendKill(actions, r, killReason(d))
		default:
			actions = append(actions, Action{Kind: ActAdopt, Job: r.Job, Lease: r.Lease,
				MarkStarted: d.State == model.JobAssigned && r.Phase == wire.PhaseRunning})
			if r.MaxRuntimeS > 0 && !r.Killing && d.Start.MaxRuntimeS > r.MaxRuntimeS {
				actions = append(actions, Action{Kind: ActExtend, Job: r.Job, Lease: r.Lease, MaxRuntimeS: d.Start.MaxRuntimeS})
			}
		}
	}
	for i := range desired {
		d := &desired[i]
		if newest[d.Job] >= d.Lease {
			continue
		}
		if d.KillRequested {
			actions = append(actions, Action{Kind: ActKill, Job: d.Job, Lease: d.Lease, Reason: killReason(d), Start: &d.Start})
			continue
		}
		actions = append(actions, Action{Kind: ActStart, Job: d.Job, Lease: d.Lease, Start: &d.Start})
	}
	slices.SortFunc(actions, func(a, b Action) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Lease, b.Lease))
	})
	return actions
}

func appendKill(actions []Action, r wire.ReportedJob, reason string) []Action {
	if r.Killing {
		return actions
	}
	return append(actions, Action{Kind: ActKill, Job: r.Job, Lease: r.Lease, Reason: reason})
}

func killReason(d *Desired) string {
	if d.KillReason == "" {
		return reasonCancelled
	}
	return d.KillReason
}
