package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Level says what a read may miss.
type Level uint8

const (
	// Linearizable reads see every command answered before the read began.
	Linearizable Level = iota
	// Stale reads see what this node has applied.
	Stale
)

// Reading is where a read stands.
type Reading struct {
	Index uint64 // the state machine has applied at least this
	Term  uint64 // of the epoch that vouched for it; for a stale read the node's own term
	// Age is how long ago a leader was last heard, for a stale read: 0 on the
	// leader, -1 when none was since the node was started.
	Age time.Duration
}

// maxVerify bounds one round of asking whether this node still leads; a leader
// that cannot reach a majority loses its lease long before.
const maxVerify = 10 * time.Second

// Read returns when the state machine may be read at the level. A linearizable
// read fails with ErrNoLeader when no leader answers, and with the error of
// ctx; a stale one fails with ErrNotReady on a node that has applied nothing,
// so that an empty state is never shown as the truth.
func (n *Node) Read(ctx context.Context, level Level) (Reading, error) {
	if err := n.serving(); err != nil {
		return Reading{}, err
	}
	r := n.running()
	if r == nil {
		return Reading{}, fmt.Errorf("%w: %s", ErrNoLeader, n.Status().Detail)
	}
	if level == Stale {
		return r.readStale()
	}
	reading, err := r.readLeader(ctx)
	if errors.Is(err, ErrNotLeader) {
		reading, err = n.readFollower(ctx, r)
	}
	if halted := n.machine.haltError(); halted != nil {
		return Reading{}, halted // meanwhile: what it holds is not the truth
	}
	return reading, err
}

// WaitIndex returns when the state machine has applied index, or the error of
// ctx.
func (n *Node) WaitIndex(ctx context.Context, index uint64) error {
	if err := n.serving(); err != nil {
		return err
	}
	return n.machine.wait(ctx, index)
}

func (r *instance) readStale() (Reading, error) {
	index := r.machine.current()
	if index == 0 {
		return Reading{}, ErrNotReady
	}
	reading := Reading{Index: index, Term: r.raft.CurrentTerm()}
	if r.raft.State() != raft.Leader {
		reading.Age = -1
		if last := r.raft.LastContact(); !last.IsZero() {
			reading.Age = max(time.Since(last), 0)
		}
	}
	return reading, nil
}

// readLeader answers as the leader: the index is the state machine's own,
// taken after the epoch began and before it was verified that the epoch still
// stands.
func (r *instance) readLeader(ctx context.Context) (Reading, error) {
	if _, err := r.lead.awaitEpoch(ctx); err != nil {
		return Reading{}, err
	}
	return r.verifier.verify(ctx)
}

// readFollower asks the leader for its index and waits for it here.
func (n *Node) readFollower(ctx context.Context, r *instance) (Reading, error) {
	leader := r.leader()
	if leader.ID == "" || leader.ID == n.config.NodeID {
		return Reading{}, ErrNoLeader
	}
	reading, err := n.deps.AskReadIndex(ctx, leader.ID, leader.Addr)
	if err != nil {
		return Reading{}, fmt.Errorf("%w: ask %s for its index: %w", ErrNoLeader, leader.ID, err)
	}
	if err := n.machine.wait(ctx, reading.Index); err != nil {
		return Reading{}, err
	}
	return reading, nil
}

// verifier asks a majority, once for all reads that wait, whether this node
// still leads. A read joins the next round, never the one in progress: that
// one may have heard its answers before the read began.
type verifier struct {
	instance *instance
	wait     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	next    *round
	running bool
	closed  bool
}

type round struct {
	done    chan struct{}
	reading Reading
	err     error
}

func (v *verifier) verify(ctx context.Context) (Reading, error) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return Reading{}, ErrClosed
	}
	if v.next == nil {
		v.next = &round{done: make(chan struct{})}
	}
	mine := v.next
	if !v.running {
		v.running = true
		v.wait.Add(1)
		go v.run()
	}
	v.mu.Unlock()
	select {
	case <-mine.done:
		return mine.reading, mine.err
	case <-ctx.Done():
		return Reading{}, ctx.Err()
	}
}

// close lets no more reads in and waits for the round in progress, which must
// have been told to end.
func (v *verifier) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.wait.Wait()
}

// run does rounds until nobody waits.
func (v *verifier) run() {
	defer v.wait.Done()
	for {
		v.mu.Lock()
		current := v.next
		v.next = nil
		if current == nil {
			v.running = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		current.reading, current.err = v.round()
		close(current.done)
	}
}

func (v *verifier) round() (Reading, error) {
	r := v.instance
	ctx, cancel := context.WithTimeout(r.abandon, maxVerify)
	defer cancel()
	t0 := time.Now()
	epoch, open := r.lead.current()
	if open == nil {
		return Reading{}, ErrNotLeader
	}
	reading := Reading{Index: r.machine.current(), Term: epoch.Term}
	for {
		if err := await(ctx, r.raft.VerifyLeader()); err != nil {
			return Reading{}, ErrNotLeader
		}
		if now, _ := r.lead.current(); now.Term != epoch.Term {
			return Reading{}, ErrNotLeader
		}
		peers, voters := r.otherVoters()
		if 2*(r.transport.ackedSince(peers, epoch.Term, t0)+1) > voters {
			return reading, nil
		}
		if ctx.Err() != nil {
			return Reading{}, ErrNotLeader
		}
	}
}
