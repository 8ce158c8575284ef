package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rcd/model"
	"rcd/wire"
)

const (
	// lookWait is how long a look at a job waits on its controller for
	// something to happen. A second node is asked only after that, so it is
	// also about what one that has been stopped costs; it goes on for the long
	// patience, so that the restart of a whole cluster is not mistaken for the
	// end of a wait.
	lookWait = 5 * time.Second

	// pollEvery is the pause between two looks where a controller does not
	// wait, because it is of an older version.
	pollEvery = 500 * time.Millisecond
)

// WaitScheduled looks at a job until it has left the queue, and returns it as
// it is then. It calls onPosition, if not nil, with each new place in the queue
// (1-based).
//
// To leave the queue is not to be scheduled: a job that was cancelled has left
// it too. Look at the state before you announce anything.
//
// An error says nothing about the job. Whether the caller's own deadline has
// passed is told by the caller's context, not by this error, which may hold a
// deadline of its own.
func (c *Client) WaitScheduled(ctx context.Context, id string, onPosition func(int)) (*wire.Job, error) {
	last := 0
	return c.WatchQueued(ctx, id, func(view *wire.JobView) {
		if view.QueuePosition != last && view.QueuePosition > 0 && onPosition != nil {
			onPosition(view.QueuePosition)
		}
		last = view.QueuePosition
	})
}

// WatchQueued is WaitScheduled that calls onLook with what it sees each time
// that the job is still queued: at once, when its place or that of others has
// changed, and every few seconds.
func (c *Client) WatchQueued(ctx context.Context, id string, onLook func(*wire.JobView)) (*wire.Job, error) {
	view, err := c.Watch(ctx, id, func(view *wire.JobView) bool {
		if view.Job.State != model.JobQueued.String() {
			return true
		}
		onLook(view)
		return false
	})
	if err != nil {
		return nil, err
	}
	return &view.Job, nil
}

// WaitTerminal looks at a job until it has ended, and returns it. maxWait
// bounds the whole; 0 means no bound. The error of a wait that was given up
// names the job and the state it was last seen in.
func (c *Client) WaitTerminal(ctx context.Context, id string, maxWait time.Duration) (*wire.Job, error) {
	if maxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxWait)
		defer cancel()
	}
	view, err := c.Watch(ctx, id, func(view *wire.JobView) bool { return Terminal(&view.Job) })
	if err != nil {
		return nil, err
	}
	return &view.Job, nil
}

// Watch looks at a job, at once, whenever something has changed and every few
// seconds, until look reports that it has seen enough, and returns what it saw
// then. id may be a unique
// prefix, and is one job from the first look on. Every wait for a job is this
// one function.
//
// It outlasts any outage shorter than the long patience. Its error names the
// job and the state it was last seen in, and says nothing about the job; of
// the context's end see WaitScheduled.
func (c *Client) Watch(ctx context.Context, id string, look func(*wire.JobView) bool) (*wire.JobView, error) {
	state, seen := "not seen", ""
	since := Since{Wait: lookWait}
	for {
		asked := time.Now()
		view, index, err := c.jobViewSince(ctx, id, since, c.longPatience)
		if err == nil {
			// A prefix that fits one job now may fit two of them tomorrow.
			id, state = view.Job.ID, view.Job.State
			if look(view) {
				return view, nil
			}
			now := looked(view)
			if index == 0 || now == seen && time.Since(asked) < pollEvery {
				err = pause(ctx, pollEvery)
			}
			seen, since.Index = now, index
		}
		if err != nil {
			return nil, fmt.Errorf("wait for job %s (last state: %s): %w", id, state, err)
		}
	}
}

// looked is what a wait has seen of a job, to tell an answer that says nothing
// new from one that was worth waking for.
func looked(view *wire.JobView) string {
	var reasons []string
	if view.Waiting != nil {
		for _, r := range view.Waiting.Reasons {
			reasons = append(reasons, r.Message)
		}
	}
	return fmt.Sprint(view.Job.State, view.QueuePosition, strings.Join(reasons, "\n"))
}

// Terminal reports whether the job has ended, which is for good. A state that
// this client does not know is not taken for an end.
func Terminal(job *wire.Job) bool {
	state, known := model.ParseJobState(job.State)
	return known && state.Terminal()
}

// pause waits, and returns the context's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
