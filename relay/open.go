package relay

import (
	"fmt"
	"io"
	"time"

	"rcd/wire"
)

// openWithin bounds the one frame before a stream: both sides are already
// connected, and what would take longer is dead.
const openWithin = senderSilence

// Ask opens a stream on conn that no HTTP request has opened: it writes the
// Open frame that asks for output from offset on. Receive follows. After an
// error conn is of no more use, and the caller closes it.
func Ask(conn Conn, offset int64, open wire.StreamOpen) error {
	if err := conn.SetWriteDeadline(time.Now().Add(openWithin)); err != nil {
		return fmt.Errorf("ask for output of job %s: %w", open.Job, err)
	}
	if err := wire.WriteFrame(conn, wire.OpenFrame(offset, open)); err != nil {
		return fmt.Errorf("ask for output of job %s: %w", open.Job, err)
	}
	return nil
}

// Asked reads the Open frame that Ask wrote and not a byte more. Send or Refuse
// follows. Anything else than an Open is ErrProtocol. After an error
// conn is of no more use, and the caller closes it.
func Asked(conn Conn) (offset int64, open wire.StreamOpen, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(openWithin)); err != nil {
		return 0, wire.StreamOpen{}, fmt.Errorf("read what is asked for: %w", err)
	}
	frame, err := wire.ReadFrame(conn, nil)
	switch {
	case isFrameError(err):
		return 0, wire.StreamOpen{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	case err != nil:
		return 0, wire.StreamOpen{}, fmt.Errorf("read what is asked for: %w", err)
	case frame.Type != wire.FrameOpen:
		return 0, wire.StreamOpen{}, fmt.Errorf("%w: %s frame before any open", ErrProtocol, frame.Type)
	}
	if open, err = frame.Open(); err != nil {
		return 0, wire.StreamOpen{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return frame.Offset, open, nil
}

// Refuse answers an Open with an error instead of a stream: the other side's
// Receive returns refusal. It owns conn and closes it, once the other side has
// or after 1 s.
func Refuse(conn Conn, refusal wire.StreamError) error {
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(openWithin))
	if err := wire.WriteFrame(conn, wire.ErrorFrame(refusal)); err != nil {
		return err
	}
	// The reader closes first; see endLinger. What it sends meanwhile, a
	// keepalive at most, is of no interest.
	_ = conn.SetReadDeadline(time.Now().Add(partingGrace))
	_, _ = io.Copy(io.Discard, conn)
	return nil
}
