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

// errHostAway ends the reading of a spool whose host is out of reach, once the
// job has ended: others may have the rest.
var errHostAway = errors.New("host out of reach")

// lookEvery is how often a reader who waits for a host looks for it, and for
// another who has the rest.
const lookEvery = 250 * time.Millisecond

func errPruned() error {
	return &wire.StreamError{Code: wire.CodeNotFound, Message: "the job has been pruned from the history"}
}

// output reads one job's bytes for one reader: from the spool on its host, by
// as many links as that takes, and joined with what the lease table says about
// the end.
type output struct {
	c       *Controller
	job     uint64
	follow  bool
	conduit *relay.Conduit
	next    int64      // offset to go on at
	host    *relay.End // what the host has said of the end, nil before
	asked   time.Time  // when others were asked for their copies last
	deaf    map[string]time.Time
	gap     relay.Gap // that the host has told of, of a job that has ended
}

// Output implements api.Backend.
func (c *Controller) Output(ctx context.Context, job *model.Job, offset int64, follow bool) (relay.Source, error) {
	leader := c.Leader()
	o := &output{c: c, job: job.Number, follow: follow, conduit: relay.NewConduit(0), next: offset}
	run := o.run
	if !leader.Self {
		if !c.hasWhole(job) {
			return nil, fmt.Errorf("read output of %s: %w", job.ID(), raftnode.ErrNotLeader)
		}
		run = func(ctx context.Context) error { return o.runWhole(ctx, job) }
	}
	within, cancel := context.WithCancelCause(ctx)
	if !c.goes(func() {
		defer cancel(nil)
		o.conduit.Fail(run(within))
	}) {
		cancel(nil)
		return nil, fmt.Errorf("read output of %s: %w", job.ID(), raftnode.ErrNotLeader)
	}
	if !leader.Self {
		return o.conduit, nil
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
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		over, more, err := o.step(ctx, wake)
		if over || err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-tick.C:
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// step hands on what is to be had now: from this node's copy, then from the
// host, and once the job has ended from the copies of others. It reports
// whether the End was among it, or else whether there may be more at once.
func (o *output) step(ctx context.Context, wake <-chan struct{}) (over, more bool, err error) {
	row := o.c.machine.View().Job(o.job)
	if row == nil {
		return false, false, errPruned()
	}
	if err := o.fromOwn(ctx, row); err != nil {
		return false, false, err
	}
	if allOf(row, o.next) {
		return true, false, o.endWhole(ctx, row)
	}
	if o.host == nil && row.Host != "" && o.c.hub.Attached(row.Host) {
		end, err := o.readSpool(ctx, wake)
		switch {
		case err == nil && endedSince(end, row, o.c.machine.View().Job(o.job)):
			return false, true, nil
		case err == nil:
			o.host = &end
		case errors.Is(err, errGapHere):
			more, err = o.passGap(ctx, row, &o.gap)
			return false, more, err
		case !errors.Is(err, errHostAway):
			return false, false, err
		}
	}
	if o.host != nil {
		if row, err = o.waitFor(ctx, wake, func(j *model.Job) bool { return j.State.Terminal() }); err != nil {
			return false, false, err
		}
		if !row.State.Terminal() || !row.OutputKnown && o.host.Complete || row.OutputKnown && int64(row.OutputLength) <= o.next {
			return true, false, o.end(ctx, row, o.host)
		}
	}
	switch {
	case !row.State.Terminal():
		return false, false, nil
	case row.Host == "":
		return true, false, o.endWithoutSpool(ctx, row)
	}
	more, err = o.fromCopies(ctx, row)
	switch {
	case more || err != nil:
		return false, more, err
	case o.host != nil:
		return true, false, o.end(ctx, row, o.host)
	case o.hostGone(row):
		return true, false, o.endWithoutSpool(ctx, row)
	}
	return false, false, nil
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
			return nil, errPruned()
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
		switch r := record.(type) {
		case relay.End:
			return nil
		case relay.Gap:
			// What has gone there since may be in a copy.
			if row := o.c.machine.View().Job(o.job); row != nil && row.State.Terminal() {
				o.gap = r
				return errGapHere
			}
		}
		o.c.copying.pace.reading()
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
	return o.c.openSpool(ctx, row, offset, o.follow)
}

// watchHost ends the reading when the job is over and its host is not there:
// what the spool holds may never come back, and a reader must not wait for ever.
func (o *output) watchHost(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if row := o.c.machine.View().Job(o.job); row == nil || row.State.Terminal() && !o.c.hub.Attached(row.Host) {
			cancel(errHostAway)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// endedSince reports whether a host said that a job still runs which, by its
// row before and now, has ended meanwhile: then there is more to read, and what
// is behind the host's word is no gap.
func endedSince(host relay.End, before, now *model.Job) bool {
	return !host.Complete && !before.State.Terminal() && (now == nil || now.State.Terminal())
}

// hostGone reports whether the host has been written off and is not back.
func (o *output) hostGone(row *model.Job) bool {
	return hostGone(o.c.machine.View(), row.Host) && !o.c.hub.Attached(row.Host)
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
		gap := relay.Gap{From: o.next, To: int64(row.OutputLength), Cause: missingIn(row.Host)}
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
