package agent

import (
	"context"

	"rcd/agent/shim"
	"rcd/wire"
)

// check looks at the devices of a job that has run and whose processes are
// gone. It may take its time: the job is not over, and its devices are not
// given away, before every check has spoken.
type check struct {
	name string // for the log
	// look returns what was found. ctx ends when the agent stops; what is found
	// then counts for nothing, and the next agent looks again.
	look func(ctx context.Context, j *job, o wire.Outcome) finding
}

// finding is what a check has to say.
type finding struct {
	fault string // takes the job's devices out of the pool; "" if they are fit
	note  string // what the device said of the job, for its reason; "" for nothing
}

// conclude brings a job whose process tree has ended to its outcome. With
// checks the outcome is on disk before anybody is told: once told, the device
// may be another job's, and must not be looked at again.
func (a *agent) conclude(j *job, h *shim.Handle) {
	o := a.outcomeOf(j, h)
	for _, c := range a.checks {
		f := c.look(a.ctx, j, o)
		if a.ctx.Err() != nil {
			return
		}
		if f.fault != "" {
			a.log.Error("a device is not fit after a job", "check", c.name, "job", j.job, "devices", j.devices, "fault", f.fault)
		}
		o.Survivors = cut(joined(o.Survivors, f.fault))
		o.Reason = cut(joined(o.Reason, f.note))
	}
	a.at(atChecked)
	if len(a.checks) == 0 {
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
