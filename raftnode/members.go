package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// memberTimeout bounds how long raft may take to accept a membership change.
const memberTimeout = 5 * time.Second

// Leader is the leader as this node knows it; ID is "" when it knows none.
type Leader struct {
	ID   string
	Addr string // of its shared port, resolved now
	Term uint64 // this node's
}

// Member is a server of the raft configuration.
type Member struct {
	ID    string
	Addr  string
	Voter bool
}

// State says what a node is doing.
type State string

// The states.
const (
	Forming State = "forming" // no cluster yet; nothing is served
	Running State = "running"
	Halted  State = "halted"
	Closed  State = "closed"
)

// Status is a node's state and, unless it is running, a sentence about it.
type Status struct {
	State  State
	Detail string
}

// Status returns what the node is doing.
func (n *Node) Status() Status {
	if err := n.machine.haltError(); err != nil {
		return Status{Halted, err.Error()}
	}
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	switch {
	case n.life.closing:
		return Status{Closed, "closed"}
	case n.instance.Load() == nil:
		return Status{Forming, n.life.detail}
	}
	return Status{State: Running}
}

// Leader returns the leader as this node knows it.
func (n *Node) Leader() Leader {
	if r := n.running(); r != nil && n.serving() == nil {
		return r.leader()
	}
	return Leader{}
}

// IsLeader reports whether this node leads and has begun its epoch.
func (n *Node) IsLeader() bool {
	_, ok := n.Epoch()
	return ok
}

// Epoch returns the epoch that is open here, and whether there is one.
func (n *Node) Epoch() (Epoch, bool) {
	r := n.running()
	if r == nil {
		return Epoch{}, false
	}
	epoch, open := r.lead.current()
	return epoch, open != nil
}

// Members returns the servers of the latest raft configuration, in its order;
// nil on a node that has none.
func (n *Node) Members() []Member {
	r := n.running()
	if r == nil {
		return nil
	}
	var out []Member
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		addr, err := n.addressOf(string(s.ID))
		if err != nil {
			addr = string(s.Address)
		}
		out = append(out, Member{string(s.ID), addr, s.Suffrage == raft.Voter})
	}
	return out
}

// AddVoter makes a member, or a new node, a voter. The node must have been
// told of the cluster and every member of its incarnation (Identity.SetMember)
// before, or nobody will speak with it.
func (n *Node) AddVoter(ctx context.Context, id, addr string) error {
	return n.change(ctx, "add voter "+id, func(r *raft.Raft) raft.Future {
		return r.AddVoter(raft.ServerID(id), raft.ServerAddress(addr), 0, memberTimeout)
	})
}

// AddNonvoter makes a new node a member without a vote; see AddVoter.
func (n *Node) AddNonvoter(ctx context.Context, id, addr string) error {
	return n.change(ctx, "add nonvoter "+id, func(r *raft.Raft) raft.Future {
		return r.AddNonvoter(raft.ServerID(id), raft.ServerAddress(addr), 0, memberTimeout)
	})
}

// RemoveServer takes a member out of the raft configuration.
func (n *Node) RemoveServer(ctx context.Context, id string) error {
	return n.change(ctx, "remove "+id, func(r *raft.Raft) raft.Future {
		return r.RemoveServer(raft.ServerID(id), 0, memberTimeout)
	})
}

// change runs a membership change on the leader. ErrNotLeader means that it
// did not happen; after any other error it may have.
func (n *Node) change(ctx context.Context, what string, do func(*raft.Raft) raft.Future) error {
	if err := n.serving(); err != nil {
		return err
	}
	r := n.running()
	if r == nil {
		return ErrNotLeader
	}
	err := await(ctx, do(r.raft))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errAbandoned):
		return fmt.Errorf("%s: %w: %w", what, ErrOutcomeUnknown, ctx.Err())
	case proposeError(err) == ErrNotLeader:
		return ErrNotLeader
	}
	return fmt.Errorf("%s: %w: %w", what, ErrRefusedMember, err)
}

// TransferLeadership gives leadership to the follower that is furthest. It
// returns nil when this node has lost it, ErrNotLeader when it had none.
func (n *Node) TransferLeadership(ctx context.Context) error {
	r := n.running()
	if r == nil {
		return ErrNotLeader
	}
	return r.transfer(ctx)
}

// Campaign makes this node stand for election now, without asking first
// whether it would win: for an operator who wants leadership here, and for
// tests; on the leader it begins a new epoch. It returns when the election has
// started, or ErrRefusedMember on a node without a vote.
func (n *Node) Campaign(ctx context.Context) error {
	if err := n.serving(); err != nil {
		return err
	}
	r := n.running()
	if r == nil || !r.isVoter() {
		return fmt.Errorf("%w: this node has no vote", ErrRefusedMember)
	}
	return r.transport.timeoutNow(ctx)
}

