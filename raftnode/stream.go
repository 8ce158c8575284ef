package raftnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rcd/internal/mux"
)

// writeChunk is how many bytes may take one timeout to be written.
const writeChunk = 64 << 10

// streams is raft's StreamLayer on the shared port. It knows peers by their
// node IDs: raft's "addresses" are IDs here, resolved at each dial, so that a
// vote, which raft records by address, belongs to an ID and not to whoever has
// the address today.
type streams struct {
	listener net.Listener // the Raft channel
	dialer   *mux.Dialer
	resolve  func(id string) (string, error)
	onLost   func(peerID string) // a peer ended a connection that it had opened
	timeout  time.Duration

	mu     sync.Mutex // guards what follows
	conns  map[*raftConn]struct{}
	closed bool
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	c, err := s.listener.Accept()
	if err != nil {
		return nil, err
	}
	peer := c.(*mux.Conn).Peer().NodeID
	return s.track(&raftConn{Conn: c, owner: s, lost: func() { s.onLost(peer) }})
}

// Dial implements raft.StreamLayer; address is a node ID.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	target, err := s.resolve(string(address))
	if err != nil {
		return nil, err
	}
	c, err := s.dialer.Dial(ctx, target, mux.Raft)
	if err != nil {
		return nil, err
	}
	if got := c.Peer().NodeID; got != string(address) {
		c.Close()
		return nil, fmt.Errorf("%s at %s is node %s", address, target, got)
	}
	return s.track(&raftConn{Conn: c, owner: s, lost: func() {}})
}

// Addr implements net.Listener.
func (s *streams) Addr() net.Addr { return s.listener.Addr() }

// Close stops accepting and closes every connection, pooled and accepted:
// raft's transport would leave both until the peer ends them.
func (s *streams) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for c := range conns {
		c.closed.Store(true)
		c.Conn.Close()
	}
	return err
}

func (s *streams) track(c *raftConn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Conn.Close()
		return nil, net.ErrClosed
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// raftConn makes raft's deadlines count from the last progress instead of from
// the start of an RPC, so that a slow link carries a batch or a snapshot of any
// size and a dead one is still found out in one timeout. And it tells of
// connections that the peer has ended.
type raftConn struct {
	net.Conn
	owner  *streams
	lost   func()
	closed atomic.Bool // from this side

	write atomic.Int64 // how long each chunk may take, 0: no limit
	read  atomic.Int64 // how long the answer may take after the last chunk
}

// SetDeadline is what raft calls before a request and its answer.
func (c *raftConn) SetDeadline(t time.Time) error {
	span := spanUntil(t)
	c.read.Store(int64(span))
	c.write.Store(int64(min(span, c.owner.timeout)))
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline is what raft calls before a pipelined request, whose answer
// has its own deadline.
func (c *raftConn) SetWriteDeadline(t time.Time) error {
	c.read.Store(0)
	c.write.Store(int64(min(spanUntil(t), c.owner.timeout)))
	return c.Conn.SetWriteDeadline(t)
}

func spanUntil(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(time.Until(t), 1)
}

func (c *raftConn) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		if span := time.Duration(c.write.Load()); span > 0 {
			if err := c.Conn.SetWriteDeadline(time.Now().Add(span)); err != nil {
				return written, err
			}
		}
		var n int
		n, err = c.Conn.Write(p[:min(len(p), writeChunk)])
		written, p = written+n, p[n:]
	}
	if span := time.Duration(c.read.Load()); span > 0 && err == nil {
		err = c.Conn.SetReadDeadline(time.Now().Add(span))
	}
	return written, err
}

func (c *raftConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !c.closed.Load() {
		c.lost()
	}
	return n, err
}

func (c *raftConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
