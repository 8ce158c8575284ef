package main

import (
	"fmt"

	"rcd/wire"
)

type psCmd struct{}

// Help is shown by rc ps --help.
func (psCmd) Help() string {
	return `Jobs that hold devices come first, then the queue in scheduling order. The number after "queued" counts within a device; all jobs that chose by selector are counted together.

Example:

    rc ps`
}

func (psCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	state, err := c.State(a.ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	row := func(job wire.Job, state string) {
		rows = append(rows, []string{job.ID, job.DeviceID, state, job.Submitter, commandLine(job.Command)})
	}
	for _, job := range state.Jobs {
		row(job, job.State)
	}
	place := map[string]int{}
	for _, job := range state.Queued {
		place[job.DeviceID]++
		row(job, fmt.Sprintf("queued (#%d)", place[job.DeviceID]))
	}
	return table(a.stdout, "JOB|DEVICE|STATE|SUBMITTER|COMMAND", rows)
}
