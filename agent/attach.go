package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"rcd/agent/shim"
	"rcd/relay"
	"rcd/wire"
)

// seat is one stream that is attached to a job: its reader's word on how far it
// is, and if it has the input the way of that to the job's shim.
type seat struct {
	agent  *agent
	source *output
	conn   net.Conn
	open   wire.StreamOpen
	writes bool

	mu     sync.Mutex
	window int64       // guarded by mu; how much input may come that is not acked
	input  *shim.Input // guarded by mu; nil before the shim has let it in, and without input
	over   bool        // guarded by mu; what comes yet is for nobody
}

// serveAttached serves a stream that attaches to a job's terminal or pipe:
// output as ever, and input the other way if it names a writer. Whoever writes
// must wait for the first ack of input, which says where it goes on and under
// which number; a higher number there says that another has taken over.
func (a *agent) serveAttached(ctx context.Context, conn net.Conn, source *output, open wire.StreamOpen) {
	source.opened = make(chan struct{})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &seat{agent: a, source: source, conn: conn, open: open, writes: open.TakeOver || open.Writer > 0, window: wire.InputWindow}
	source.silent = open.InputOnly
	// Everything before the offset has reached the reader, who perhaps could not
	// say so over the link before, and has no more to say until there is more.
	source.joined = func() { s.acked(source.offset) }
	leave := a.sit(source.job, s.writes && !open.InputOnly)
	defer func() {
		leave()
		s.acked(0) // the others count now, if it was the last that writes
	}()
	options := relay.SendOptions{Acked: s.acked}
	feeding := make(chan struct{})
	if s.writes {
		options.Input = s.take
		go func() {
			defer close(feeding)
			if err := s.feed(ctx); err != nil {
				cancel(err)
			}
		}()
	} else {
		close(feeding)
	}
	err := relay.Send(ctx, conn, source.offset, source, options)
	cancel(nil)
	<-feeding
	if err != nil {
		a.log.Debug("attached stream ended", "job", source.job, "error", err)
	}
}

// acked lets the job go on. While somebody writes only the writer counts: it
// is the writer's screen that must show all, and others only look on.
func (s *seat) acked(offset int64) {
	select {
	case <-s.source.opened:
	default:
		return
	}
	switch {
	case s.open.InputOnly:
	case s.writes && offset > 0:
		s.source.handle.Consumed(offset)
	default:
		s.source.handle.Consumed(s.agent.lookedOn(s.source.job, offset))
	}
}

// feed opens the input and acks what the shim has of it. An error is what to
// end the stream with.
func (s *seat) feed(ctx context.Context) error {
	handle, ok := s.source.waitOpened(ctx)
	if !ok {
		return nil
	}
	in, err := s.enter(ctx, handle)
	if err != nil {
		holder := s.open.Writer
		if holder > 0 {
			holder++ // who it is does not matter to one who is not
		}
		return s.refuse(ctx, err, holder, 0)
	}
	defer in.Close()
	ack := wire.StreamAck{Writer: in.Writer()}
	s.mu.Lock()
	s.input = in
	if s.open.Window > 0 {
		s.window = grant(handle, s.open.Window)
		in.Widen(int(s.window))
		ack.Window = uint32(s.window)
	}
	s.mu.Unlock()
	at := in.Accepted()
	for {
		if err := wire.WriteFrame(s.conn, wire.AckFrame(wire.StreamStdin, at, ack)); err != nil {
			return nil // the reading side learns of it
		}
		next, err := in.WaitAccepted(ctx, at)
		if err != nil {
			return s.refuse(ctx, err, in.Holder(), next)
		}
		at = next
	}
}

// grant returns how much of the window that a writer asks for it gets. Nobody
// types more than the usual one to a terminal.
func grant(handle *shim.Handle, asked uint32) int64 {
	if handle.Spec().Stdio != shim.StdioPipe {
		return wire.InputWindow
	}
	return max(wire.InputWindow, min(int64(asked), wire.MaxInputWindow))
}

func (s *seat) enter(ctx context.Context, handle *shim.Handle) (*shim.Input, error) {
	if s.open.TakeOver {
		return handle.TakeInput(ctx)
	}
	return handle.Input(ctx, s.open.Writer)
}

// refuse tells the writer why there is no more input. The output goes on where
// that can be.
func (s *seat) refuse(ctx context.Context, err error, holder uint64, at int64) error {
	s.mu.Lock()
	s.over, s.input = true, nil // with what it holds; the stream may go on for long
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, shim.ErrOtherWriter) && holder == 0: // another took over at the same moment
		return &wire.StreamError{Code: "input_failed", Message: err.Error(), Retry: true}
	case errors.Is(err, shim.ErrOtherWriter):
		_ = wire.WriteFrame(s.conn, wire.AckFrame(wire.StreamStdin, at, wire.StreamAck{Writer: holder})) // or the link is gone
	case errors.Is(err, shim.ErrInputGone):
		_ = wire.WriteFrame(s.conn, wire.Frame{Type: wire.FrameEOF, Stream: wire.StreamStdin, Offset: at}) // the same
	case errors.Is(err, shim.ErrNoInput):
		return &wire.StreamError{Code: wire.CodeNotAttachable, Message: "the job takes no input"}
	default:
		return &wire.StreamError{Code: "input_failed", Message: err.Error(), Retry: true}
	}
	return nil
}

// take hands one frame of input on. It does not block: a writer keeps to the
// window, which is what the way to the shim holds.
func (s *seat) take(frame wire.Frame) error {
	s.mu.Lock()
	in, over, window := s.input, s.over, s.window
	s.mu.Unlock()
	switch {
	case over:
		return nil
	case in == nil:
		return fmt.Errorf("%w: %s frame before the first ack of input", relay.ErrProtocol, frame.Type)
	case frame.Offset+int64(len(frame.Payload)) > in.Accepted()+window:
		return fmt.Errorf("%w: more than %d bytes of input without an ack", relay.ErrProtocol, window)
	}
	var err error
	switch frame.Type {
	case wire.FrameResize:
		var size wire.StreamResize
		if size, err = frame.Resize(); err == nil {
			in.Resize(shim.Size{Cols: size.Cols, Rows: size.Rows})
		}
	case wire.FrameEOF:
		err = in.CloseInput(frame.Offset)
	default:
		err = in.Write(s.agent.ctx, frame.Offset, frame.Payload)
	}
	if errors.Is(err, shim.ErrInputOffset) || errors.Is(err, wire.ErrFrameMalformed) {
		return fmt.Errorf("%w: %w", relay.ErrProtocol, err)
	}
	return nil // feed says why the input is over
}
