package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// serveLogs copies a job's output as plain bytes.
func (s *server) serveLogs(w http.ResponseWriter, r *http.Request, want output) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // frees the source
	source, err := s.open(ctx, want)
	if err != nil {
		return err
	}
	s.outputHeaders(w, want)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := newLogWriter(w)
	w.WriteHeader(http.StatusOK)
	if err := out.flush(); err != nil { // a follower of a silent job sees at once that it is open
		return err
	}
	end, err := relay.Copy(ctx, out, want.offset, source, out.flush)
	if err != nil {
		return err
	}
	rest, plain := source.(*patient)
	if end.Complete || plain && !rest.gaveUp && !want.job.State.Terminal() {
		return nil // whole, or what there was when it was asked for
	}
	return out.missing(s.latest(ctx, want.job), end)
}

// latest returns the row of a job as this node has it now.
func (s *server) latest(ctx context.Context, job *model.Job) *model.Job {
	if v, err := s.viewOnce(ctx, ReadOptions{Stale: true}); err == nil {
		if row := v.Job(job.Number); row != nil {
			return row
		}
	}
	return job
}

// logWriter writes plain bytes, each write under a deadline: a reader that
// takes nothing for that long is cut off, which it can see, and comes again at
// its offset.
type logWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	last    byte
}

func newLogWriter(w http.ResponseWriter) *logWriter {
	return &logWriter{w: w, control: http.NewResponseController(w), last: '\n'}
}

// Write writes p within answerDeadline.
func (l *logWriter) Write(p []byte) (int, error) {
	_ = l.control.SetWriteDeadline(time.Now().Add(answerDeadline))
	if len(p) > 0 {
		l.last = p[len(p)-1]
	}
	return l.w.Write(p)
}

func (l *logWriter) flush() error {
	_ = l.control.SetWriteDeadline(time.Now().Add(answerDeadline))
	return l.control.Flush()
}

// missing marks an output as incomplete, in the form that gaps have, unless a
// gap up to the stated length has said so.
func (l *logWriter) missing(job *model.Job, end relay.End) error {
	amount := "an unknown number of bytes"
	if job.OutputKnown {
		if uint64(end.Length) >= job.OutputLength {
			return nil
		}
		amount = fmt.Sprintf("%d bytes", job.OutputLength-uint64(end.Length))
	}
	cause := strings.Join(strings.Fields(end.Reason), " ")
	if cause == "" {
		cause = "the host of the job does not have them"
	}
	line := fmt.Sprintf("[rc: %s missing: %s]\n", amount, cause)
	if l.last != '\n' {
		line = "\n" + line
	}
	if _, err := l.Write([]byte(line)); err != nil {
		return err
	}
	return l.flush()
}

// serveStream sends a job's output in frames.
func (s *server) serveStream(w http.ResponseWriter, r *http.Request, want output) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	source, err := s.open(ctx, want)
	if err != nil {
		return err
	}
	s.outputHeaders(w, want)
	conn, err := relay.Upgrade(w, r)
	if errors.Is(err, relay.ErrUpgradeRequired) {
		return errUpgradeRequired
	}
	takenOver(w)
	if err != nil {
		return err
	}
	err = relay.Send(ctx, conn, want.offset, source, relay.SendOptions{})
	if err != nil {
		s.Logger.Debug("stream ended early", "job", want.job.ID(), "err", err)
	}
	return nil
}

// patient is a source that a reader who does not follow can bear: it ends when
// the rest does not come.
type patient struct {
	relay.Source
	next   int64
	job    *model.Job
	gaveUp bool
}

// Next returns the next record, or an incomplete End after restWithin. The
// source is then not called again, which ends with its context.
func (p *patient) Next(ctx context.Context) (relay.Record, error) {
	within, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	record, err := p.Source.Next(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		p.gaveUp = true
		return relay.End{Length: p.next, StreamEnd: wire.StreamEnd{
			State:  p.job.State.String(),
			Reason: "the host of the job does not give it now, ask again later",
		}}, nil
	}
	switch r := record.(type) {
	case relay.Data:
		p.next = max(p.next, r.Offset+int64(len(r.Bytes)))
	case relay.Gap:
		p.next = max(p.next, r.To)
	}
	return record, err
}

// open opens the output on this node, which leads or has a copy.
func (s *server) open(ctx context.Context, want output) (relay.Source, error) {
	source, err := s.backend.Output(ctx, want.job, want.offset, want.follow)
	if err != nil || want.follow {
		return source, err
	}
	return &patient{Source: source, next: want.offset, job: want.job}, nil
}

func (s *server) outputHeaders(w http.ResponseWriter, want output) {
	w.Header().Set(wire.HeaderIndex, strconv.FormatUint(want.index, 10))
	w.Header().Set(wire.HeaderLeader, s.backend.Leader().ID)
	w.Header().Set(wire.HeaderLogOffset, strconv.FormatInt(want.offset, 10))
}
