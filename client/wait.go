package client

import (
	"context"
	"fmt"
	"time"

	"rcd/model"
	"rcd/wire"
)

// pollEvery is the pause between two looks at a job. A look asks a second node
// after 1 s without an answer and goes on for the long patience, so that the
// restart of a whole cluster is not mistaken for the end of a wait.
const pollEvery = 500 * time.Millisecond

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
// that the job is still queued, twice a second.
func (c *Client) WatchQueued(ctx context.Context, id string, onLook func(*wire.JobView)) (*wire.Job, error) {
	for {
		view, err := c.jobView(ctx, id, c.longPatience)
		if err != nil {
			return nil, fmt.Errorf("wait for job %s to leave the queue: %w", id, err)
		}
		if view.Job.State != model.JobQueued.String() {
			return &view.Job, nil
		}
		onLook(view)
		if err := pause(ctx, pollEvery); err != nil {
			return nil, err
		}
	}
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
	state := "not seen"
	for {
		view, err := c.jobView(ctx, id, c.longPatience)
		if err != nil {
			return nil, fmt.Errorf("wait for job %s to end (last state: %s): %w", id, state, err)
		}
		state = view.Job.State
		if Terminal(&view.Job) {
			return &view.Job, nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("wait for job %s to end (last state: %s): %w", id, state, err)
		}
	}
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
