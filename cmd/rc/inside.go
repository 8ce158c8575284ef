package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rcd/client"
	"rcd/wire"
)

// runInside is run for a job in a hold, which is named by its ID or its device.
func (r *runner) runInside(name string, noWait, detach bool, o client.SubmitOptions) error {
	hold, err := r.findHold(name)
	if err != nil {
		return err
	}
	r.hold, r.target = hold.Job.ID, "hold "+hold.Job.ID
	for o.Hold = r.hold; ; {
		if err := r.holdIsHeld(hold, noWait); err != nil {
			return err
		}
		err := r.run(detach, o)
		if !errors.Is(err, client.ErrHoldWaiting) {
			return err
		}
		// Between the look and the submit it went back into the queue.
		if hold, err = r.client.JobView(r.app.ctx, r.hold); err != nil {
			return err
		}
	}
}

// findHold looks at the hold that somebody names. A job is started by it, so an
// ID is a whole one.
func (r *runner) findHold(name string) (*wire.JobView, error) {
	id := name
	if strings.Contains(name, ":") {
		var err error
		if id, err = r.holdOf(name); err != nil {
			return nil, err
		}
	}
	view, err := r.client.JobView(r.app.ctx, id)
	switch {
	case err != nil:
		return nil, err
	case view.Job.ID != id:
		return nil, absentError(fmt.Sprintf("there is no hold %s; write the whole ID, as rc ps shows it", id))
	case view.Job.Kind != kindHold:
		return nil, &usageError{text: "job " + id + " is no hold, and nothing else runs beside a job", verb: "hold"}
	}
	return view, nil
}

// holdOf returns the one hold that the submitter has of a device, or has in the
// queue for it.
func (r *runner) holdOf(device string) (string, error) {
	devices, err := r.client.Devices(r.app.ctx)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(devices, func(d wire.DeviceView) bool { return d.Device.ID == device })
	if at < 0 {
		return "", absentError(fmt.Sprintf("there is no device %s; rc devices lists those there are", device))
	}
	holder := devices[at].Holder
	if devices[at].Kind == kindHold && holder == r.submitter {
		return devices[at].JobID, nil
	}
	queued, err := r.client.Jobs(r.app.ctx, client.JobsOptions{Device: device, Submitter: r.submitter, State: "queued", Limit: maxCandidates})
	if err != nil {
		return "", err
	}
	var mine []string
	for _, job := range queued {
		if job.Kind == kindHold {
			mine = append(mine, job.ID)
		}
	}
	switch {
	case len(mine) == 1:
		return mine[0], nil
	case len(mine) > 1:
		return "", &usageError{text: fmt.Sprintf("you have several holds in the queue for %s (%s); name one", device, strings.Join(mine[:min(len(mine), maxNamed)], ", "))}
	case holder == "":
		return "", absentError(fmt.Sprintf("%s holds nothing on %s; take it first: rc hold %s --ttl 1h --reason TEXT", r.submitter, device, device))
	case holder == r.submitter:
		return "", absentError(fmt.Sprintf("%s has a job on %s and no hold, and nothing else runs beside a job", r.submitter, device))
	}
	return "", deniedError(fmt.Sprintf("%s is held by %s, not by %s; use --as if that is you", device, clean(holder), r.submitter))
}

// holdIsHeld returns nil once the hold has its device.
func (r *runner) holdIsHeld(hold *wire.JobView, noWait bool) error {
	job := &hold.Job
	if job.State == "queued" {
		if noWait {
			return busyError("hold " + job.ID + " is still queued; leave out --no-wait to wait for it")
		}
		r.app.say("hold %s is queued; waiting for it", job.ID)
		ctx := r.app.ctx
		if r.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, r.begun.Add(r.timeout))
			defer cancel()
		}
		talk := queueTalk{app: r.app, target: firstOf(job.DeviceID, job.Selector)}
		held, err := r.client.WatchQueued(ctx, job.ID, talk.look)
		switch {
		case err == nil:
			job = held
		case r.app.interrupted():
			r.app.say("interrupted; nothing was submitted, and hold %s is as it was", job.ID)
			return exitError(exitInterrupted)
		case ctx.Err() != nil:
			r.app.say("hold %s was still queued after %s; nothing was submitted, and it is as it was", job.ID, r.timeout)
			return exitError(exitDeadline)
		default:
			return err
		}
	}
	if client.Terminal(job) {
		return absentError(fmt.Sprintf("hold %s has ended: %s; take the device again with rc hold", job.ID, holdEnd(job)))
	}
	return nil
}

// holdGoesOn says that of a job's hold, if it has one.
func (r *runner) holdGoesOn() string {
	if r.hold == "" {
		return ""
	}
	return "; hold " + r.hold + " goes on"
}

// endExec ends rc exec, and its job with it, before that has ended by itself.
func (r *runner) endExec(why string, code int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.app.ctx), lastLook)
	defer cancel()
	asked, err := r.giveUp(ctx)
	switch {
	case asked:
		r.app.say("%s; %s%s", why, becameOf(r.job), r.holdGoesOn())
	case err == nil:
		r.app.say("%s; job %s had ended: %s%s", why, r.job.ID, howItEnded(r.job), r.holdGoesOn())
	default:
		r.app.say("%s; job %s could not be ended: %s", why, r.job.ID, sentence(err))
		r.app.say("it may go on until hold %s ends. End it: rc kill %s", r.hold, r.job.ID)
	}
	return exitError(code)
}

// pipe is what follow is for a job that has rc's stdin.
func (r *runner) pipe() error {
	in, err := openInput()
	if err != nil {
		return err
	}
	defer in.close()
	stderr := r.app.stderr
	if r.merge {
		stderr = r.app.stdout
	}
	_, end, err := r.client.Attach(r.app.ctx, r.job.ID, client.AttachOptions{
		Stdout: r.app.stdout, Stderr: stderr, In: in.read, Submitter: r.submitter, Gap: r.gap,
		TakenOver: func() { r.app.say("another rc has taken the input of job %s over", r.job.ID) },
	})
	switch {
	case err == nil && !end.Complete:
		r.app.say("the output of job %s is incomplete: %s", r.job.ID, end.Reason)
	case err != nil && r.app.interrupted():
		return r.interrupted()
	case err != nil && brokenPipe(err):
		return r.unread(err)
	case err != nil:
		r.app.say("streams lost: %s", sentence(err))
	}
	return nil
}

// stdinHasData reports whether stdin is something to read for a command: not a
// terminal, whose keys would go to two at once, nor /dev/null, which Go also
// puts where stdin is closed. A command that finds nothing there needs no pipe,
// and its output is kept.
func stdinHasData() bool {
	var stdin, null unix.Stat_t
	if unix.Fstat(int(os.Stdin.Fd()), &stdin) != nil || isTerminal(int(os.Stdin.Fd())) {
		return false
	}
	return unix.Stat(os.DevNull, &null) != nil || stdin.Mode&unix.S_IFMT != unix.S_IFCHR || stdin.Rdev != null.Rdev
}
