package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"rcd/client"
	"rcd/wire"
)

type psCmd struct {
	format
	watching
}

// Help is shown by rc ps --help.
func (psCmd) Help() string {
	return `Jobs that hold devices come first, then the queue in scheduling order. The number after "queued" counts within a device; all jobs that chose by selector are counted together. With -o json each job has it as queue_place.

Examples:

    rc ps
    rc ps -o wide
    rc ps --watch
    rc ps -o json`
}

func (v *psCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	return v.watching.show(a, "the jobs", v.Output, func(since client.Since) (func(io.Writer) error, uint64, error) {
		state, index, err := c.StateSince(a.ctx, since)
		if err != nil {
			return nil, 0, err
		}
		return func(w io.Writer) error { return psListing(a.now()).print(w, v.Output, psJobs(state), nil) }, index, nil
	})
}

// psJobs are the jobs that hold devices, and then the queue.
func psJobs(state *wire.State) (jobs []psJob) {
	for _, job := range state.Jobs {
		jobs = append(jobs, psJob{Job: job})
	}
	place := map[string]int{}
	for _, job := range state.Queued {
		place[job.DeviceID]++
		jobs = append(jobs, psJob{Job: job, QueuePlace: place[job.DeviceID]})
	}
	return jobs
}

// psJob is a job with its place among those that were submitted to the same
// device, from 1; 0 if it is not queued.
type psJob struct {
	wire.Job
	QueuePlace int `json:"queue_place,omitempty"`
}

func (j psJob) state() string {
	if j.QueuePlace > 0 {
		return fmt.Sprintf("queued (#%d)", j.QueuePlace)
	}
	return j.State
}

func psListing(now time.Time) listing[psJob] {
	return listing[psJob]{
		name: func(j psJob) string { return j.ID },
		columns: []column[psJob]{
			{"JOB", allTables, func(j psJob) string { return j.ID }},
			{"DEVICE", allTables, func(j psJob) string { return j.DeviceID }},
			{"STATE", allTables, psJob.state},
			{"SUBMITTER", allTables, func(j psJob) string { return j.Submitter }},
			{"KIND", wideOnly, func(j psJob) string { return withNote(j.Kind, j.Reason) }},
			{"SUBMITTED", wideOnly, func(j psJob) string { return ago(&j.SubmittedAt, now) }},
			{"STARTED", wideOnly, func(j psJob) string { return ago(j.StartedAt, now) }},
			{"PRIORITY", wideOnly, func(j psJob) string { return strconv.Itoa(j.Priority) }},
			{"SELECTOR", wideOnly, func(j psJob) string { return j.Selector }},
			{"HOLD", wideOnly, func(j psJob) string { return j.Hold }},
			{"COMMAND", narrowOnly, func(j psJob) string { return commandLine(j.Command) }},
			{"COMMAND", wideOnly, func(j psJob) string { return wholeCommand(j.Command) }},
		},
	}
}
