package main

import (
	"context"
	"fmt"
	"time"

	"rcd/client"
	"rcd/wire"
)

// What rc wait waits for.
const (
	forScheduled = "scheduled"
	forDone      = "done"
)

type waitCmd struct {
	Jobs    []string      `arg:"" name:"job" help:"Job IDs, or the beginnings of some (3 characters or more); holds, too."`
	For     string        `default:"done" enum:"scheduled,done" placeholder:"WHAT" help:"What to wait for: scheduled (it has its device) or done (it has ended)."`
	Timeout time.Duration `placeholder:"D" help:"Give up after this time and exit with 124."`
	// Output has no default: what there is to say is said on stderr.
	Output string `short:"o" default:"" enum:"table,text,wide,json,jsonl,yaml,name," placeholder:"FORMAT" help:"At the end, print what is known of each job: table, wide, json, jsonl, yaml or name."`
}

// Help is shown by rc wait --help.
func (waitCmd) Help() string {
	return `Waits until every job named has ended, or has its device, through any change of controllers. With --timeout it ends with 124 at the latest then, and says of each job what it waits for and when it is expected to start; rc wait cancels nothing.

The exit code of one job is its own, as rc run would have it; of several it is 0 if all succeeded, else 1. With --for scheduled it is 0 when all got their devices, however they ended then. A hold that was held and is over has succeeded.

With -o what is known of each job at the end is printed; with -o json as the API has it: the job, its place in the queue and why it waits. Its "origin" tells who is to blame for an end that was no success: "job" itself, the "agent", the "device", the "host", or a "user" who ended it.

Examples:

    rc wait j-48213
    rc wait j-48213 j-48214 --timeout 2h
    rc wait j-48213 --for scheduled --timeout 10m
    rc wait j-48213 -o json`
}

func (v *waitCmd) Run(a *app) error {
	if v.Timeout < 0 {
		return &usageError{text: "--timeout cannot be negative", verb: "wait"}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	w := &waiter{app: a, client: c, verb: v}
	ctx := a.ctx
	if v.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.Timeout)
		defer cancel()
	}
	err = w.wait(ctx)
	var late []lateJob
	switch {
	case err == nil:
	case a.interrupted():
		return w.interrupted()
	case ctx.Err() != nil:
		late = w.lastLook()
	default:
		return err
	}
	if v.Output != "" {
		if err := viewListing(a.now()).print(a.stdout, v.Output, w.seen, nil); err != nil {
			return err
		}
	}
	if len(late) > 0 {
		return w.overdue(late)
	}
	if code := w.exitCode(); code != exitOK {
		return exitError(code)
	}
	return nil
}

// viewListing prints jobs as jobListing does, and to programs what is known of
// them besides.
func viewListing(now time.Time) listing[*wire.JobView] {
	l := listing[*wire.JobView]{name: func(view *wire.JobView) string { return view.Job.ID }}
	for _, c := range jobListing(now).columns {
		l.columns = append(l.columns, column[*wire.JobView]{c.heading, c.in, func(view *wire.JobView) string { return c.cell(view.Job) }})
	}
	return l
}

// waiter waits for some jobs, one after the other: for all of them that takes
// no longer than for the slowest.
type waiter struct {
	app    *app
	client *client.Client
	verb   *waitCmd
	seen   []*wire.JobView // the jobs as last seen, in the order of the command line
}

// wait returns nil once every job is where it was waited for.
func (w *waiter) wait(ctx context.Context) error {
	// All of them first: a mistake in an ID must not show after hours.
	for _, id := range w.verb.Jobs {
		view, err := resolveJob(ctx, w.app, w.client, id)
		if err != nil {
			return err
		}
		w.seen = append(w.seen, view)
	}
	for i, view := range w.seen {
		talk := queueTalk{app: w.app, target: firstOf(view.Job.DeviceID, view.Job.Selector)}
		_, err := w.client.Watch(ctx, view.Job.ID, func(view *wire.JobView) bool {
			w.seen[i] = view
			if view.Job.State == "queued" && len(w.seen) == 1 {
				talk.look(view) // of several, nobody would know which
			}
			return w.arrived(&view.Job)
		})
		if err != nil {
			return err
		}
		w.tell(&w.seen[i].Job)
	}
	return nil
}

// arrived reports whether a job is where it was waited for.
func (w *waiter) arrived(job *wire.Job) bool {
	if w.verb.For == forScheduled {
		return job.State != "queued"
	}
	return client.Terminal(job)
}

