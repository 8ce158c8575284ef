package client

import (
	"context"
	"errors"
	"io"
	"sync"

	"rcd/wire"
)

// AttachOptions say how to attach to a job's terminal or pipe.
type AttachOptions struct {
	// Stdout and Stderr take the output as in StreamOptions, from offset From on;
	// all of a terminal's is stdout.
	Stdout, Stderr io.Writer
	From           int64
	Gap            func(Gap) error

	// In, if not nil, makes this the job's writer, in place of whoever is. It
	// returns the next bytes of input, waiting for them, and returns soon after
	// ctx ends. Its io.EOF ends the input, which only a pipe takes for an end;
	// any other error ends the Attach with it. It is called by one goroutine.
	In func(ctx context.Context, p []byte) (int, error)
	// Submitter is whose job it is; an admin's token does without.
	Submitter string
	// Size, if not nil, is asked for the size of the local terminal at first and
	// after each value of Resized.
	Size    func() (cols, rows uint16, ok bool)
	Resized <-chan struct{}
	// TakenOver, if not nil, is called once when another has become the writer.
	// The output goes on; what In returns from then on is dropped.
	TakenOver func()
}

// Attach joins a job's terminal or pipe until the job has ended and all of its
// output has come; like Stream it survives any node. Each byte of input reaches
// the job's host at most once, and is lost only with the job or this process:
// what has not been acked is kept and said again on the next link, under the
// number that this writer was given. A job that is queued is waited for.
//
// Results are like those of Stream; err may also be what In returned.
func (c *Client) Attach(ctx context.Context, id string, o AttachOptions) (next int64, end StreamEnd, err error) {
	if err := checkPath(jobPath(id, "")); err != nil {
		return o.From, StreamEnd{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	in := newInput(o)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel(nil)
	if o.In != nil {
		work.Go(func() {
			if err := in.read(ctx); err != nil {
				cancel(err)
			}
		})
		work.Go(func() { in.send(ctx) })
		work.Go(func() { in.watchSize(ctx) })
	}
	for next = o.From; ; {
		next, end, err = (&stream{client: c, id: id, input: in, options: StreamOptions{
			Stdout: o.Stdout, Stderr: o.Stderr, From: next, Gap: o.Gap,
		}}).follow(ctx)
		in.linked(nil)
		var refusal *APIError
		if !errors.As(err, &refusal) || refusal.Code != wire.CodeNotPlaced {
			return next, end, err
		}
		if _, err := c.WatchQueued(ctx, id, func(*wire.JobView) {}); err != nil {
			return next, StreamEnd{}, err
		}
	}
}
