package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"rcd/agent/shim"
	"rcd/agent/spool"
	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// appearWait is how long a follower of a job that is not here waits for it. A
// stream may be quicker than the order to start; orders are written again every
// 5 s while the job is not named.
const appearWait = 20 * time.Second

// Why a stream ends before the job's output does.
const (
	reasonOutputGone  = "output is no longer on the host"
	reasonStillRuns   = "the job is still running"
	reasonNotStarted  = "the job has not started"
	reasonNeverOutput = "the job never ran"
)

// ServeStream implements session.Handler: a job's output from some offset on.
func (a *agent) ServeStream(ctx context.Context, conn net.Conn) {
	offset, open, err := relay.Asked(conn)
	if err != nil {
		a.log.Debug("byte stream not opened", "error", err)
		return
	}
	number, ok := model.ParseJobID(open.Job)
	if !ok {
		_ = relay.Refuse(conn, wire.StreamError{Code: "bad_request", Message: "the stream names no job; send an ID like j-7"}) // nobody else to tell
		return
	}
	source := &output{agent: a, job: number, offset: offset, follow: open.Follow}
	defer source.close()
	if open.Attach {
		a.serveAttached(ctx, conn, source, open)
		return
	}
	if err := relay.Send(ctx, conn, offset, source, relay.SendOptions{}); err != nil {
		a.log.Debug("byte stream ended", "job", number, "error", err)
	}
}

// output is a cursor over one job's output, as relay.Source. It waits for the
// job to appear and to run; growth wakes it, nothing polls.
type output struct {
	agent  *agent
	job    uint64
	offset int64
	follow bool
	// opened, if set, is closed once handle is known, and joined then called. The
	// reader says itself how far it is.
	opened chan struct{}
	joined func()
	silent bool // nothing is read; the end of the job is the End

	handle  *shim.Handle
	reader  *spool.Reader
	release func()
}

func (o *output) close() {
	if o.reader != nil {
		o.reader.Close()
	}
	if o.release != nil {
		o.release()
	}
}

// Next implements relay.Source.
func (o *output) Next(ctx context.Context) (relay.Record, error) {
	if o.reader == nil {
		end, err := o.open(ctx)
		if end != nil || err != nil {
			return end, err
		}
	}
	if o.follow && o.opened == nil {
		// What was returned before has been handed on, or this would not be asked.
		o.handle.Consumed(o.offset)
	}
	for {
		// The status comes before the look at the spool: what is written in
		// between changes it, and then Wait returns at once.
		status := o.handle.Status()
		if o.silent && status.Phase != shim.Ended {
			if _, err := o.handle.Wait(ctx, status); err != nil {
				return nil, context.Cause(ctx)
			}
			continue
		}
		if o.silent {
			return relay.End{Length: o.offset, StreamEnd: wire.StreamEnd{Complete: true}}, nil
		}
		if status.Phase == shim.Ended {
			result, err := o.handle.Result()
			if err != nil {
				return o.incomplete(reasonOutputGone), nil
			}
			o.reader.Finish(result.OutputLength)
		}
		record, err := o.reader.Next()
		switch {
		case err == nil && record.Gap != nil:
			o.offset = record.Gap.To
			return relay.Gap{From: record.Gap.From, To: record.Gap.To, Cause: record.Gap.Cause}, nil
		case err == nil:
			o.offset = record.End()
			return relay.Data{Offset: record.Offset, Stream: wire.Stream(record.Stream), Bytes: record.Data}, nil
		case errors.Is(err, io.EOF):
			return o.end(), nil
		case !errors.Is(err, spool.ErrNothingYet):
			return nil, err
		case !o.follow:
			return o.incomplete(reasonStillRuns), nil
		}
		if _, err := o.handle.Wait(ctx, status); err != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// end ends the stream at the length that the job's result states.
func (o *output) end() relay.Record {
	result, err := o.handle.Result()
	if err != nil {
		return o.incomplete(reasonOutputGone)
	}
	if o.offset != result.OutputLength {
		return o.incomplete("the reader asked for more than there is")
	}
	state := jobState(outcomeOf(&job{dir: o.handle.Dir()}, result))
	return relay.End{Length: result.OutputLength, StreamEnd: wire.StreamEnd{State: state, Digest: result.OutputDigest, Complete: true}}
}

func (o *output) incomplete(reason string) relay.Record {
	return relay.End{Length: o.offset, StreamEnd: wire.StreamEnd{Reason: reason}}
}

// open finds the job's handle, waiting for it if the stream is followed. A
// record instead says that there is nothing to wait for.
func (o *output) open(ctx context.Context) (relay.Record, error) {
	patience := time.NewTimer(appearWait)
	defer patience.Stop()
	for {
		found, wake, err := o.agent.find(o.job)
		if err != nil {
			return nil, err
		}
		switch {
		case found.handle != nil:
			o.handle, o.release = found.handle, found.release
			if o.opened != nil {
				close(o.opened)
				o.joined()
			}
			o.reader, err = found.handle.OpenOutput(o.offset)
			if errors.Is(err, os.ErrNotExist) {
				return o.incomplete(reasonOutputGone), nil
			}
			return nil, err
		case found.outcome != nil && found.outcome.OutputKnown && o.offset == 0:
			return relay.End{StreamEnd: wire.StreamEnd{State: jobState(*found.outcome), Complete: true, Reason: reasonNeverOutput}}, nil
		case found.outcome != nil:
			return o.incomplete(reasonOutputGone), nil
		case !o.follow && found.known:
			return o.incomplete(reasonNotStarted), nil
		case !o.follow:
			return o.incomplete(reasonOutputGone), nil
		}
		expired := patience.C
		if found.known {
			expired = nil // it waits for its device
		}
		select {
		case <-wake:
		case <-expired:
			return o.incomplete(reasonOutputGone), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// found is what the host has of a job: nothing, an order that has not begun, an
// outcome without a process, or a handle. Release gives the record back to the
// janitor.
type found struct {
	known   bool
	outcome *wire.Outcome
	handle  *shim.Handle
	release func()
}

// find looks a job up under its latest lease; wake is closed when jobs change.
func (a *agent) find(number uint64) (found, <-chan struct{}, error) {
	a.mu.Lock()
	wake := a.wake
	var latest *job
	for _, j := range a.jobs {
		if j.key.job == number && (latest == nil || j.lease > latest.lease) {
			latest = j
		}
	}
	if latest != nil {
		defer a.mu.Unlock()
		f := found{known: true, outcome: latest.outcome, handle: latest.handle}
		if f.handle != nil {
			f.release = a.janitor.hold(latest.key)
		}
		return f, wake, nil
	}
	a.mu.Unlock()
	k, release := a.janitor.holdLatest(number)
	if release == nil {
		return found{}, wake, nil
	}
	j, err := a.load(k, true)
	if err != nil || j.handle == nil {
		release()
		if err != nil && !errors.Is(err, errNotBegun) {
			return found{}, wake, err
		}
		if j == nil {
			return found{}, wake, nil
		}
		return found{known: true, outcome: j.outcome}, wake, nil
	}
	handle := j.handle
	return found{known: true, outcome: j.outcome, handle: handle, release: func() { handle.Close(); release() }}, wake, nil
}
