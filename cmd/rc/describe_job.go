package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"rcd/client"
	"rcd/wire"
)

// jobID tells a job from a device, whose ID has a colon.
var jobID = regexp.MustCompile(`^j-[0-9]+$`)

// maxInside is how many of the jobs of a hold that have ended are shown.
const maxInside = 20

// jobDescription is what is known of a job, of a hold with what runs in it.
type jobDescription struct {
	wire.JobView
	// Inside are the jobs of a hold, newest first: all that have not ended, and
	// the last that have.
	Inside []wire.Job `json:"inside,omitempty"`
}

func (v *describeCmd) job(a *app, c *client.Client) error {
	view, err := resolveJob(a.ctx, a, c, v.Device)
	if err != nil {
		return err
	}
	d := jobDescription{JobView: *view}
	if d.Job.Kind == kindHold && d.Job.Lease != "" {
		if d.Inside, err = jobsInside(a, c, &d.Job); err != nil {
			return err
		}
	}
	return v.show(a.stdout, d, d.Job.ID, func() error { return printJob(a.stdout, &d, a.now(), v.Output == formatWide) })
}

// jobsInside lists the jobs of a hold. A controller of an older version lists all
// that the submitter has had there since.
func jobsInside(a *app, c *client.Client, hold *wire.Job) (inside []wire.Job, err error) {
	ended := 0
	take := func(job *wire.Job) bool {
		if job.Hold == hold.ID && (!client.Terminal(job) || ended < maxInside) {
			inside = append(inside, *job)
			if client.Terminal(job) {
				ended++
			}
		}
		return job.ID != hold.ID
	}
	err = c.EachJob(a.ctx, client.JobsOptions{Hold: hold.ID, Device: hold.DeviceID, Submitter: hold.Submitter, Limit: maxCandidates}, take)
	return inside, err
}

// printJob prints what is known of a job, a line for each thing that there is.
func printJob(w io.Writer, d *jobDescription, now time.Time, wide bool) error {
	job := &d.Job
	fmt.Fprintf(w, "%s  %s\n", job.ID, withNote(job.State, clean(job.KillReason)))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, clean(text))
		}
	}
	row("kind", withNote(job.Kind, job.Reason))
	row("submitter", job.Submitter)
	row("device", firstOf(job.DeviceID, job.Selector))
	row("hold", job.Hold)
	if job.Kind != kindHold {
		row("command", wholeCommand(job.Command))
	}
	row("submitted", ago(&job.SubmittedAt, now))
	if job.State == "queued" {
		row("waits", waitsFor(d))
	}
	row("started", ago(job.StartedAt, now))
	row("duration", took(job, now))
	if end := latestEnd(job); !end.IsZero() && !client.Terminal(job) {
		row("ends by", inFull(&end))
	}
	row("session", sessionText(job))
	row("exit code", exitText(job))
	row("origin", job.Origin)
	if err := t.Flush(); err != nil || len(d.Inside) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nJOBS INSIDE")
	inside := jobListing(now)
	inside.columns = slices.DeleteFunc(inside.columns, func(c column[wire.Job]) bool {
		return slices.Contains([]string{"DEVICE", "SUBMITTER", "HOLD", "SELECTOR", "PRIORITY"}, c.heading) // the hold's
	})
	slices.SortStableFunc(d.Inside, func(a, b wire.Job) int {
		return cmp.Compare(endedLast(&a), endedLast(&b))
	})
	return inside.table(w, d.Inside, wide)
}

// endedLast sorts jobs that run before those that have ended.
func endedLast(job *wire.Job) int {
	if client.Terminal(job) {
		return 1
	}
	return 0
}

func waitsFor(d *jobDescription) string {
	text := ""
	if d.QueuePosition > 0 {
		text = fmt.Sprintf("at position %d", d.QueuePosition)
	}
	if d.Waiting != nil && len(d.Waiting.Reasons) > 0 {
		text += ": " + whyItWaits(d.Waiting.Reasons)
	}
	return text
}

func sessionText(job *wire.Job) string {
	switch {
	case job.SessionSeconds == 0 || client.Terminal(job):
		return ""
	case job.SessionSilent:
		return fmt.Sprintf("of its rc, which has not been heard lately; the hold ends after %s of that", duration(time.Duration(job.SessionSeconds)*time.Second))
	}
	return fmt.Sprintf("of its rc; the hold ends when that has not been heard for %s", duration(time.Duration(job.SessionSeconds)*time.Second))
}
