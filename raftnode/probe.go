package raftnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"rcd/internal/codec"
	"rcd/internal/mux"
)

const (
	maxProbe     = 64 << 10         // bytes of a question or an answer
	probeTimeout = 3 * time.Second  // for an answer, unless the context is shorter
	probeIdle    = 60 * time.Second // a connection without a question
	maxProbes    = 64               // connections served
	maxIdle      = 4                // connections kept to a peer
)

// errAnswer is wrapped by what a peer refused in so many words.
var errAnswer = errors.New("refused by peer")

// The questions. They are on the wire between controllers of neighbouring
// versions: fields may be added, never changed.
const (
	askState     = "state"      // what are you?
	askAdopt     = "adopt"      // become a member of this cluster
	askRefusedBy = "refused"    // does that leader refuse you, too?
	askIndex     = "read_index" // where does a linearizable read stand?
)

type question struct {
	Op         string            `json:"op"`
	List       []Peer            `json:"list,omitempty"`
	ClusterID  string            `json:"cluster_id,omitempty"`
	Generation uint64            `json:"generation,omitempty"`
	Members    map[string]string `json:"members,omitempty"`
	Leader     string            `json:"leader,omitempty"`
	Term       uint64            `json:"term,omitempty"`
}

type reply struct {
	Refusal string `json:"refusal,omitempty"` // a sentence; everything else is empty then

	// to askState
	List        []Peer `json:"list,omitempty"`
	HasState    bool   `json:"has_state,omitempty"`
	ClusterID   string `json:"cluster_id,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`

	// to askRefusedBy
	Refused bool `json:"refused,omitempty"`

	// to askIndex: of the read; to askRefusedBy: of the last log entry
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`
}

// probeServer answers questions on Probe streams.
type probeServer struct {
	node     *Node
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wait     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]struct{}
	closed bool
}

func newProbeServer(n *Node, listener net.Listener) *probeServer {
	s := &probeServer{node: n, listener: listener, conns: map[net.Conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(n.life.ctx)
	s.wait.Add(1)
	go s.accept()
	return s
}

func (s *probeServer) accept() {
	defer s.wait.Done()
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		full := s.closed || len(s.conns) >= maxProbes
		if !full {
			s.conns[c] = struct{}{}
			s.wait.Add(1)
		}
		s.mu.Unlock()
		if full {
			c.Close()
			continue
		}
		go s.serve(c.(*mux.Conn))
	}
}

func (s *probeServer) serve(c *mux.Conn) {
	defer s.wait.Done()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.Close()
	}()
	for {
		if err := c.SetReadDeadline(time.Now().Add(probeIdle)); err != nil {
			return
		}
		data, err := codec.ReadRaw(c, maxProbe)
		if err != nil {
			return
		}
		var q question
		if err := json.Unmarshal(data, &q); err != nil {
			s.node.logger.Warn("unreadable question", "peer", c.Peer().NodeID, "err", err)
			return
		}
		data, err = json.Marshal(s.answer(c.Peer(), q))
		if err != nil {
			panic("raftnode: reply does not encode: " + err.Error())
		}
		if err := c.SetWriteDeadline(time.Now().Add(probeTimeout)); err != nil {
			return
		}
		if err := codec.WriteRaw(c, data, maxProbe); err != nil {
			return
		}
	}
}

func (s *probeServer) answer(peer mux.Identity, q question) reply {
	n := s.node
	ctx, cancel := context.WithTimeout(s.ctx, probeTimeout)
	defer cancel()
	switch q.Op {
	case askState:
		return n.describe()
	case askAdopt:
		if err := n.adopt(peer, q); err != nil {
			return reply{Refusal: err.Error()}
		}
		return reply{}
	}
	if err := n.fellow(peer); err != nil {
		return reply{Refusal: err.Error()}
	}
	r := n.running()
	if r == nil {
		return reply{Refusal: n.config.NodeID + " is still forming its cluster"}
	}
	switch q.Op {
	case askRefusedBy:
		saw := n.sighting(ctx, r, q.Leader, q.Term)
		return reply{Refused: saw.Refused, Index: saw.LastIndex, Term: saw.LastTerm}
	case askIndex:
		reading, err := r.readLeader(ctx)
		if err != nil {
			return reply{Refusal: err.Error()}
		}
		return reply{Index: reading.Index, Term: reading.Term}
	}
	return reply{Refusal: fmt.Sprintf("%s does not know the question %q", n.config.NodeID, q.Op)}
}

// fellow refuses a peer that is no member of this node's cluster; Probe
// streams are open to every controller with the key.
func (n *Node) fellow(peer mux.Identity) error {
	self := n.identity.Self()
	if self.ClusterID == "" || self.ClusterID != peer.ClusterID || self.Generation != peer.Generation {
		return fmt.Errorf("%s and %s are not of one cluster", peer.NodeID, self.NodeID)
	}
	return n.identity.Check(mux.Raft, peer)
}

func (s *probeServer) close() {
	s.cancel()
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// asker asks questions, over connections that it keeps.
type asker struct {
	dialer *mux.Dialer

	mu     sync.Mutex // guards what follows
	idle   map[string][]*mux.Conn
	closed bool
}

// ask returns a peer's reply. Every question may be asked twice, so a kept
// connection that has gone bad is replaced.
func (a *asker) ask(ctx context.Context, peerID, addr string, q question) (reply, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for {
		c, kept := a.take(peerID), true
		if c == nil {
			kept = false
			if c, err = a.dial(ctx, peerID, addr); err != nil {
				return reply{}, err
			}
		}
		got, err := exchange(ctx, c, data)
		if err == nil {
			a.put(peerID, c)
			if got.Refusal != "" {
				return reply{}, fmt.Errorf("%w: %s", errAnswer, got.Refusal)
			}
			return got, nil
		}
		c.Close()
		if !kept || ctx.Err() != nil {
			return reply{}, fmt.Errorf("ask %s at %s: %w", peerID, addr, err)
		}
	}
}

func (a *asker) dial(ctx context.Context, peerID, addr string) (*mux.Conn, error) {
	c, err := a.dialer.Dial(ctx, addr, mux.Probe)
	if err != nil {
		return nil, err
	}
	if got := c.Peer().NodeID; got != peerID {
		c.Close()
		return nil, fmt.Errorf("%s at %s is node %s: check the join list", peerID, addr, got)
	}
	return c, nil
}

func exchange(ctx context.Context, c *mux.Conn, data []byte) (reply, error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := codec.WriteRaw(c, data, maxProbe); err != nil {
		return reply{}, err
	}
	answer, err := codec.ReadRaw(c, maxProbe)
	if err != nil {
		return reply{}, err
	}
	var got reply
	return got, json.Unmarshal(answer, &got)
}

func (a *asker) take(peerID string) *mux.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	idle := a.idle[peerID]
	if len(idle) == 0 {
		return nil
	}
	c := idle[len(idle)-1]
	a.idle[peerID] = idle[:len(idle)-1]
	return c
}

func (a *asker) put(peerID string, c *mux.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.idle[peerID]) >= maxIdle {
		c.Close()
		return
	}
	a.idle[peerID] = append(a.idle[peerID], c)
}

// reset closes the connections kept.
func (a *asker) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, idle := range a.idle {
		for _, c := range idle {
			c.Close()
		}
	}
	clear(a.idle)
}

func (a *asker) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.reset()
}

// askReadIndex is the Deps.AskReadIndex over Probe.
func (n *Node) askReadIndex(ctx context.Context, leaderID, addr string) (Reading, error) {
	got, err := n.asker.ask(ctx, leaderID, addr, question{Op: askIndex})
	return Reading{Index: got.Index, Term: got.Term}, err
}

// askRefused is the Deps.AskRefused over Probe.
func (n *Node) askRefused(ctx context.Context, peerID, addr, leaderID string, term uint64) (Sighting, error) {
	got, err := n.asker.ask(ctx, peerID, addr, question{Op: askRefusedBy, Leader: leaderID, Term: term})
	return Sighting{Refused: got.Refused, LastTerm: got.Term, LastIndex: got.Index}, err
}
