package main

import "time"

type attachCmd struct {
	Job   string `arg:"" help:"Job ID, or the beginning of one (3 characters or more)."`
	Merge bool   `help:"Print the job's stderr on stdout, too, in the order it came."`
}

// Help is shown by rc attach --help.
func (attachCmd) Help() string {
	return `Prints the output of a job from its beginning and goes on until the job has ended, as rc run does, from wherever you are. A queued job is waited for. Exits with 0 when the output has ended, whatever the job's result: for that see rc wait. Ctrl-C detaches and leaves the job as it is.

Examples:

    rc attach j-48213
    rc attach j-48213 --merge`
}

func (v *attachCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	view, err := resolveJob(a.ctx, a, c, v.Job)
	if err != nil {
		return err
	}
	job := &view.Job
	r := &runner{app: a, client: c, target: firstOf(job.DeviceID, job.Selector), merge: v.Merge, begun: time.Now(), job: job}
	r.interrupted = func() error {
		a.say("detached; job %s is as it was. Look: rc attach %s   End it: rc kill %s", job.ID, job.ID, job.ID)
		return exitError(exitInterrupted)
	}
	if err := r.waitInQueue(); err != nil {
		return err
	}
	if neverPlaced(r.job) {
		a.say("job %s has ended: %s", r.job.ID, howItEnded(r.job))
		return nil
	}
	a.say("job %s on %s", r.job.ID, r.job.DeviceID)
	if _, err := r.stream(); err != nil {
		return err
	}
	// The output ends with the job or after it.
	end, err := c.WaitTerminal(a.ctx, r.job.ID, endWait)
	switch {
	case err != nil && a.interrupted():
		return r.interrupted()
	case err != nil:
		a.say("the end of job %s could not be seen: %s", r.job.ID, sentence(err))
	default:
		a.say("job %s has ended: %s", end.ID, howItEnded(end))
	}
	return nil
}
