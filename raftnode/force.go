package raftnode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// refusedTries and refusedPause: a process that is being killed closes its
	// sockets one after the other, so that the port may still answer for a
	// moment after the connections have ended.
	refusedTries = 8
	refusedPause = 5 * time.Millisecond
	// refusedDial bounds one try. A refusal comes at once; silence is the
	// timeout path's business.
	refusedDial = 200 * time.Millisecond
	// sightingTimeout bounds asking the others.
	sightingTimeout = 400 * time.Millisecond

	// rankPause is at least what each rank waits for the one before it, and
	// rankSyncs its share of the disk: an election is two durable writes on
	// each side, an entry one more.
	rankPause = 20 * time.Millisecond
	rankSyncs = 10

	// maxForced elections within forcedWindow; after that only the timeout
	// path: a cluster that restarts its leader in a loop must not take the
	// holdoff each time.
	maxForced    = 3
	forcedWindow = time.Minute

	lostBacklog = 16
)

// Sighting is what a voter saw of a leader that may be gone, and how far the
// voter's own log reaches.
type Sighting struct {
	Refused   bool // a new connection was refused, and no later term is known
	LastTerm  uint64
	LastIndex uint64
}

// forcer replaces a leader whose process is gone without waiting for the
// election timeout. DESIGN.md says when it may.
type forcer struct {
	node     *Node
	instance *instance
	lost     chan string

	// Only run uses these.
	forcedTerm uint64
	forcedAt   []time.Time
}

func newForcer(n *Node, r *instance) *forcer {
	return &forcer{node: n, instance: r, lost: make(chan string, lostBacklog)}
}

// connectionLost is told of every connection that a peer has ended. It never
// blocks: a leader that dies ends several, and one is enough.
func (f *forcer) connectionLost(peerID string) {
	select {
	case f.lost <- peerID:
	default:
	}
}

func (f *forcer) run(ctx context.Context) {
	for {
		select {
		case peer := <-f.lost:
			f.consider(ctx, peer)
		case <-ctx.Done():
			return
		}
	}
}

// consider forces an election if peer leads the present term and a majority of
// voters finds it gone.
func (f *forcer) consider(ctx context.Context, peer string) {
	r := f.instance
	term := r.raft.CurrentTerm()
	if !f.mayForce(peer, term) || !f.node.refuses(ctx, peer) {
		return
	}
	position, ok := f.agreement(ctx, peer, term)
	if !ok {
		return
	}
	sleep(ctx, time.Duration(position)*max(rankPause, rankSyncs*f.node.store.syncP99()))
	if ctx.Err() != nil || !f.mayForce(peer, term) {
		return
	}
	f.forcedTerm = term
	f.forcedAt = append(f.forcedAt, time.Now())
	f.node.logger.Warn("the leader's process is gone, electing another now", "leader", peer, "term", term, "rank", position)
	ctx, cancel := context.WithTimeout(ctx, r.config.heartbeat())
	defer cancel()
	if err := r.transport.timeoutNow(ctx); err != nil {
		f.node.logger.Warn("election not started", "err", err)
	}
}

// mayForce holds what depends on this node alone.
func (f *forcer) mayForce(peer string, term uint64) bool {
	r := f.instance
	_, leader := r.raft.LeaderWithID()
	f.forcedAt = slices.DeleteFunc(f.forcedAt, func(at time.Time) bool { return time.Since(at) > forcedWindow })
	return r.raft.State() == raft.Follower &&
		string(leader) == peer &&
		r.raft.CurrentTerm() == term &&
		r.transport.maxVote.Load() <= term &&
		f.forcedTerm != term &&
		len(f.forcedAt) < maxForced &&
		r.isVoter()
}

// agreement asks all other voters and returns this node's place among those
// that agree, itself included: the longest log first, because others would
// refuse it their vote, then by ID.
func (f *forcer) agreement(ctx context.Context, leader string, term uint64) (position int, ok bool) {
	r, self := f.instance, f.node.config.NodeID
	ctx, cancel := context.WithTimeout(ctx, sightingTimeout)
	defer cancel()
	others, voters := r.otherVoters()
	type vote struct {
		id string
		Sighting
	}
	mine := f.node.position(r)
	mine.Refused = true
	agreed := []vote{{self, mine}}
	var wait sync.WaitGroup
	var mu sync.Mutex
	for _, id := range others {
		if id == leader {
			continue
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			addr, err := f.node.addressOf(id)
			if err != nil {
				return
			}
			saw, err := f.node.deps.AskRefused(ctx, id, addr, leader, term)
			if err != nil || !saw.Refused {
				f.node.logger.Info("leader not confirmed gone", "leader", leader, "voter", id, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			agreed = append(agreed, vote{id, saw})
		}()
	}
	wait.Wait()
	if 2*len(agreed) <= voters {
		return 0, false
	}
	slices.SortFunc(agreed, func(a, b vote) int {
		return cmp.Or(cmp.Compare(b.LastTerm, a.LastTerm), cmp.Compare(b.LastIndex, a.LastIndex), strings.Compare(a.id, b.id))
	})
	return slices.IndexFunc(agreed, func(v vote) bool { return v.id == self }), true
}

// refuses reports whether the peer's port refuses a new connection: the host
// is alive and says that nothing listens.
func (n *Node) refuses(ctx context.Context, peer string) bool {
	for range refusedTries {
		addr, err := n.addressOf(peer)
		if err != nil {
			return false
		}
		dial, cancel := context.WithTimeout(ctx, refusedDial)
		c, err := n.deps.Dialer.Connect(dial, addr)
		cancel()
		switch {
		case err == nil:
			c.Close()
			sleep(ctx, refusedPause)
		case errors.Is(err, syscall.ECONNREFUSED):
			return true
		default:
			return false // unreachable, or silent: a cut looks like this too
		}
	}
	return false
}

// sighting answers another voter's askRefusedBy, by looking now.
func (n *Node) sighting(ctx context.Context, r *instance, leader string, term uint64) Sighting {
	saw := n.position(r)
	if leader == n.config.NodeID || r.raft.CurrentTerm() > term {
		return saw
	}
	saw.Refused = n.refuses(ctx, leader)
	return saw
}

// position returns how far this node's log reaches.
func (n *Node) position(r *instance) Sighting {
	stats := r.raft.Stats()
	return Sighting{
		LastTerm:  max(r.counter(stats, "last_log_term"), r.counter(stats, "last_snapshot_term")),
		LastIndex: r.raft.LastIndex(),
	}
}
