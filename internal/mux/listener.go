package mux

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// maxPending bounds the handshakes in progress, and still carries a fleet
	// that reconnects at once. A silent peer would hold its place for 3 s; past
	// the bound the longest waiting one makes room, because an honest handshake
	// takes two round trips and silence only grows.
	maxPending = 256

	// backlog bounds the authenticated connections that wait in one channel.
	backlog = 64
)

// Config is what a Listener needs.
type Config struct {
	// ClusterKey opens Raft, Forward and Probe streams. Required.
	ClusterKey Key
	// WorkerKeys returns the keys that open Agent and Bytes streams, at each
	// handshake; nil or an empty list refuses them all.
	WorkerKeys func() []Key
	// Self says who listens, at each handshake. Required.
	Self func() Identity
	// Check may refuse an authenticated peer whose cluster and generation
	// fit, with a sentence that says what to do; nil accepts.
	Check func(kind Type, peer Identity) error
	// Logger gets refusals; nil means none are logged.
	Logger *slog.Logger
}

// Listener serves one port. Methods may be called concurrently.
type Listener struct {
	config Config
	inner  net.Listener
	slots  chan struct{} // one for each handshake in progress
	said   *refusalLog
	wait   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	closed   bool
	pending  *list.List // of net.Conn, the longest waiting first
	channels map[Type]*channel
}

// NewListener takes inner over and serves it until Close. Without a cluster
// key it fails with ErrNoKey and leaves inner alone: nothing starts open.
func NewListener(inner net.Listener, config Config) (*Listener, error) {
	if len(config.ClusterKey.Secret) == 0 {
		return nil, fmt.Errorf("cluster key: %w", ErrNoKey)
	}
	if config.Self == nil {
		return nil, errors.New("mux listener without an identity")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Listener{
		config:   config,
		inner:    inner,
		slots:    make(chan struct{}, maxPending),
		said:     newRefusalLog(config.Logger),
		pending:  list.New(),
		channels: map[Type]*channel{},
	}
	l.wait.Add(1)
	go l.acceptLoop()
	return l, nil
}

// Addr returns the address of the port.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Channel returns the listener for one type; what it accepts is a *Conn.
// Connections of a type whose channel was not asked for, or is closed, are
// refused (ErrNotServed). While a channel is open the same one is returned;
// after its Close a new one is.
func (l *Listener) Channel(kind Type) net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch := l.channels[kind]; ch != nil && !ch.closed() {
		return ch
	}
	ch := &channel{owner: l, queue: make(chan *Conn, backlog), room: make(chan struct{}, backlog), done: make(chan struct{})}
	if l.closed {
		close(ch.done)
	}
	l.channels[kind] = ch
	return ch
}

// Close stops accepting, ends handshakes in progress, closes the channels with
// what waits in them and returns when every goroutine of the listener has
// ended. Connections already accepted from a channel stay open.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.wait.Wait()
		return nil
	}
	l.closed = true
	for place := l.pending.Front(); place != nil; place = place.Next() {
		place.Value.(net.Conn).Close()
	}
	channels := make([]*channel, 0, len(l.channels))
	for _, ch := range l.channels {
		channels = append(channels, ch)
	}
	l.mu.Unlock()
	err := l.inner.Close()
	l.wait.Wait()
	for _, ch := range channels {
		ch.Close()
	}
	return err
}

func (l *Listener) acceptLoop() {
	defer l.wait.Done()
	const firstDelay, maxDelay = 5 * time.Millisecond, time.Second
	delay := firstDelay
	for {
		c, err := l.inner.Accept()
		if err != nil {
			if l.isClosed() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors or a peer gone before its accept:
			// neither may end the port.
			l.config.Logger.Warn("accept failed", "err", err)
			time.Sleep(delay)
			delay = min(2*delay, maxDelay)
			continue
		}
		delay = firstDelay
		select {
		case l.slots <- struct{}{}:
		default:
			l.evict()
			l.slots <- struct{}{} // the evicted one leaves at once
		}
		place, ok := l.track(c)
		if !ok {
			<-l.slots
			c.Close()
			return
		}
		l.wait.Add(1)
		go l.serve(c, place)
	}
}

func (l *Listener) serve(c net.Conn, place *list.Element) {
	defer l.wait.Done()
	defer func() { <-l.slots }()
	defer l.untrack(place)
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		c.Close()
		return
	}
	var room *channel
	got, err := listenerHandshake(c, gate{
		self: l.config.Self,
		keys: l.keys,
		admit: func(h hello) (r *refusal) {
			room, r = l.admit(h)
			return r
		},
		undo: func(hello) { <-room.room },
	})
	if err == nil {
		if err = c.SetDeadline(time.Time{}); err != nil {
			<-room.room
		}
	}
	if err != nil {
		c.Close()
		l.said.refused(c.RemoteAddr(), err, time.Now())
		return
	}
	room.put(&Conn{Conn: c, kind: got.hello.kind, peer: got.hello.identity, keyName: got.keyName})
}

func (l *Listener) keys(kind Type) []Key {
	if kind.Controllers() {
		return []Key{l.config.ClusterKey}
	}
	if l.config.WorkerKeys == nil {
		return nil
	}
	return l.config.WorkerKeys()
}

// admit refuses a peer or keeps a place for it in its channel.
func (l *Listener) admit(h hello) (*channel, *refusal) {
	if r := mismatch(h.kind, h.identity, l.config.Self()); r != nil {
		return nil, r
	}
	if l.config.Check != nil {
		if err := l.config.Check(h.kind, h.identity); err != nil {
			return nil, &refusal{statusIdentityMismatch, err.Error()}
		}
	}
	l.mu.Lock()
	ch := l.channels[h.kind]
	l.mu.Unlock()
	if ch == nil || ch.closed() {
		return nil, &refusal{statusNotServed, h.kind.String() + " is not served here now"}
	}
	select {
	case ch.room <- struct{}{}:
		return ch, nil
	default:
		return nil, &refusal{statusBusy, "connections of type " + h.kind.String() + " are not being accepted fast enough"}
	}
}

func (l *Listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *Listener) track(c net.Conn) (place *list.Element, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	return l.pending.PushBack(c), true
}

func (l *Listener) untrack(place *list.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.Remove(place)
}

// evict closes the connection whose handshake has taken longest.
func (l *Listener) evict() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if oldest := l.pending.Front(); oldest != nil {
		oldest.Value.(net.Conn).Close()
	}
}

// channel is the listener of one type. room holds a token for each connection
// that is in queue or about to be, so that put never blocks.
type channel struct {
	owner *Listener
	queue chan *Conn
	room  chan struct{}
	done  chan struct{}
	mu    sync.Mutex // guards closing done and putting, one before the other
}

func (ch *channel) put(c *Conn) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed() {
		c.Close()
		return
	}
	ch.queue <- c
}

func (ch *channel) closed() bool {
	select {
	case <-ch.done:
		return true
	default:
		return false
	}
}

// Accept returns the next *Conn, or net.ErrClosed.
func (ch *channel) Accept() (net.Conn, error) {
	select {
	case <-ch.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-ch.queue:
		<-ch.room
		return c, nil
	case <-ch.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and closes the connections that wait.
func (ch *channel) Close() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed() {
		close(ch.done)
	}
	for {
		select {
		case c := <-ch.queue:
			c.Close()
		default:
			return nil
		}
	}
}

// Addr returns the address of the shared port.
func (ch *channel) Addr() net.Addr { return ch.owner.Addr() }
