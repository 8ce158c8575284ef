package shim

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// attachment is what the shim of a job has that is connected to somebody by a terminal or a pipe.
type attachment struct {
	readers readers // of the output, who hold the job back
	feeder  *feeder // of the input
}

// newAttachment returns nil for a log job.
func newAttachment(spec Spec, log *slog.Logger) (*attachment, error) {
	if spec.Stdio == StdioLog {
		return nil, nil
	}
	f, err := newFeeder(spec, log)
	if err != nil {
		return nil, err
	}
	return &attachment{feeder: f}, nil
}

// size is that of the job's terminal at the start.
func (a *attachment) size() Size {
	if a == nil {
		return Size{}
	}
	return a.feeder.sizeNow()
}

// end lets everybody know that there is no more input to be had.
func (a *attachment) end() {
	if a != nil {
		a.feeder.stop()
	}
}

// line is what one connection is for: an agent's statuses and orders, or once it is open a writer's input.
type line struct {
	open   bool
	writer uint64
	opened chan struct{} // gets a value once it is open
}

// attended takes what an agent says of an attached job's input and output, false if it is none of that or breaks the rules.
func (s *server) attended(l *line, m message) bool {
	if s.attached == nil {
		return false
	}
	f := s.attached.feeder
	switch {
	case m.Type == typeConsumed && m.Consumed != nil:
		s.attached.readers.advance(min(m.Consumed.Offset, s.board.now().Output))
	case m.Type == typeOpenInput && m.OpenInput != nil && !l.open:
		l.open, l.writer = true, m.OpenInput.Writer
		f.open(l.writer)
		l.opened <- struct{}{}
	case !l.open:
		return false
	case m.Type == typeInput && m.Input != nil:
		return f.take(l.writer, m.Input.Offset, m.Input.Data)
	case m.Type == typeEndInput && m.EndInput != nil:
		return f.end(l.writer, m.EndInput.Offset)
	case m.Type == typeResize && m.Resize != nil:
		f.resize(l.writer, Size{m.Resize.Cols, m.Resize.Rows})
	default:
		return false
	}
	return true
}

// tellInput tells a writer how its input stands, until that is over or the writer is gone.
func (s *server) tellInput(ctx context.Context, conn net.Conn, writer uint64) {
	still := time.NewTicker(keepalive)
	defer still.Stop()
	for {
		state, changed := s.attached.feeder.state(writer)
		if send(conn, message{Type: typeInputState, InputState: &state}) != nil || state.Code != "" {
			return
		}
		select {
		case <-changed:
		case <-still.C:
		case <-ctx.Done():
			return
		}
	}
}