// tell says how the wait for one job has ended.
func (w *waiter) tell(job *wire.Job) {
	switch {
	case client.Terminal(job):
		w.app.say("job %s has ended: %s", job.ID, howItEnded(job))
	default:
		w.app.say("job %s on %s", job.ID, job.DeviceID)
	}
}

// lateBy bounds how long after its deadline rc wait ends: what it would look for
// longer it has mostly seen before.
const lateBy = time.Second

// lateJob is how a job fares that is not there yet, and what to do next; or why
// nobody knows.
type lateJob struct {
	how, next string
	err       error
}

// say is what people are told.
func (l lateJob) say() string {
	if l.err != nil {
		return l.how + ": " + sentence(l.err)
	}
	return l.how + ". " + l.next
}

// failure is what programs are told.
func (l lateJob) failure() failure {
	f := failure{Code: codeDeadline, Message: l.how, Hint: l.next}
	if l.err != nil {
		why := failureOf(l.err)
		f.Message, f.Hint = l.how+": "+why.Message, why.Hint
	}
	return f
}

// lastLook looks at the jobs once more after the deadline, and returns those
// that are not there yet.
func (w *waiter) lastLook() (late []lateJob) {
	ctx, cancel := context.WithTimeout(w.app.ctx, lateBy)
	defer cancel()
	for i, id := range w.verb.Jobs {
		known := i < len(w.seen)
		if known && w.arrived(&w.seen[i].Job) {
			continue
		}
		if known {
			id = w.seen[i].Job.ID
		}
		view, err := resolveJob(ctx, w.app, w.client, id)
		switch {
		case err == nil && known:
			w.seen[i] = view
		case err == nil:
			w.seen = append(w.seen, view)
		case !known:
			// Of the others there is none either.
			return append(late, lateJob{how: fmt.Sprintf("no word of job %s within %s", id, w.verb.Timeout), err: err})
		}
		if err == nil && w.arrived(&view.Job) {
			w.tell(&view.Job)
			continue
		}
		where, next := still(w.seen[i])
		late = append(late, lateJob{how: fmt.Sprintf("job %s is still %s after %s%s", id, w.seen[i].Job.State, w.verb.Timeout, where), next: next})
	}
	return late
}

// overdue ends rc wait at its deadline.
func (w *waiter) overdue(late []lateJob) error {
	if w.app.forPrograms {
		all := failure{Code: codeDeadline}
		for i, job := range late {
			f := job.failure()
			if i > 0 {
				f.Message, f.Hint = "; "+f.Message, "; "+f.Hint
			}
			all.Message, all.Hint = all.Message+f.Message, all.Hint+f.Hint
		}
		w.app.report(all, "")
		return exitError(exitDeadline)
	}
	for _, job := range late {
		w.app.say("%s", job.say())
	}
	return exitError(exitDeadline)
}

// still says where a job is that has not arrived, and what to do next.
func still(view *wire.JobView) (where, next string) {
	job := &view.Job
	if job.State != "queued" {
		text := ", on " + job.DeviceID
		if end := latestEnd(job); !end.IsZero() {
			text += ", and ends by " + localTime(end)
		}
		return text, "Go on: rc wait " + job.ID + "   End it: rc kill " + job.ID
	}
	text := ""
	if view.QueuePosition > 0 {
		text = fmt.Sprintf(" at position %d", view.QueuePosition)
	}
	if view.Waiting != nil && len(view.Waiting.Reasons) > 0 {
		text += ": " + whyItWaits(view.Waiting.Reasons)
		if !ends(view.Waiting.Reasons) {
			text += "; " + untilWhen(view.Waiting.ExpectedStart)
		}
	}
	return text, "Go on: rc wait " + job.ID + "   Cancel it: rc kill " + job.ID
}

// exitCode is that of jobs that have all arrived.
func (w *waiter) exitCode() int {
	code := exitOK
	for _, view := range w.seen {
		of := exitOK
		switch {
		case w.verb.For == forDone:
			of = endCode(&view.Job)
		case neverPlaced(&view.Job):
			of = exitNoCode
		}
		if of != exitOK {
			code = of
		}
	}
	if code != exitOK && len(w.seen) > 1 {
		code = exitNoCode
	}
	return code
}

// interrupted ends rc wait after Ctrl-C.
func (w *waiter) interrupted() error {
	if len(w.verb.Jobs) == 1 {
		id := w.verb.Jobs[0]
		if len(w.seen) == 1 {
			id = w.seen[0].Job.ID
		}
		return w.app.onlyWatched("job " + id)
	}
	return w.app.onlyWatched(fmt.Sprintf("%d jobs", len(w.verb.Jobs)))
}
