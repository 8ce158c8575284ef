package main

import (
	"context"
	"errors"
	"fmt"

	"rcd/client"
	"rcd/wire"
)

// neverPlaced reports whether a job has ended without ever having had a
// device: it was taken out of the queue.
func neverPlaced(job *wire.Job) bool {
	return client.Terminal(job) && job.Lease == "" && job.StartedAt == nil
}

// becameOf says what has become of a job whose end was asked for.
func becameOf(job *wire.Job) string {
	switch {
	case neverPlaced(job):
		return fmt.Sprintf("job %s was queued and is cancelled", job.ID)
	case !client.Terminal(job):
		return fmt.Sprintf("job %s is being ended; wait for that: rc wait %s", job.ID, job.ID)
	case !reported(job) && job.Origin == originUser:
		// Ended in the lease table alone, because nobody reaches the host.
		return fmt.Sprintf("job %s counts as %s, but its host is out of reach and may still run it; %s is out of the pool until that is known",
			job.ID, job.State, job.DeviceID)
	}
	return fmt.Sprintf("job %s has ended: %s", job.ID, howItEnded(job))
}

// reported reports whether the host of a job has said that it has ended. One
// that was ended before its process had begun has no exit code, but the host
// still knows how much it has printed.
func reported(job *wire.Job) bool { return job.ExitCode != nil || job.OutputBytes != nil }

// originUser is the origin of a job that somebody has ended.
const originUser = "user"

// howItEnded is the state of a job that has ended, with its code, what made it
// end, and why.
func howItEnded(job *wire.Job) string {
	text := job.State
	if job.ExitCode != nil && *job.ExitCode != 0 && *job.ExitCode != neverStarted {
		text += fmt.Sprintf(" with exit code %d", *job.ExitCode)
	}
	if job.Origin != "" && job.Origin != "job" {
		text += ", by the " + job.Origin
	}
	if job.KillReason != "" {
		text += ": " + clean(job.KillReason)
	}
	return text
}

// giveUp asks for the end of the runner's job, whatever state it is in, and
// looks at what becomes of it while ctx lasts; r.job is the job as it is then.
// asked reports whether the end was asked for, also when what became of the
// job could not be seen. That it had ended by itself is no error.
func (r *runner) giveUp(ctx context.Context) (asked bool, err error) {
	err = r.client.Kill(ctx, r.job.ID, r.submitter)
	had := errors.Is(err, client.ErrNotCancellable)
	if err != nil && !had {
		return false, err
	}
	view, err := r.client.Watch(ctx, r.job.ID, func(view *wire.JobView) bool {
		r.job = &view.Job
		return client.Terminal(&view.Job)
	})
	if err == nil {
		r.job = &view.Job
	}
	return !had, err
}
