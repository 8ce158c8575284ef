package main

import (
	"io"
	"strconv"
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
	watching
}

// Help is shown by rc jobs --help.
func (jobsCmd) Help() string {
	return `STARTED is how long ago; -o wide has times in full, exit codes and whole commands. With -o json the array is on one line.

Examples:

    rc jobs -n 50
    rc jobs --state failed --device box:gpu0
    rc jobs --watch --submitter ann@box
    rc jobs -o json
    rc jobs --submitter ann@box -o name`
}

func (v *jobsCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	which := client.JobsOptions{Limit: v.Limit, Device: v.Device, Submitter: v.Submitter, State: v.State}
	return v.watching.show(a, "the jobs", v.Output, func(since client.Since) (func(io.Writer) error, uint64, error) {
		list, index, err := c.JobsSince(a.ctx, which, since)
		if err != nil {
			return nil, 0, err
		}
		return func(w io.Writer) error { return jobListing(a.now()).print(w, v.Output, list.Jobs, nil) }, index, nil
	})
}

// jobListing says how jobs are printed; now is for ages.
func jobListing(now time.Time) listing[wire.Job] {
	return listing[wire.Job]{
		name:    func(j wire.Job) string { return j.ID },
		oneLine: true,
		columns: []column[wire.Job]{
			{"JOB", allTables, func(j wire.Job) string { return j.ID }},
			{"DEVICE", allTables, func(j wire.Job) string { return j.DeviceID }},
			{"STATE", narrowOnly, func(j wire.Job) string { return withNote(j.State, brief(reasonOf(&j))) }},
			{"STATE", wideOnly, func(j wire.Job) string { return withNote(j.State, reasonOf(&j)) }},
			{"SUBMITTER", allTables, func(j wire.Job) string { return j.Submitter }},
			{"STARTED", narrowOnly, func(j wire.Job) string { return ago(j.StartedAt, now) }},
			{"SUBMITTED", wideOnly, func(j wire.Job) string { return inFull(&j.SubmittedAt) }},
			{"STARTED", wideOnly, func(j wire.Job) string { return inFull(j.StartedAt) }},
			{"FINISHED", wideOnly, func(j wire.Job) string { return inFull(j.FinishedAt) }},
			{"DURATION", allTables, func(j wire.Job) string { return took(&j, now) }},
			{"EXIT", wideOnly, func(j wire.Job) string { return exitText(&j) }},
			{"ORIGIN", wideOnly, func(j wire.Job) string { return j.Origin }},
			{"PRIORITY", wideOnly, func(j wire.Job) string { return strconv.Itoa(j.Priority) }},
			{"SELECTOR", wideOnly, func(j wire.Job) string { return j.Selector }},
			{"HOLD", wideOnly, func(j wire.Job) string { return j.Hold }},
			{"COMMAND", narrowOnly, func(j wire.Job) string { return commandLine(j.Command) }},
			{"COMMAND", wideOnly, func(j wire.Job) string { return wholeCommand(j.Command) }},
		},
	}
}

// took returns how long a job has run, "" if it has not or nobody knows.
func took(job *wire.Job, now time.Time) string {
	switch {
	case job.StartedAt == nil:
	case job.FinishedAt != nil:
		return duration(job.FinishedAt.Sub(*job.StartedAt))
	case !client.Terminal(job):
		return duration(max(now.Sub(*job.StartedAt), 0))
	}
	return ""
}

func exitText(job *wire.Job) string {
	if job.ExitCode == nil {
		return ""
	}
	return strconv.Itoa(*job.ExitCode)
}

// reasonOf returns why a job ended as it did, or why a hold was taken.
func reasonOf(job *wire.Job) string { return firstOf(job.KillReason, job.Reason) }
