package main

import (
	"context"

	"rcd/client"
	"rcd/wire"
)

type releaseCmd struct {
	Job   string `arg:"" help:"Job ID, the whole of it; a hold's mostly."`
	As    string `placeholder:"NAME" help:"Submitter to act as; only the job's own may release it, and an admin."`
	Force bool   `help:"End the lease without its host, which is out of reach; the device stays out of the pool (admin)."`
}

// Help is shown by rc release --help.
func (releaseCmd) Help() string {
	return `Gives a lease back before its end: of a hold, or of any job, which ends with it. Waits for a moment until the host has seen to it, so that the device can be had again when rc returns. One that is still queued is cancelled. The ID has to be whole: its beginning could be another job's.

Examples:

    rc release j-48213
    rc release j-48213 --force`
}

func (v *releaseCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	job, err := c.Release(a.ctx, v.Job, firstOf(v.As, a.conf.submitter), v.Force)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(a.ctx, cancelWait)
	defer cancel()
	var inside []string
	if end, err := c.WaitTerminal(ctx, job.ID, 0); err == nil {
		job = end
		inside = stillInside(ctx, c, job)
	}
	switch {
	case client.Terminal(job) && len(inside) > 0:
		word := "released"
		if a.interrupted() {
			word = "interrupted; released"
		}
		a.say("%s %s; what ran inside is being ended, and the device is free after it: rc wait %s", word, job.ID, inside[0])
		if a.interrupted() {
			return exitError(exitInterrupted)
		}
	case a.interrupted():
		a.say("interrupted; %s", becameOf(job))
		return exitError(exitInterrupted)
	case client.Terminal(job) && reported(job):
		a.say("released %s", job.ID)
	default:
		a.say("%s", becameOf(job))
	}
	return nil
}

// stillInside waits for what ran inside a hold that has ended, whose device is free
// only then, and returns what has not ended when ctx does.
func stillInside(ctx context.Context, c *client.Client, hold *wire.Job) (ids []string) {
	if hold.Kind != kindHold {
		return nil
	}
	var live []wire.Job
	for _, state := range []string{"assigned", "running"} {
		jobs, err := c.Jobs(ctx, client.JobsOptions{Hold: hold.ID, State: state, Limit: mostInside})
		if err != nil {
			return nil // the hold has ended all the same
		}
		live = append(live, jobs...)
	}
	for i := range live {
		if _, err := c.WaitTerminal(ctx, live[i].ID, 0); err != nil {
			ids = append(ids, live[i].ID)
		}
	}
	return ids
}

// mostInside is how many jobs live inside a hold at most.
const mostInside = 64
