package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"rcd/wire"
)

const (
	// bytesWait is how long OpenStream waits for a bytes session that it had to
	// ask for.
	bytesWait = 3 * time.Second
	// bytesIdle is how long a bytes session without a stream is kept.
	bytesIdle = time.Minute
	// bytesAskAgain is how long callers share one order for a bytes session: an
	// agent that is asked twice dials twice.
	bytesAskAgain = time.Second
	// maxStreams bounds the streams of one bytes session.
	maxStreams = 1024
)

// ErrTooManyStreams: the host's bytes session carries as many as it may.
var ErrTooManyStreams = errors.New("too many streams to the host are open")

// errIdle ends a bytes session that nobody uses.
var errIdle = errors.New("no stream in use")

// bulkSession is one agent's bytes session on the leader.
type bulkSession struct {
	hub      *Hub
	instance string
	t        *transport
	cancel   context.CancelCauseFunc

	// Guarded by hub.mu.
	streams int
	lastUse time.Time
}

// ServeBytes serves one accepted bytes connection until it ends, and closes it.
// peerHost is as for ServeControl. The session is used by OpenStream; it ends
// with the epoch, when the host's agent process is replaced, when a newer one
// of the host has come, or after a minute without a stream.
func (h *Hub) ServeBytes(ctx context.Context, conn net.Conn, peerHost string) error {
	defer conn.Close()
	t, err := newTransport(conn, bulkProfile, false, h.log)
	if err != nil {
		return err
	}
	defer t.close()
	hello, err := readBytesHello(ctx, t)
	if err != nil {
		return fmt.Errorf("bytes session of %q: %w", peerHost, err)
	}
	role, _ := h.backend.Role()
	if !hostAllowed(peerHost, hello.Host) || !role.Leading || role.Term != hello.Term {
		return fmt.Errorf("bytes session of %q for host %q and term %d is not for this leader", peerHost, hello.Host, hello.Term)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	defer context.AfterFunc(role.Epoch, func() { cancel(errEpochEnded) })()
	b := &bulkSession{hub: h, instance: hello.Instance, t: t, cancel: cancel, lastUse: time.Now()}
	if !h.attachBytes(hello, b) {
		return fmt.Errorf("bytes session of %q: %w", hello.Host, ErrNotAttached)
	}
	defer h.detachBytes(hello.Host, b)
	return b.idleOut(ctx, hello.Host)
}

func readBytesHello(ctx context.Context, t *transport) (wire.BytesHello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := t.accept(ctx)
	if err != nil {
		return wire.BytesHello{}, fmt.Errorf("accept first stream: %w", err)
	}
	defer conn.Close()
	in := &messages{conn: conn}
	msg, err := in.receive(helloTimeout)
	if err != nil {
		return wire.BytesHello{}, fmt.Errorf("read bytes hello: %w", err)
	}
	if msg.BytesHello == nil {
		return wire.BytesHello{}, fmt.Errorf("read bytes hello: got a %s", describe(msg))
	}
	return *msg.BytesHello, nil
}

func (h *Hub) attachBytes(hello wire.BytesHello, b *bulkSession) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.hosts[hello.Host]
	if e == nil || e.control == nil || e.instance != hello.Instance {
		return false
	}
	if e.bulk != nil {
		e.bulk.cancel(errReplaced)
	}
	e.bulk = b
	if e.bulkArrived != nil {
		close(e.bulkArrived)
		e.bulkArrived = nil
	}
	return true
}

func (h *Hub) detachBytes(host string, b *bulkSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.hosts[host]; e != nil && e.bulk == b {
		e.bulk = nil
	}
}

// idleOut waits until the session ends or has been idle for too long.
func (b *bulkSession) idleOut(ctx context.Context, host string) error {
	timer := time.NewTimer(bytesIdle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.t.done():
			return errors.New("bytes connection ended")
		case <-timer.C:
			left := b.idleLeft(host)
			if left <= 0 {
				return errIdle
			}
			timer.Reset(left)
		}
	}
}

// idleLeft returns how long the session may still be kept, and takes it out of
// use in the same step when that is over.
func (b *bulkSession) idleLeft(host string) time.Duration {
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	if b.streams > 0 {
		return bytesIdle
	}
	left := bytesIdle - time.Since(b.lastUse)
	if e := b.hub.hosts[host]; left <= 0 && e != nil && e.bulk == b {
		e.bulk = nil
	}
	return left
}

// OpenStream returns a new byte stream to a host's agent. When the host has no
// bytes session, its agent is asked for one and has three seconds. The caller
// closes the stream. Errors: ErrNotAttached, ErrNoBytes, ErrTooManyStreams, the
// end of ctx, or what broke the session; after any of them another try may
// succeed.
func (h *Hub) OpenStream(ctx context.Context, host string) (net.Conn, error) {
	b, err := h.bytesSession(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("stream to %s: %w", host, err)
	}
	conn, err := b.t.open(ctx)
	if err != nil {
		b.release()
		return nil, fmt.Errorf("stream to %s: %w", host, err)
	}
	return &bulkStream{Conn: conn, release: sync.OnceFunc(b.release)}, nil
}

// bytesSession returns the host's session with one stream counted in.
func (h *Hub) bytesSession(ctx context.Context, host string) (*bulkSession, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bytesWait, ErrNoBytes)
	defer cancel()
	for {
		b, arrived, err := h.useBytes(host)
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// useBytes returns the session, or a channel that is closed when there is one,
// having asked for it if nobody else did.
func (h *Hub) useBytes(host string) (*bulkSession, <-chan struct{}, error) {
	h.mu.Lock()
	e := h.hosts[host]
	if e == nil || e.control == nil {
		h.mu.Unlock()
		return nil, nil, ErrNotAttached
	}
	if b := e.bulk; b != nil && !b.t.session.IsClosed() {
		defer h.mu.Unlock()
		if b.streams >= maxStreams {
			return nil, nil, ErrTooManyStreams
		}
		b.streams++
		return b, nil, nil
	}
	if e.bulkArrived == nil {
		e.bulkArrived = make(chan struct{})
	}
	arrived, control := e.bulkArrived, e.control
	ask := time.Since(e.bulkAsked) >= bytesAskAgain
	if ask {
		e.bulkAsked = time.Now()
	}
	h.mu.Unlock()
	if !ask {
		return nil, arrived, nil
	}
	if err := control.orderBytes(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotAttached, err)
	}
	return nil, arrived, nil
}

func (b *bulkSession) release() {
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	b.streams--
	b.lastUse = time.Now()
}

// bulkStream counts itself out when it is closed.
type bulkStream struct {
	net.Conn
	release func()
}

func (s *bulkStream) Close() error {
	defer s.release()
	return s.Conn.Close()
}
