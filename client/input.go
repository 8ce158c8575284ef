package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"

	"rcd/internal/backlog"
	"rcd/wire"
)

const (
	// inputPiece is how much input goes into one frame, at most.
	inputPiece = 64 << 10
	// leastRoom is for how much of it there has to be room before more is read,
	// so that bulk does not go out in crumbs.
	leastRoom = 8 << 10
)

// input is what this process writes to a job: everything that the job's host
// has not acked, and what of it the present link has been given.
type input struct {
	options AttachOptions
	nudge   chan struct{} // holds one wake-up for send
	room    chan struct{} // holds one for read

	mu     sync.Mutex    // guards what follows
	conn   net.Conn      // the present link, nil while there is none
	known  bool          // conn's first ack has come
	writer uint64        // our number, 0 until told
	base   int64         // offset of buf
	window int64         // how much behind base conn takes; more of buf may be left from an earlier link
	sent   int64         // offset before which all has been written to conn
	resize bool          // conn has yet to be told the size
	ended  bool          // In has returned io.EOF
	told   bool          // conn has been told that
	over   bool          // nobody takes our input any more
	buf    backlog.Bytes // not acked, at most window and what an earlier one let in
}

func newInput(o AttachOptions) *input {
	return &input{options: o, nudge: make(chan struct{}, 1), room: make(chan struct{}, 1), window: wire.InputWindow}
}

// wake leaves a token for the one goroutine that waits on ch.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// ask adds to a request for a link who it is that writes, if anybody.
func (i *input) ask(q url.Values) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.options.In == nil || i.over:
		return
	case i.writer == 0:
		q.Set("take_over", "true")
	default:
		q.Set("writer", strconv.FormatUint(i.writer, 10))
	}
	q.Set("window", strconv.Itoa(wire.MaxInputWindow))
	if i.options.Submitter != "" {
		q.Set("submitter", i.options.Submitter)
	}
}

// linked is called with each new link. Nothing is written to it before its
// first ack, which says where input goes on.
func (i *input) linked(conn net.Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conn, i.known, i.resize, i.told = conn, false, i.options.Size != nil, false
	i.window = wire.InputWindow // another agent, perhaps, or the same in an earlier release
}

// heard takes what the job's host says of the input.
func (i *input) heard(frame wire.Frame) {
	if i.options.In == nil {
		return
	}
	taken := false
	i.mu.Lock()
	if frame.Type == wire.FrameEOF {
		i.over = true
	} else if ack, err := frame.Ack(); err == nil && !i.over {
		taken = !i.acked(frame.Offset, ack)
		i.over = taken
	}
	i.mu.Unlock()
	wake(i.nudge)
	wake(i.room)
	if taken && i.options.TakenOver != nil {
		i.options.TakenOver()
	}
}

// acked takes an ack; false if another writes. The caller holds mu.
func (i *input) acked(offset int64, ack wire.StreamAck) bool {
	if i.writer == 0 {
		i.writer, i.base = ack.Writer, offset
	}
	done := offset - i.base
	if ack.Writer != i.writer || done > int64(i.buf.Len()) {
		return false
	}
	if done > 0 {
		i.buf.Drop(int(done))
		i.base = offset
	}
	i.window = max(wire.InputWindow, min(int64(ack.Window), wire.MaxInputWindow))
	if !i.known {
		i.known, i.sent = true, i.base
	}
	i.sent = max(i.sent, i.base)
	return true
}

// read takes input in, as much as may be under way.
func (i *input) read(ctx context.Context) error {
	p := make([]byte, inputPiece)
	for {
		i.mu.Lock()
		room, over := int(i.window)-i.buf.Len(), i.over
		i.mu.Unlock()
		if over {
			room = inputPiece // for what is dropped
		}
		if room < leastRoom {
			select {
			case <-i.room:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		n, err := i.options.In(ctx, p[:min(room, inputPiece)]) // what comes when it is over is dropped
		i.mu.Lock()
		if !i.over {
			i.buf.Add(p[:n])
		}
		i.ended = i.ended || errors.Is(err, io.EOF)
		i.mu.Unlock()
		wake(i.nudge)
		switch {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// send writes to the present link what it has yet to be given.
func (i *input) send(ctx context.Context) {
	var buf []byte
	for {
		conn, frame, due := i.due()
		if due {
			var err error
			if buf, err = wire.AppendFrame(buf[:0], frame); err == nil {
				_, err = conn.Write(buf)
			}
			if err == nil {
				continue
			}
			i.mu.Lock()
			if i.conn == conn {
				i.conn = nil // the reading side learns of it and makes the next
			}
			i.mu.Unlock()
		}
		select {
		case <-i.nudge:
		case <-ctx.Done():
			return
		}
	}
}

// due returns the next frame and notes that it goes out.
func (i *input) due() (net.Conn, wire.Frame, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.conn == nil || !i.known || i.over {
		return nil, wire.Frame{}, false
	}
	if i.resize {
		i.resize = false
		if cols, rows, ok := i.options.Size(); ok {
			return i.conn, wire.ResizeFrame(i.sent, wire.StreamResize{Rows: rows, Cols: cols}), true
		}
	}
	end := i.base + int64(i.buf.Len())
	allowed := min(end, i.base+i.window)
	switch {
	case i.sent < allowed:
		from := i.sent
		piece := i.buf.From(int(from-i.base), int(min(inputPiece, allowed-from)))
		i.sent += int64(len(piece))
		return i.conn, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Offset: from, Payload: piece}, true
	case i.ended && !i.told && i.sent == end:
		i.told = true
		return i.conn, wire.Frame{Type: wire.FrameEOF, Stream: wire.StreamStdin, Offset: end}, true
	}
	return nil, wire.Frame{}, false
}

// watchSize has each new size of the local terminal sent.
func (i *input) watchSize(ctx context.Context) {
	for {
		select {
		case <-i.options.Resized:
			i.mu.Lock()
			i.resize = i.options.Size != nil
			i.mu.Unlock()
			wake(i.nudge)
		case <-ctx.Done():
			return
		}
	}
}
