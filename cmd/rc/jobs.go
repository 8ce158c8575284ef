package main

import (
	"time"

	"rcd/client"
	"rcd/wire"
)

type jobsCmd struct {
	Limit     int    `short:"n" default:"20" help:"How many, 1 to 200."`
	Device    string `placeholder:"DEV" help:"Only jobs of this device."`
	Submitter string `placeholder:"NAME" help:"Only jobs of this submitter."`
	State     string `placeholder:"STATE" help:"Only jobs in this state: queued, assigned, running, succeeded, failed, killed or lost."`
	format
}

// Help is shown by rc jobs --help.
func (jobsCmd) Help() string {
	return `Examples:

    rc jobs -n 50
    rc jobs --state failed --device box:gpu0
    rc jobs -o json`
}

func (v *jobsCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	jobs, err := c.Jobs(a.ctx, client.JobsOptions{Limit: v.Limit, Device: v.Device, Submitter: v.Submitter, State: v.State})
	if err != nil {
		return err
	}
	if v.json() {
		if jobs == nil {
			jobs = []wire.Job{}
		}
		return printJSON(a.stdout, jobs, false)
	}
	var rows [][]string
	for _, job := range jobs {
		started, took := "", ""
		if job.StartedAt != nil {
			started = job.StartedAt.UTC().Format(time.RFC3339)
			switch {
			case job.FinishedAt != nil:
				took = duration(job.FinishedAt.Sub(*job.StartedAt))
			case !client.Terminal(&job):
				took = duration(max(time.Since(*job.StartedAt), 0))
			}
		}
		rows = append(rows, []string{
			job.ID, job.DeviceID, withNote(job.State, reasonOf(&job)), job.Submitter, started, took, commandLine(job.Command),
		})
	}
	return table(a.stdout, "JOB|DEVICE|STATE|SUBMITTER|STARTED|DURATION|COMMAND", rows)
}

// reasonOf returns why a job ended as it did, or why a hold was taken.
func reasonOf(job *wire.Job) string { return firstOf(job.KillReason, job.Reason) }
