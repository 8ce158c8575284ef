package raftnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"rcd/internal/mux"
)

// instance is raft, running, with all that runs beside it.
type instance struct {
	config    Config
	raft      *raft.Raft
	transport *transport
	machine   *machine
	lead      *leadership
	verifier  *verifier
	logger    *slog.Logger
	resolve   func(id string) (string, error)

	// abandon ends, some time after raft was shut down, the waits for what it
	// left unanswered.
	abandon  context.Context
	giveUp   context.CancelFunc
	shutOnce chan struct{} // holds one token; taken by the one who shuts down
	shut     chan struct{}
}

// start runs raft on the node's stores. The identity must name a cluster.
func (n *Node) start() error {
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	if n.life.closing {
		return ErrClosed
	}
	n.asker.reset() // its connections were opened before the cluster had an ID

	r := &instance{
		config: n.config, machine: n.machine, logger: n.logger, resolve: n.addressOf,
		shutOnce: make(chan struct{}, 1), shut: make(chan struct{}),
	}
	r.shutOnce <- struct{}{}
	r.abandon, r.giveUp = context.WithCancel(context.Background())
	lost := newForcer(n, r)
	s := &streams{
		listener: n.deps.Streams.Channel(mux.Raft), dialer: n.deps.Dialer, resolve: n.addressOf,
		onLost: lost.connectionLost, timeout: n.config.transportTimeout(), conns: map[*raftConn]struct{}{},
	}
	r.transport = newTransport(n.config.NodeID, s, n.config.transportTimeout(), n.logger)
	cache, err := raft.NewLogCache(logCacheEntries, n.store)
	if err != nil {
		panic("raftnode: " + err.Error()) // the capacity is a constant
	}
	notify := make(chan bool, notifyBacklog)
	n.machine.raise(true)
	r.raft, err = newRaft(n.config.raftConfig(notify, n.logger), n.machine, cache, n.store, n.snaps, r.transport)
	n.machine.raise(false)
	if halted := n.machine.haltError(); err != nil && halted != nil {
		err = halted // raft says only that it could load no snapshot
	}
	if err != nil {
		r.giveUp()
		return errors.Join(fmt.Errorf("start raft on %s: %w", n.config.Dir, err), r.transport.Close())
	}
	r.lead = &leadership{
		raft: r.raft, notify: notify, deps: &n.deps, resign: r.resign, abandon: r.abandon,
		logger: n.logger, duties: n.life.duties, changed: make(chan struct{}),
	}
	r.verifier = &verifier{instance: r}
	n.instance.Store(r)
	for _, run := range []func(context.Context){r.lead.pump, r.lead.run, lost.run, n.keepSnapshots, n.watchLeader} {
		n.life.wait.Add(1)
		go func() {
			defer n.life.wait.Done()
			run(n.life.ctx)
		}()
	}
	return nil
}

// newRaft makes an error of the panic at a log that does not reach back to the
// newest snapshot that can be read.
func newRaft(c *raft.Config, m raft.FSM, logs raft.LogStore, stable raft.StableStore, snaps raft.SnapshotStore, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("its snapshots and log do not fit together (%v): empty the data directory and rejoin as a new node", p)
		}
	}()
	return raft.NewRaft(c, m, logs, stable, snaps, t)
}

// shutdown stops raft and its connections, and waits for raft.
func (r *instance) shutdown() {
	select {
	case <-r.shutOnce:
	case <-r.shut:
		return
	}
	future := r.raft.Shutdown()
	if err := r.transport.Close(); err != nil { // ends RPCs that raft would wait for
		r.logger.Debug("close transport", "err", err)
	}
	if err := future.Error(); err != nil {
		r.logger.Warn("shut raft down", "err", err)
	}
	r.giveUp()
	r.verifier.close()
	close(r.shut)
}

// otherVoters returns the voters but this node, and how many there are with it
// (if it is one).
func (r *instance) otherVoters() (others []string, voters int) {
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) != r.config.NodeID {
			others = append(others, string(s.ID))
		}
	}
	return others, voters
}

func (r *instance) isVoter() bool {
	others, voters := r.otherVoters()
	return voters > len(others)
}

// leader returns what raft knows now.
func (r *instance) leader() Leader {
	_, id := r.raft.LeaderWithID()
	l := Leader{ID: string(id), Term: r.raft.CurrentTerm()}
	if l.ID != "" {
		l.Addr, _ = r.resolve(l.ID) // "" when nobody knows it
	}
	return l
}

// transfer hands leadership to the follower that is furthest.
func (r *instance) transfer(ctx context.Context) error {
	err := await(ctx, r.raft.LeadershipTransfer())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return ErrNotLeader
	case errors.Is(err, errAbandoned):
		return ctx.Err()
	}
	return fmt.Errorf("%w: transfer leadership: %w", ErrRefusedMember, err)
}

// resign gives leadership away: by a transfer, else by keeping silent until
// the lease has run out and somebody else had the time to be elected. It
// returns false where this node is the only voter.
func (r *instance) resign(ctx context.Context) bool {
	if others, _ := r.otherVoters(); len(others) == 0 {
		return false
	}
	if err := r.transfer(ctx); err == nil {
		return true
	}
	if ctx.Err() != nil {
		return true
	}
	r.logger.Warn("no follower took leadership over, going silent until another is elected")
	r.silence(ctx)
	return true
}

// silence loses leadership, while ctx stands, and lets somebody else have it.
func (r *instance) silence(ctx context.Context) {
	r.transport.gated.Store(true)
	defer r.transport.gated.Store(false)
	sleep(ctx, 4*r.config.lease())                    // ends with the lease
	sleep(r.abandon, 4*r.config.scaled(baseElection)) // the others need their election timeout
}

// counters of raft that it gives only as text.
func (r *instance) counter(stats map[string]string, name string) uint64 {
	v, _ := strconv.ParseUint(stats[name], 10, 64)
	return v
}

// snapshotLook is how often the log is looked at for its bytes and age.
const snapshotLook = 5 * time.Second

// keepSnapshots takes a snapshot when the log since the last has grown past
// the policy's bytes, or the last has grown old; raft itself counts entries.
func (n *Node) keepSnapshots(ctx context.Context) {
	r := n.running()
	policy := n.config.Snapshots
	lastAt, lastIndex := time.Now(), uint64(0)
	for ctx.Err() == nil {
		sleep(ctx, min(snapshotLook, policy.Age))
		if index := r.counter(r.raft.Stats(), "last_snapshot_index"); index != lastIndex {
			lastAt, lastIndex = time.Now(), index
		}
		after, _ := n.store.bytesAfter(lastIndex)
		if n.machine.current() <= lastIndex || after < policy.LogBytes && time.Since(lastAt) < policy.Age {
			continue
		}
		if err := await(ctx, r.raft.Snapshot()); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && ctx.Err() == nil {
			n.logger.Warn("snapshot failed", "err", err)
		}
		lastAt = time.Now() // a failure is not repeated every few seconds
	}
}

// tuneTrailing sets how many entries stay behind the snapshot being taken, so
// that their bytes fit the budget.
func (n *Node) tuneTrailing() {
	r := n.running()
	if r == nil {
		return
	}
	options := r.raft.ReloadableConfig()
	options.TrailingLogs = n.store.trailing(n.config.Snapshots.TrailingBytes)
	if err := r.raft.ReloadConfig(options); err != nil {
		n.logger.Warn("trailing log not adjusted", "err", err)
	}
}
