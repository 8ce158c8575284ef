package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// profile is how one kind of connection is tuned.
type profile struct {
	// write is how long a write may make no progress before the whole session
	// ends.
	write time.Duration
	// window is how much one stream may send before the peer has read it.
	window uint32
	// backlog is how many streams may wait to be accepted.
	backlog int
}

var (
	// controlProfile: one stream of small messages. Three seconds without
	// progress is longer than any pause of a healthy host and shorter than the
	// read deadline of the peer.
	controlProfile = profile{write: 3 * time.Second, window: 1 << 20, backlog: 8}
	// bulkProfile: many streams of output. The window carries 1 Gbit/s over
	// 30 ms.
	bulkProfile = profile{write: 30 * time.Second, window: 4 << 20, backlog: 256}
)

const (
	// writePiece is the most that goes out under one write deadline, so that
	// the deadline measures progress and not the size of a message.
	writePiece = 64 << 10
	// streamCloseTimeout ends a stream whose peer never closes its side.
	streamCloseTimeout = 30 * time.Second
)

// transport is one yamux session, which lives or dies as a whole.
type transport struct {
	session *yamux.Session
	wait    sync.WaitGroup // opens that outlived their caller
}

func newTransport(conn net.Conn, p profile, client bool, logger *slog.Logger) (*transport, error) {
	config := &yamux.Config{
		AcceptBacklog:          p.backlog,
		EnableKeepAlive:        false,
		KeepAliveInterval:      time.Minute, // unused, but zero is refused
		ConnectionWriteTimeout: p.write,
		MaxStreamWindowSize:    p.window,
		StreamOpenTimeout:      p.write,
		StreamCloseTimeout:     streamCloseTimeout,
		Logger:                 yamuxLog{logger},
	}
	guarded := &deadlineConn{Conn: conn, limit: p.write}
	build := yamux.Server
	if client {
		build = yamux.Client
	}
	session, err := build(guarded, config)
	if err != nil {
		return nil, fmt.Errorf("start yamux: %w", err)
	}
	return &transport{session: session}, nil
}

// close ends the session and every stream in it, and waits for its goroutines.
func (t *transport) close() {
	t.session.Close()
	t.wait.Wait()
}

func (t *transport) done() <-chan struct{} { return t.session.CloseChan() }

// accept returns the next stream that the peer opened.
func (t *transport) accept(ctx context.Context) (net.Conn, error) {
	s, err := t.session.AcceptStreamWithContext(ctx)
	if err != nil {
		t.judge(err)
		return nil, err
	}
	return &stream{s, t}, nil
}

// open returns a new stream. yamux may block in there for as long as a write
// may, so a caller whose ctx ends leaves earlier and the stream is closed
// behind it.
func (t *transport) open(ctx context.Context) (net.Conn, error) {
	type result struct {
		s   *yamux.Stream
		err error
	}
	opened := make(chan result, 1)
	t.wait.Add(1)
	go func() {
		defer t.wait.Done()
		s, err := t.session.OpenStream()
		if err == nil && ctx.Err() != nil {
			s.Close()
			err = ctx.Err()
		}
		opened <- result{s, err}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			t.judge(r.err)
			return nil, r.err
		}
		return &stream{r.s, t}, nil
	case <-ctx.Done():
		t.wait.Add(1)
		go func() {
			defer t.wait.Done()
			if r := <-opened; r.err == nil {
				r.s.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// judge ends the session after a write timeout: yamux itself would go on with
// a half-written frame, and the peer would wait for ever.
func (t *transport) judge(err error) {
	if errors.Is(err, yamux.ErrConnectionWriteTimeout) {
		t.session.Close()
	}
}

// stream is one stream that ends its session when a write of the session
// timed out.
type stream struct {
	*yamux.Stream
	owner *transport
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	if err != nil {
		s.owner.judge(err)
	}
	return n, err
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	if err != nil {
		s.owner.judge(err)
	}
	return n, err
}

func (s *stream) Close() error {
	err := s.Stream.Close()
	if err != nil {
		s.owner.judge(err)
	}
	return err
}

// deadlineConn gives each piece of each write a deadline. A missed one is an
// error to yamux, which ends the session.
type deadlineConn struct {
	net.Conn
	limit time.Duration
}

func (c *deadlineConn) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		piece := b[written:min(len(b), written+writePiece)]
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(piece)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// yamuxLog hands yamux's messages on as debugging detail: each of them is
// followed by an error that we act on and log ourselves.
type yamuxLog struct{ logger *slog.Logger }

func (l yamuxLog) Print(v ...any) { l.logger.Debug("yamux", "text", fmt.Sprint(v...)) }
func (l yamuxLog) Printf(format string, v ...any) {
	l.logger.Debug("yamux", "text", fmt.Sprintf(format, v...))
}
func (l yamuxLog) Println(v ...any) { l.logger.Debug("yamux", "text", fmt.Sprint(v...)) }
