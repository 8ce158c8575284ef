package main

import (
	"fmt"
	"time"

	"rcd/wire"
)

type extendCmd struct {
	Job string        `arg:"" help:"Job ID, the whole of it; a hold's, too."`
	By  time.Duration `arg:"" optional:"" help:"How much longer it may run than it may now, e.g. 2h."`
	To  string        `placeholder:"WHEN" help:"Instead: how long in all from its start, e.g. 12h, or until when, RFC 3339."`
	As  string        `placeholder:"NAME" help:"Submitter to act as; only the job's own may extend it, and an admin."`
}

// Help is shown by rc extend --help.
func (extendCmd) Help() string {
	return `Lengthens the limit of a job or a hold, within what its device allows. It never shortens: of two that ask at once, one may be refused, and nothing is lost by that. The ID has to be whole: its beginning could be another job's.

Examples:

    rc extend j-48213 2h
    rc extend j-48213 --to 12h
    rc extend j-48213 --to 2030-01-02T18:00:00Z`
}

func (v *extendCmd) Run(a *app) error {
	switch {
	case (v.By == 0) == (v.To == ""):
		return &usageError{text: "say by how much, e.g. 2h, or with --to how long in all", verb: "extend"}
	case v.By < 0:
		return &usageError{text: "a limit is never shortened; give a duration above 0", verb: "extend"}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	job, err := c.Job(a.ctx, v.Job)
	if err != nil {
		return err
	}
	if job.ID != v.Job { // reads take the beginning of an ID
		return absentError(fmt.Sprintf("there is no job %s; rc extend takes whole IDs, as rc jobs lists them", v.Job))
	}
	inAll, err := v.inAll(job)
	if err != nil {
		return err
	}
	if job, err = c.Extend(a.ctx, job.ID, firstOf(v.As, a.conf.submitter), inAll); err != nil {
		return err
	}
	text := fmt.Sprintf("job %s may run for %s in all", job.ID, duration(time.Duration(job.MaxRuntimeSeconds)*time.Second))
	if end := latestEnd(job); !end.IsZero() {
		text += ", until " + localTime(end)
	}
	a.say("%s", text)
	return nil
}

// inAll is how long the job is to run, counted from its start.
func (v *extendCmd) inAll(job *wire.Job) (time.Duration, error) {
	if v.To == "" {
		return time.Duration(job.MaxRuntimeSeconds)*time.Second + v.By, nil
	}
	if d, err := time.ParseDuration(v.To); err == nil && d > 0 {
		return d, nil
	}
	until, err := time.Parse(time.RFC3339, v.To)
	switch {
	case err != nil:
		return 0, &usageError{text: fmt.Sprintf("--to %q is neither a duration such as 12h nor a time such as 2030-01-02T18:00:00Z", v.To), verb: "extend"}
	case job.StartedAt == nil:
		return 0, fmt.Errorf("job %s has not started, so that its time is not counted yet; give --to a duration", job.ID)
	case !until.After(*job.StartedAt):
		return 0, fmt.Errorf("job %s started at %s, and %s is not after that; give a later time", job.ID, localTime(*job.StartedAt), v.To)
	}
	return until.Sub(*job.StartedAt), nil
}

// latestEnd is when the time of a job is up, zero when that is not known: it
// has not started, or has no limit.
func latestEnd(job *wire.Job) time.Time {
	if job.StartedAt == nil || job.MaxRuntimeSeconds == 0 {
		return time.Time{}
	}
	return job.StartedAt.Add(time.Duration(job.MaxRuntimeSeconds) * time.Second)
}

// localTime prints a time as a person's clock shows it.
func localTime(t time.Time) string { return t.Local().Format(time.RFC3339) }
