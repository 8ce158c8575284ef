package relay

import (
	"bufio"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"rcd/wire"
)

// readBuffer is what Receive reads at once: two coalesced frames.
const readBuffer = 64 << 10

// ackAfter is how much is taken at the most before the sender hears of it: a
// job that its readers hold back stands still with 1 MiB unread, and must not
// wait for the next of the acks that come every 2 s.
const ackAfter = 128 << 10

// SinkError wraps what a sink returned, so that nobody takes it for a failure
// of the link: to dial again does not help.
type SinkError struct{ Err error }

// Error returns the sink's error with where it came from.
func (e *SinkError) Error() string { return fmt.Sprintf("deliver output: %v", e.Err) }

// Unwrap returns the sink's error.
func (e *SinkError) Unwrap() error { return e.Err }

// Receive reads one link and gives its records to sink, from offset from on and
// each exactly once: what came before is trimmed, what lies beyond the next
// offset is refused. It owns conn: when Receive returns it is closed and
// nothing of Receive runs any more. While it runs it sends an ack or a
// keepalive every 2 s, also while the sink blocks, and an ack after each
// 128 KiB.
//
// It returns the offset to go on at, everything before which the sink has
// taken, and either the End with a nil error (then the sink has taken it, and
// next is its Length) or the reason why the link ended before: ErrPeerSilent
// after 5 s without a byte, ErrLinkLost, ErrProtocol, a *MovedError, a
// *wire.StreamError from the other side, a *SinkError, or the cause with which
// ctx ended. Follow knows which of these to dial again after.
func Receive(ctx context.Context, conn Conn, from int64, sink Sink) (next int64, end End, err error) {
	return receive(ctx, conn, from, sink, func() {}, nil)
}

// receive is Receive; contact is called at each frame that came, input as
// FollowOptions.Input.
func receive(ctx context.Context, conn Conn, from int64, sink Sink, contact func(), input func(wire.Frame)) (int64, End, error) {
	l := newLink(conn, senderSilence)
	unwatch := context.AfterFunc(ctx, l.close)
	r := &receiver{link: l, at: cursor{next: from}, sink: sink, contact: contact, input: input, far: make(chan struct{}, 1)}
	r.taken.Store(from)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		r.answer(stop)
	}()
	end, err := r.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	unwatch()
	close(stop)
	l.close()
	<-stopped
	return r.at.next, end, err
}

// receiver is the reading side of one Receive.
type receiver struct {
	link    *link
	at      cursor
	sink    Sink
	contact func()
	input   func(wire.Frame) // nil: whoever receives sends no input
	taken   atomic.Int64     // at.next, for the goroutine that acks
	far     chan struct{}    // holds one wake-up for that goroutine: an ack is due
	told    int64            // taken at the last such wake-up
}

func (r *receiver) run(ctx context.Context) (End, error) {
	in := bufio.NewReaderSize(r.link, readBuffer)
	buf := make([]byte, 4<<10) // grows to the largest frame that comes
	for {
		frame, err := wire.ReadFrame(in, buf)
		switch {
		case isFrameError(err):
			return End{}, fmt.Errorf("%w: %w", ErrProtocol, err)
		case err != nil:
			return End{}, r.link.explain(err)
		}
		if cap(frame.Payload) > cap(buf) {
			buf = frame.Payload
		}
		r.contact()
		if r.input != nil && (frame.Type == wire.FrameAck && frame.Stream == wire.StreamStdin || frame.Type == wire.FrameEOF) {
			r.input(frame)
			continue
		}
		record, err := recordOf(frame)
		if err != nil {
			return End{}, err
		}
		if record == nil {
			continue
		}
		if record, err = r.at.admit(record); err != nil {
			return End{}, err
		}
		if record == nil {
			continue
		}
		if err := r.sink.Take(ctx, record); err != nil {
			return End{}, &SinkError{Err: err}
		}
		r.at.advance(record)
		r.taken.Store(r.at.next)
		if r.at.next-r.told >= ackAfter {
			r.told = r.at.next
			signal(r.far)
		}
		if end, isEnd := record.(End); isEnd {
			return end, nil
		}
	}
}

// answer tells the sender that somebody is there, and how far. It stops
// quietly when it cannot write: the reading side learns soon enough, and may
// still find the rest of the stream in its buffers.
func (r *receiver) answer(stop <-chan struct{}) {
	ticker := time.NewTicker(keepAliveEvery)
	defer ticker.Stop()
	acked := r.taken.Load()
	for {
		select {
		case <-ticker.C:
		case <-r.far:
		case <-stop:
			return
		}
		frame := wire.Frame{Type: wire.FrameKeepAlive}
		if taken := r.taken.Load(); taken > acked {
			acked = taken
			frame = wire.AckFrame(wire.StreamNone, taken, wire.StreamAck{})
		}
		if err := wire.WriteFrame(r.link, frame); err != nil {
			return
		}
	}
}

// recordOf returns what a frame carries, nil for one that carries nothing, or
// as an error what the other side says about the stream.
func recordOf(f wire.Frame) (Record, error) {
	wrong := func(err error) error { return fmt.Errorf("%w: %w", ErrProtocol, err) }
	switch f.Type {
	case wire.FrameData:
		return Data{Offset: f.Offset, Stream: f.Stream, Bytes: f.Payload}, nil
	case wire.FrameGap:
		gap, err := f.Gap()
		if err != nil {
			return nil, wrong(err)
		}
		return Gap{From: f.Offset, To: gap.To, Cause: gap.Cause}, nil
	case wire.FrameEnd:
		end, err := f.End()
		if err != nil {
			return nil, wrong(err)
		}
		return End{Length: f.Offset, StreamEnd: end}, nil
	case wire.FrameMoved:
		moved, err := f.Moved()
		if err != nil {
			return nil, wrong(err)
		}
		return nil, &MovedError{Hint: moved.Hint}
	case wire.FrameError:
		failure, err := f.Failure()
		if err != nil {
			return nil, wrong(err)
		}
		return nil, &failure
	case wire.FrameKeepAlive, wire.FrameAck:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %s frame from a sender", ErrProtocol, f.Type)
}
