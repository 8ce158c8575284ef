package fsm

import (
	"slices"

	"rcd/model"
)

// inside holds a job against the hold that it runs or ran inside, and a hold
// against its session.
func (c *checker) inside(j *model.Job) {
	if (j.Hold != 0 || j.SessionS != 0) && c.v.meta.Feature < LevelInside {
		c.found("job %d is of a later feature level", j.Number)
	}
	switch {
	case j.SessionS != 0 && (j.Kind != model.KindHold || j.SessionS < model.MinSessionS || j.SessionS > model.MaxSessionS):
		c.found("job %d has a session of %d s", j.Number, j.SessionS)
	case j.SessionSilent && j.SessionS == 0:
		c.found("job %d has a silent client and no session", j.Number)
	}
	if j.Hold == 0 {
		return
	}
	h := c.v.jobs.get(j.Hold)
	switch {
	case j.State == model.JobQueued:
		c.found("job %d inside hold %d is queued", j.Number, j.Hold)
	case j.Kind != model.KindJob || j.Hold >= j.Number || (h != nil && h.Kind != model.KindHold):
		c.found("job %d is inside %d, which is no hold before it", j.Number, j.Hold)
	case j.State.Terminal():
	case h == nil || h.State.Terminal():
		if !j.KillRequested {
			c.found("job %d runs inside hold %d, which has ended, and nobody asks for its end", j.Number, j.Hold)
		}
	case h.Lease != j.Lease:
		c.found("job %d is under lease %d, its hold %d under %d", j.Number, j.Lease, j.Hold, h.Lease)
	case h.KillRequested && !j.KillRequested:
		c.found("hold %d is to end and job %d inside is not", j.Hold, j.Number)
	}
}

// sharing looks at the jobs of one lease together.
func (c *checker) sharing(l *model.Lease) {
	var rows []*model.Job
	for _, number := range l.Jobs {
		if j := c.v.jobs.get(number); j != nil {
			rows = append(rows, j)
		}
	}
	if len(rows) == 0 {
		return
	}
	hold := rows[len(rows)-1].Hold // of whatever is inside; a hold is the oldest
	alone := slices.ContainsFunc(rows, func(j *model.Job) bool { return j.Hold == 0 && j.Number != hold })
	switch {
	case alone && len(rows) > 1:
		c.found("lease %d has %d jobs, and not one hold and what is inside it", l.Number, len(rows))
	case (l.Kind == model.KindHold) != (hold != 0 || rows[0].Kind == model.KindHold):
		c.found("lease %d is a %s's and its jobs say otherwise", l.Number, l.Kind)
	case slices.ContainsFunc(rows, func(j *model.Job) bool { return j.Number != hold && j.Hold != hold || j.Submitter != l.Holder }):
		c.found("lease %d of %s has jobs inside several holds, or of others", l.Number, l.Holder)
	case len(rows) > 1+maxInside:
		c.found("lease %d has %d jobs", l.Number, len(rows))
	}
	for _, j := range rows {
		c.inside(j) // what a hold asks of them shows in their rows
	}
}
