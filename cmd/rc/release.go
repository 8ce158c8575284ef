package main

import (
	"context"

	"rcd/client"
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
	if end, err := c.WaitTerminal(ctx, job.ID, 0); err == nil {
		job = end
	}
	switch {
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
