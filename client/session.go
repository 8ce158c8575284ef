package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// SessionOptions say whose hold to keep, and how.
type SessionOptions struct {
	Submitter string
	// Timeout is for how long the hold outlives its last heartbeat, as it was
	// submitted. A heartbeat goes out after each third of it.
	Timeout time.Duration
	// Silent, if not nil, is called when no controller has answered for half of
	// Timeout, and again when it has not for the whole: for how long, and what is
	// left until the hold ends, 0 at last. Heard, if not nil, is called when one
	// answers after that.
	Silent func(silent, left time.Duration)
	Heard  func()
}

// KeepSession keeps a hold with a session from ending, through any change of
// controllers, until the hold has ended otherwise, which it returns nil for, or
// ctx has. It goes on when nobody answers, past Timeout too: whether the hold has
// ended only a controller can say. Any other refusal is returned; the hold ends
// Timeout after it unless somebody else sends heartbeats.
//
// Give it a Client of its own: what else is asked must not hold it up.
func (c *Client) KeepSession(ctx context.Context, id string, o SessionOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	heard, ended := make(chan time.Time), make(chan error, 1)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { ended <- c.heartbeats(ctx, id, o, heard) })

	last, told := time.Now(), false // when the cluster has surely heard of us; Silent was called since
	due := time.NewTimer(o.Timeout / 2)
	defer due.Stop()
	for {
		select {
		case last = <-heard:
			if told && o.Heard != nil {
				o.Heard()
			}
			told = false
			due.Reset(time.Until(last.Add(o.Timeout / 2)))
		case <-due.C:
			silent := time.Since(last)
			left := max(o.Timeout-silent, 0)
			if o.Silent != nil {
				o.Silent(silent, left)
			}
			if told = true; left > 0 {
				due.Reset(left)
			}
		case err := <-ended:
			return err
		}
	}
}

// heartbeats sends them, and says of each that was answered when it was sent at
// the earliest.
func (c *Client) heartbeats(ctx context.Context, id string, o SessionOptions, heard chan<- time.Time) error {
	for {
		asked := time.Now()
		// To say it twice changes nothing, so it goes out like a read: a node
		// that is silent does not hold it up.
		_, err := c.Heartbeat(ctx, id, o.Submitter)
		switch {
		case err == nil:
			// A search may have taken long, but not the attempt that was answered.
			at := time.Now().Add(-answerTimeout)
			if asked.After(at) {
				at = asked
			}
			select {
			case heard <- at:
			case <-ctx.Done():
			}
			if err := pause(ctx, time.Until(asked.Add(o.Timeout/3))); err != nil {
				return err
			}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrJobEnded):
			return nil
		case !errors.Is(err, ErrUnreachable):
			return err
		}
	}
}
