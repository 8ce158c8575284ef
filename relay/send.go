package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rcd/wire"
)

// ErrReaderGone says that the link ended before the stream did: the reader
// closed it, or it broke, between which a sender cannot tell.
var ErrReaderGone = errors.New("reader gone")

// codeSourceFailed is the code a reader is told when the bytes cannot be had
// for a reason that is not the job's: another try may get them.
const codeSourceFailed = "source_failed"

// watchBuffer holds what a reader sends, a piece of input at the most in the
// usual case.
const watchBuffer = 4 << 10

// MovedError says that this node no longer serves the stream. A sender whose
// context ends with it as the cause, or whose source fails with it, passes it
// on; Receive returns it. Hint is the address to ask next, or empty.
type MovedError struct{ Hint string }

// Error returns a sentence with the hint.
func (e *MovedError) Error() string {
	if e.Hint == "" {
		return "this node no longer serves the stream"
	}
	return "this node no longer serves the stream, ask " + e.Hint
}

// SendOptions are what a sender may be told beyond the necessary.
type SendOptions struct {
	// Acked, if set, is called with every offset before which the reader says
	// it has taken everything: rising, every 2 s and every 128 KiB, from a goroutine of
	// Send's that it must not block.
	Acked func(offset int64)
	// Input, if set, is called with every frame of input (FrameInput,
	// FrameResize, FrameEOF), from the same goroutine; the payload is valid until
	// it returns. An error ends the Send with it. Without Input such a frame
	// breaks the protocol.
	Input func(frame wire.Frame) error
}

// Send writes the records of source, which was opened at offset from, to conn
// until the End, and owns conn: when Send returns it is closed and nothing of
// Send or of the source runs any more.
//
// Data is coalesced up to 32 KiB or 5 ms, except that what comes after a pause
// goes out at once; after 2 s without anything to send goes a keepalive. A
// reader that is slow but alive is held back for as long as it likes: every
// byte from it, and Receive sends some each 2 s whatever its sink does, gives
// a blocked write another 30 s. A reader silent for 30 s is given up.
//
// It returns nil once the End has been handed to conn, which does not say that
// it was read; ErrReaderGone, ErrPeerSilent or ErrProtocol for the link; the source's error, after the reader has been told; or the cause with
// which ctx ended. A reader is told of a *wire.StreamError as it is, of a
// *MovedError as moved, and of anything else as an error that is worth a retry.
func Send(ctx context.Context, conn Conn, from int64, source Source, opts SendOptions) error {
	l := newLink(conn, readerSilence)
	s := &sender{link: l, opts: opts}
	within, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		cancel(s.watch())
		l.close() // frees a blocked write
	}()
	unpart := context.AfterFunc(ctx, func() { l.part(partingGrace) })

	g := newGather(within, source, from)
	err := s.pump(within, g)
	if s.broken && within.Err() != nil {
		// The write failed because ctx ended or the watcher closed the link:
		// that is the reason to report.
		err = context.Cause(within)
	}
	linger := endLinger
	if err != nil {
		linger = partingGrace
		s.tell(err)
	}
	if !s.broken {
		// The reader closes first; see endLinger.
		timer := time.NewTimer(linger)
		select {
		case <-watched:
		case <-timer.C:
		}
		timer.Stop()
	}
	cancel(nil)
	l.close()
	unpart()
	g.stop()
	<-watched
	return err
}

// sender is the writing side of one Send.
type sender struct {
	link   *link
	opts   SendOptions
	buf    []byte
	broken bool // a write failed: what the reader got of it is not known
}

// pump sends until the End is out, or something fails.
func (s *sender) pump(ctx context.Context, g *gather) error {
	for {
		record, err := g.next(ctx, time.Now().Add(keepAliveEvery))
		if err != nil {
			return err
		}
		var frame wire.Frame
		switch r := record.(type) {
		case nil:
			frame = wire.Frame{Type: wire.FrameKeepAlive}
		case Data:
			frame = wire.Frame{Type: wire.FrameData, Stream: r.Stream, Offset: r.Offset, Payload: r.Bytes}
		case Gap:
			frame = wire.GapFrame(r.From, wire.StreamGap{To: r.To, Cause: r.Cause})
		case End:
			return s.write(wire.EndFrame(r.Length, r.StreamEnd))
		}
		if err := s.write(frame); err != nil {
			return err
		}
	}
}

func (s *sender) write(frame wire.Frame) error {
	var err error
	if s.buf, err = wire.AppendFrame(s.buf[:0], frame); err != nil {
		return fmt.Errorf("source: %w: %w", ErrProtocol, err)
	}
	if _, err := s.link.Write(s.buf); err != nil {
		s.broken = true
		return s.gone(err)
	}
	return nil
}

// gone turns a failed read or write into what it says about the reader. Which
// of the two notices first is chance, so both say the same.
func (s *sender) gone(err error) error {
	if err = s.link.explain(err); errors.Is(err, ErrPeerSilent) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrReaderGone, err)
}

// tell sends the reader a last frame that says why the stream breaks off.
func (s *sender) tell(err error) {
	var refusal *wire.StreamError
	var moved *MovedError
	switch {
	case s.broken, errors.Is(err, ErrReaderGone), errors.Is(err, ErrPeerSilent):
		s.broken = true // nobody to tell
		return
	case errors.As(err, &refusal):
		err = s.write(wire.ErrorFrame(*refusal))
	case errors.As(err, &moved):
		err = s.write(wire.MovedFrame(wire.StreamMoved{Hint: moved.Hint}))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		err = s.write(wire.MovedFrame(wire.StreamMoved{}))
	default:
		err = s.write(wire.ErrorFrame(wire.StreamError{Code: codeSourceFailed, Message: err.Error(), Retry: true}))
	}
	s.broken = err != nil
}

// watch reads what the reader sends until the link ends, and says how it did.
func (s *sender) watch() error {
	buf := make([]byte, watchBuffer)
	for {
		frame, err := wire.ReadFrame(s.link, buf)
		switch {
		case isFrameError(err):
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		case err != nil:
			return s.gone(err)
		}
		if cap(frame.Payload) > cap(buf) { // somebody writes in bulk
			buf = frame.Payload
		}
		switch frame.Type {
		case wire.FrameKeepAlive:
		case wire.FrameAck:
			if s.opts.Acked != nil && frame.Stream == wire.StreamNone {
				s.opts.Acked(frame.Offset)
			}
		case wire.FrameInput, wire.FrameResize, wire.FrameEOF:
			if s.opts.Input == nil { // this stream has no writer
				return fmt.Errorf("%w: %s frame from a reader", ErrProtocol, frame.Type)
			}
			if err := s.opts.Input(frame); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: %s frame from a reader", ErrProtocol, frame.Type)
		}
	}
}

// isFrameError tells a peer that speaks wrongly from a link that broke.
func isFrameError(err error) bool {
	return errors.Is(err, wire.ErrFrameVersion) || errors.Is(err, wire.ErrFrameUnknown) ||
		errors.Is(err, wire.ErrFrameTooLarge) || errors.Is(err, wire.ErrFrameMalformed)
}
