package agent

import (
	"context"

	"rcd/model"
	"rcd/wire"
)

// check looks at the devices of a job that has run and whose processes are
// gone. It may take its time: the job is not over, and its devices are not
// given away, before every check has spoken.
type check struct {
	name string // for the log
	// lease: it is made once for a lease, after the last of its jobs; else after
	// each.
	lease bool
	// applies tells whether there is anything to look with at this moment; nil:
	// always.
	applies func() bool
	// look returns what was found. ctx ends when the agent stops; what is found
	// then counts for nothing, and the next agent looks again.
	look func(ctx context.Context, j *job, o wire.Outcome) finding
}

// finding is what a check has to say.
type finding struct {
	fault string // takes the job's devices out of the pool; "" if they are fit
	note  string // what the device said of the job, for its reason; "" for nothing
	// origin is what a failed job failed of, if not of itself; zero for nothing
	// found.
	origin model.Origin
}

// conclude brings a job whose process tree has ended to its outcome. With
// checks the outcome is on disk before anybody is told: once told, the device
// may be another job's, and must not be looked at again. That goes for a job as
// well that leaves the looks to others of its lease. keep: it is on disk anyway.
func (a *agent) conclude(j *job, o wire.Outcome, keep bool) {
	last := a.leaves(j)
	for _, c := range a.checks {
		if c.applies != nil && !c.applies() {
			continue
		}
		keep = true
		if c.lease && !last {
			continue
		}
		f := c.look(a.ctx, j, o)
		if a.ctx.Err() != nil {
			return
		}
		if f.fault != "" {
			a.log.Error("a device is not fit after a job", "check", c.name, "job", j.job, "devices", j.devices, "fault", f.fault)
		}
		o.Survivors = cut(joined(o.Survivors, f.fault))
		o.Reason = cut(joined(o.Reason, f.note))
		if f.origin != 0 && failed(o) {
			o.Origin = uint8(f.origin)
		}
	}
	if last {
		a.health.leaseOver(j)
	}
	a.at(atChecked)
	if !keep {
		a.starts.weigh(j, &o, j.handle != nil)
		a.finish(j, o)
		return
	}
	a.settle(j, o)
}

// joined returns two texts as one.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
