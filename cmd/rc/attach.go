package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"rcd/client"
	"rcd/wire"
)

type attachCmd struct {
	Job      string `arg:"" help:"Job ID, or the beginning of one (3 characters or more)."`
	Merge    bool   `help:"Print the job's stderr on stdout, too, in the order it came."`
	TakeOver bool   `help:"Type to the job's terminal, in place of whoever does now."`
	As       string `placeholder:"NAME" help:"Submitter, instead of RC_SUBMITTER."`
}

// Help is shown by rc attach --help.
func (attachCmd) Help() string {
	return `Prints the output of a job from its beginning and goes on until the job has ended, as rc run does, from wherever you are. A queued job is waited for. Exits with 0 when the output has ended, whatever the job's result: for that see rc wait. Ctrl-C detaches and leaves the job as it is.

Of a job on a terminal any number of people see the same; one of them types, at first whoever ran it. --take-over makes that you: it needs a terminal on stdin, and the job to be yours. Type ~. at the beginning of a line to leave the job to itself (~~ is a ~).

Examples:

    rc attach j-48213
    rc attach j-48213 --merge
    rc attach --take-over j-48213`
}

func (v *attachCmd) Run(a *app) error {
	if v.TakeOver && !isTerminal(int(os.Stdin.Fd())) {
		return &usageError{text: "--take-over needs a terminal on stdin", verb: "attach"}
	}
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
	switch {
	case job.Stdio != "tty" && v.TakeOver:
		return &usageError{text: "job " + job.ID + " is on no terminal, so there is nothing to take over", verb: "attach"}
	case job.Stdio != "":
		return v.join(a, c, job)
	}
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

// join is attach to a job on a terminal or a pipe.
func (v *attachCmd) join(a *app, c *client.Client, job *wire.Job) error {
	if job.State == "queued" {
		a.say("job %s is queued; waiting for it", job.ID)
	}
	s := &session{app: a, client: c, job: job, types: v.TakeOver, submitter: firstOf(v.As, a.conf.submitter)}
	end, err := s.run()
	switch {
	case errors.Is(err, errDetached):
		a.say("detached; job %s goes on. Back: rc attach --take-over %s   End it: rc kill %s", job.ID, job.ID, job.ID)
		return exitError(exitInterrupted)
	case err != nil:
		return err
	case !end.Complete:
		a.say("the output of job %s is incomplete: %s", job.ID, end.Reason)
	}
	return nil
}

// session is one time at the terminal of a job.
type session struct {
	app       *app
	client    *client.Client
	job       *wire.Job
	types     bool // else it only looks on
	submitter string
}

// run shows the job's output and has it get what is typed, until the job has
// ended, errDetached, or a signal. The terminal is then as it was before.
func (s *session) run() (client.StreamEnd, error) {
	a := s.app
	quiet := a.stderr // rc's own words
	defer func() { a.stderr = quiet }()
	stdout := a.stdout
	options := client.AttachOptions{Submitter: s.submitter}
	onScreen := isTerminal(int(os.Stdout.Fd()))
	if s.types {
		t, err := openTerminal()
		if err != nil {
			return client.StreamEnd{}, err
		}
		defer t.close()
		changes, stop := resized()
		defer stop()
		keys := &detacher{read: t.read}
		options.In = func(ctx context.Context, p []byte) (int, error) {
			n, err := keys.next(ctx, p)
			if errors.Is(err, errDetached) && onScreen {
				fmt.Fprint(stdout, "\r\n") // away from the prompt
			}
			return n, err
		}
		options.Size, options.Resized = t.size, changes
		options.TakenOver = func() {
			a.say("another terminal has taken the input over; you look on. ~. leaves")
		}
		if onScreen {
			view := &screen{out: stdout, size: t.size}
			options.Stdout, a.stderr = view, talk{view}
		} else {
			options.Stdout, a.stderr = stdout, crlf{a.stderr}
		}
		if err := t.raw(); err != nil {
			return client.StreamEnd{}, err
		}
	} else {
		options.Stdout = stdout
	}
	options.Stderr = quiet
	options.Gap = func(g client.Gap) error {
		a.say("%d bytes of output are missing: %s", g.To-g.From, g.Cause)
		return nil
	}
	_, end, err := s.client.Attach(a.ctx, s.job.ID, options)
	return end, err
}
