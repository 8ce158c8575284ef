package main

import (
	"context"

	"rcd/client"
)

type killCmd struct {
	Job string `arg:"" help:"Job ID, the whole of it."`
	As  string `placeholder:"NAME" help:"Submitter to act as; only the job's own may end it, and an admin."`
}

// Help is shown by rc kill --help.
func (killCmd) Help() string {
	return `A queued job is cancelled at once. The end of a running one takes as long as its host needs to stop every process of it; rc kill does not wait for that, and rc wait does. A job that has ended already is refused (not_cancellable). What of the three it was is said. The ID has to be whole: its beginning could be another job's.

Examples:

    rc kill j-48213
    rc kill j-48213 --as bob@desk`
}

func (v *killCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Kill(a.ctx, v.Job, firstOf(v.As, a.conf.submitter)); err != nil {
		return err
	}
	// The answer says only that it was accepted.
	ctx, cancel := context.WithTimeout(a.ctx, lastLook)
	defer cancel()
	job, err := c.Job(ctx, v.Job)
	switch {
	case err != nil && a.interrupted():
		return a.leaveOff("interrupted; kill requested for "+v.Job, "Look: rc wait "+v.Job)
	case err != nil:
		a.say("kill requested for %s; what became of it could not be asked (%s). Look: rc wait %s", v.Job, sentence(err), v.Job)
	case !client.Terminal(job):
		a.say("kill requested for %s; %s", job.ID, becameOf(job))
	default:
		a.say("%s", becameOf(job))
	}
	return nil
}
