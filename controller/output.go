package controller

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"rcd/fsm"
	"rcd/model"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

// errHostGone ends the reading of a spool whose host has been written off.
var errHostGone = errors.New("host written off")

// output reads one job's bytes for one reader: from the spool on its host, by
// as many links as that takes, and joined with what the lease table says about
// the end.
type output struct {
	c       *Controller
	job     uint64
	follow  bool
	conduit *relay.Conduit
	next    int64 // offset to go on at
}

// Output implements api.Backend.
func (c *Controller) Output(ctx context.Context, job *model.Job, offset int64, follow bool) (relay.Source, error) {
	leader := c.Leader()
	if !leader.Self {
		return nil, fmt.Errorf("read output of %s: %w", job.ID(), raftnode.ErrNotLeader)
	}
	o := &output{c: c, job: job.Number, follow: follow, conduit: relay.NewConduit(0), next: offset}
	within, cancel := context.WithCancelCause(ctx)
	if !c.goes(func() {
		defer cancel(nil)
		o.conduit.Fail(o.run(within))
	}) {
		cancel(nil)
		return nil, fmt.Errorf("read output of %s: %w", job.ID(), raftnode.ErrNotLeader)
	}
	// Whoever reads must look for the new leader as soon as this one is none.
	c.goes(func() {
		select {
		case <-leader.Changed:
			cancel(raftnode.ErrNotLeader)
		case <-within.Done():
		}
	})
	return o.conduit, nil
}

// run feeds the conduit up to the End. It returns why it ended before.
func (o *output) run(ctx context.Context) error {
	wake, stop := o.c.notify.watch(o.job)
	defer stop()
	row, err := o.waitFor(ctx, wake, func(j *model.Job) bool { return j.Host != "" || j.State.Terminal() })
	if err != nil {
		return err
	}
	if row.Host == "" { // it ended in the queue, or it is still there and nobody follows
		return o.end(ctx, row, nil)
	}
	end, err := o.readSpool(ctx, wake)
	if err != nil && !errors.Is(err, errHostGone) {
		return err
	}
	row, waitErr := o.waitFor(ctx, wake, func(j *model.Job) bool { return j.State.Terminal() })
	if waitErr != nil {
		return waitErr
	}
	if err != nil {
		return o.endWithoutSpool(ctx, row)
	}
	return o.end(ctx, row, &end)
}

// endWithoutSpool ends the stream of a job whose spool cannot be reached. One
// that was taken back from its host before it began, and ended in the queue,
// has none: all of its output is there.
func (o *output) endWithoutSpool(ctx context.Context, row *model.Job) error {
	if row.Host == "" {
		return o.end(ctx, row, nil)
	}
	return o.endWithoutHost(ctx, row)
}

// waitFor returns the row once done says so; without follow it returns the row
// as it is.
func (o *output) waitFor(ctx context.Context, wake <-chan struct{}, done func(*model.Job) bool) (*model.Job, error) {
	for {
		row := o.c.machine.View().Job(o.job)
		if row == nil {
			return nil, &wire.StreamError{Code: wire.CodeNotFound, Message: "the job has been pruned from the history"}
		}
		if done(row) || !o.follow {
			return row, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// readSpool follows the spool on the host to the End that the host states.
// Everything else goes into the conduit.
func (o *output) readSpool(ctx context.Context, wake <-chan struct{}) (relay.End, error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		o.watchHost(within, cancel)
	}()
	sink := relay.SinkFunc(func(ctx context.Context, record relay.Record) error {
		if _, isEnd := record.(relay.End); isEnd {
			return nil
		}
		return o.conduit.Take(ctx, record)
	})
	next, end, err := relay.Follow(within, o.dial, o.next, sink, relay.FollowOptions{})
	o.next = next
	cancel(nil)
	<-watched
	return end, err
}

// dial opens a stream from the host's spool.
func (o *output) dial(ctx context.Context, offset int64) (relay.Conn, error) {
	row := o.c.machine.View().Job(o.job)
	if row == nil || row.Host == "" {
		return nil, fmt.Errorf("job %s has no host", model.JobID(o.job))
	}
	conn, err := o.c.hub.OpenStream(ctx, row.Host)
	if err != nil {
		return nil, err
	}
	if err := relay.Ask(conn, offset, wire.StreamOpen{Job: row.ID(), Follow: o.follow}); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// watchHost ends the reading when the job is over and its host has been
// written off: what the spool holds may never come back, and a reader must
// not wait for ever.
func (o *output) watchHost(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		view := o.c.machine.View()
		if row := view.Job(o.job); row == nil || row.State.Terminal() && hostGone(view, row.Host) && !o.c.hub.Attached(row.Host) {
			cancel(errHostGone)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func hostGone(view *fsm.View, host string) bool {
	agent := view.Agent(host)
	return agent == nil || agent.WrittenOff
}

// endWithoutHost ends the stream of a job whose host is gone with an explicit
// gap, when it is known how long the output was.
func (o *output) endWithoutHost(ctx context.Context, row *model.Job) error {
	cause := fmt.Sprintf("host %s is out of reach", row.Host)
	if row.OutputKnown && int64(row.OutputLength) > o.next {
		gap := relay.Gap{From: o.next, To: int64(row.OutputLength), Cause: cause}
		if err := o.conduit.Take(ctx, gap); err != nil {
			return err
		}
		o.next = gap.To
	}
	end := relay.End{Length: o.next, StreamEnd: wire.StreamEnd{State: row.State.String(), Reason: cause}}
	return o.conduit.Take(ctx, end)
}

// end ends the stream by the word of the lease table; host is the End that the
// job's host stated, nil when it never had one.
func (o *output) end(ctx context.Context, row *model.Job, host *relay.End) error {
	end := relay.End{Length: o.next, StreamEnd: wire.StreamEnd{State: row.State.String()}}
	switch {
	case host == nil:
		end.Complete = row.State.Terminal()
		if !end.Complete {
			end.Reason = "the job has not started"
		}
	case row.OutputKnown && int64(row.OutputLength) > o.next:
		// The spool ends before the length that the job's end stated: what is
		// missing is told, never skipped.
		gap := relay.Gap{From: o.next, To: int64(row.OutputLength), Cause: "missing in the spool of host " + row.Host}
		if err := o.conduit.Take(ctx, gap); err != nil {
			return err
		}
		end.Length, end.Reason = gap.To, gap.Cause
	default:
		end.StreamEnd = host.StreamEnd
		end.State = row.State.String()
		if row.OutputKnown && len(row.OutputDigest) > 0 {
			end.Digest = hex.EncodeToString(row.OutputDigest)
		}
	}
	return o.conduit.Take(ctx, end)
}