// Snapshot writes a snapshot now and compacts the log. It returns nil when
// there was nothing new to write.
func (n *Node) Snapshot(ctx context.Context) error {
	if err := n.serving(); err != nil {
		return err
	}
	r := n.running()
	if r == nil {
		return ErrNotReady
	}
	err := await(ctx, r.raft.Snapshot())
	switch {
	case err == nil, errors.Is(err, raft.ErrNothingNewToSnapshot):
		return nil
	case errors.Is(err, errAbandoned):
		return ctx.Err()
	}
	return fmt.Errorf("snapshot: %w", err)
}

// LogReader returns the node's log for package inspect; it stays readable
// without a leader, until Close.
func (n *Node) LogReader() raft.LogStore { return n.store.BoltStore }

// Stats are a node's counters at one moment, not all of the same.
type Stats struct {
	State         string // follower, candidate, leader, shutdown or forming
	Term          uint64
	FirstIndex    uint64 // of the log on disk
	LastIndex     uint64
	CommitIndex   uint64
	AppliedIndex  uint64 // of the state machine
	SnapshotIndex uint64
	LogBytes      int64
	SyncP99       time.Duration // of recent durable log writes
	LastContact   time.Duration // since a leader was heard; 0 on a leader, -1: never
	Peers         []PeerStats   // as the leader sees them; nil elsewhere
}

// PeerStats is what a leader knows of a member.
type PeerStats struct {
	ID        string
	LastIndex uint64        // the member's last log index, as it said at the last heartbeat
	Contact   time.Duration // since then; -1: never in this process
}

// Stats returns the node's counters.
func (n *Node) Stats() Stats {
	r := n.running()
	if r == nil {
		return Stats{State: string(Forming), LastContact: -1}
	}
	text := r.raft.Stats()
	s := Stats{
		Term: r.raft.CurrentTerm(), LastIndex: r.raft.LastIndex(), CommitIndex: r.raft.CommitIndex(),
		AppliedIndex: n.machine.current(), SnapshotIndex: r.counter(text, "last_snapshot_index"), SyncP99: n.store.syncP99(),
	}
	s.FirstIndex, _ = n.store.FirstIndex() // 0 when it cannot be read
	_, s.LogBytes = n.store.bytesAfter(0)
	switch state := r.raft.State(); state {
	case raft.Leader:
		s.State = "leader"
		others := r.raft.GetConfiguration().Configuration().Servers
		for _, o := range others {
			if id := string(o.ID); id != n.config.NodeID {
				p := PeerStats{ID: id, Contact: -1}
				if a, ok := r.transport.peerAck(id); ok {
					p.LastIndex, p.Contact = a.lastLog, time.Since(a.heardAt)
				}
				s.Peers = append(s.Peers, p)
			}
		}
		return s
	case raft.Follower:
		s.State = "follower"
	case raft.Candidate:
		s.State = "candidate"
	default:
		s.State = "shutdown"
	}
	s.LastContact = -1
	if last := r.raft.LastContact(); !last.IsZero() {
		s.LastContact = time.Since(last)
	}
	return s
}

// Watch returns a channel that holds the latest leader: it gets the present
// one at once and then every change, of which a slow reader sees the last. It
// is closed with the node. stop ends it earlier.
func (n *Node) Watch() (leaders <-chan Leader, stop func()) {
	return n.watchers.add(n.Leader())
}

// watchLeader follows raft's observations, which may be dropped while others
// wait: each is only a reason to look.
func (n *Node) watchLeader(ctx context.Context) {
	const backlog = 64
	r := n.running()
	seen := make(chan raft.Observation, backlog)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			return true
		}
		return false
	})
	r.raft.RegisterObserver(observer)
	defer r.raft.DeregisterObserver(observer)
	n.watchers.tell(r.leader())
	for {
		select {
		case <-seen:
			n.watchers.tell(r.leader())
		case <-ctx.Done():
			return
		}
	}
}

type watchers struct {
	mu     sync.Mutex // guards what follows
	subs   map[chan Leader]struct{}
	last   Leader
	told   bool
	closed bool
}

func (w *watchers) add(now Leader) (<-chan Leader, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := make(chan Leader, 1)
	if w.closed {
		close(ch)
		return ch, func() {}
	}
	if w.told {
		now = w.last
	}
	ch <- now
	if w.subs == nil {
		w.subs = map[chan Leader]struct{}{}
	}
	w.subs[ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, ok := w.subs[ch]; ok {
			delete(w.subs, ch)
			close(ch)
		}
	}
}

func (w *watchers) tell(l Leader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told && w.last == l {
		return
	}
	w.last, w.told = l, true
	for ch := range w.subs {
		select {
		case <-ch:
		default:
		}
		ch <- l
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for ch := range w.subs {
		close(ch)
	}
	w.subs = nil
}
