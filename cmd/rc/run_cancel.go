package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"rcd/client"
)

// cancelOrDetach ends rc run after Ctrl-C: a queued job is cancelled, because
// nobody waits for it any more; a running one goes on, because work is lost
// otherwise. That of rc exec ends.
func (r *runner) cancelOrDetach() error {
	if r.exec {
		return r.endExec("interrupted", exitInterrupted)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.app.ctx), lastLook)
	defer cancel()
	id := r.job.ID
	asked, err := r.cancelIfQueued(ctx)
	switch {
	case asked:
		r.app.say("interrupted; %s", becameOf(r.job))
	case err != nil:
		r.app.say("interrupted; job %s could not be asked about (%s)", id, sentence(err))
		r.app.say("it may be queued or running. Look: %s   End it: rc kill %s", r.look(), id)
	case client.Terminal(r.job):
		r.app.say("interrupted; job %s had ended: %s. Its output: %s", id, howItEnded(r.job), strings.Replace(r.look(), " -f", "", 1))
	default:
		r.app.say("detached; job %s goes on, on %s. Look: %s   End it: rc kill %s", id, r.job.DeviceID, r.look(), id)
	}
	return exitError(exitInterrupted)
}

// timedOut ends rc after --timeout in the queue.
func (r *runner) timedOut() error {
	ctx, cancel := context.WithTimeout(r.app.ctx, cancelWait)
	defer cancel()
	asked, err := r.cancelIfQueued(ctx)
	switch {
	case err != nil && r.app.interrupted():
		return r.interrupted()
	case asked && neverPlaced(r.job):
		r.app.say("job %s was still queued after %s and is cancelled", r.job.ID, r.timeout)
		return exitError(exitDeadline)
	case asked:
		r.app.say("job %s was still queued after %s; %s", r.job.ID, r.timeout, becameOf(r.job))
		return exitError(exitDeadline)
	case err != nil:
		r.app.say("job %s was still queued after %s, and could not be cancelled: %s", r.job.ID, r.timeout, sentence(err))
		return r.leave(err, "it may be queued or running")
	}
	return nil // it got its device at the last moment
}

// cancelIfQueued looks at the job and asks for its end if it is still queued.
// asked is as in giveUp: between look and end the job may have been placed, and
// is then ended on its host like any other.
func (r *runner) cancelIfQueued(ctx context.Context) (asked bool, err error) {
	job, err := r.client.Job(ctx, r.job.ID)
	if err != nil {
		return false, err
	}
	r.job = job
	if job.State != "queued" {
		return false, nil
	}
	return r.giveUp(ctx)
}

// takeBack ends rc in the middle of a submit, after Ctrl-C or at its deadline. If
// the job may exist nobody knows its ID, so it is submitted once more under the
// same request ID, which tells, and then ended.
func (r *runner) takeBack(o client.SubmitOptions, err error, why string, code int) error {
	var outage *client.OutageError
	if errors.As(err, &outage) && !outage.Unknown {
		r.app.say("%s; nothing was submitted%s", why, r.holdGoesOn())
		return exitError(code)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.app.ctx), lastLook)
	defer cancel()
	asked := false
	if r.job, err = r.client.Submit(ctx, o); err == nil {
		asked, err = r.giveUp(ctx)
	}
	switch {
	case r.job != nil && (asked || err == nil):
		r.app.say("%s; %s%s", why, becameOf(r.job), r.holdGoesOn())
	case r.job != nil:
		r.app.say("%s; job %s may be queued or running. Look: %s   End it: rc kill %s", why, r.job.ID, r.look(), r.job.ID)
	default:
		r.app.say("%s; the job may have been submitted. Look: rc jobs --submitter %s", why, r.submitter)
	}
	return exitError(code)
}

// priority is an int flag whose value may begin with a minus.
type priority int

// Decode takes the next word whatever it looks like.
func (p *priority) Decode(ctx *kong.DecodeContext) error {
	word, _ := ctx.Scan.Pop().Value.(string)
	n, err := strconv.Atoi(word)
	if err != nil {
		return errors.New("must be a number from -10 to 10")
	}
	*p = priority(n)
	return nil
}
