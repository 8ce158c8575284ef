package raftnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rcd/fsm/command"
	"rcd/internal/mux"
)

const (
	// drainTimeout is how long Close lets entries in flight be answered; a
	// leader that cannot commit loses its lease earlier.
	drainTimeout = 2 * time.Second
)

// Clock tells the time with a monotonic reading.
type Clock interface{ Now() time.Time }

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// Deps is what a node works with.
type Deps struct {
	Identity *Identity // of Config.Dir, from LoadIdentity
	// Streams is the shared port, with Identity.Self and Identity.Check in its
	// configuration. The node takes its channels for Raft and Probe.
	Streams interface{ Channel(mux.Type) net.Listener }
	Dialer  *mux.Dialer // with the cluster key, Identity.Self and Identity.Check

	StateMachine StateMachine
	// EpochBegin returns the encoded command that begins an epoch.
	EpochBegin func(term uint64, stamp time.Time) []byte
	// OnApply gets the events of each entry, in order, before its proposer is
	// answered. It must not block: the state machine waits. May be nil.
	OnApply func(index, term uint64, events []command.Event)

	// Resolve returns the address of a controller at this moment; nil, or
	// false, means the join list, then the raft configuration.
	Resolve func(id string) (addr string, ok bool)
	// AskReadIndex asks the leader where a linearizable read stands; nil means
	// over a Probe stream, as the two below.
	AskReadIndex func(ctx context.Context, leaderID, addr string) (Reading, error)
	// AskRefused asks a voter whether it, too, finds the leader of a term
	// refusing connections.
	AskRefused func(ctx context.Context, peerID, addr, leaderID string, term uint64) (Sighting, error)

	Clock  Clock        // nil means the system's
	Logger *slog.Logger // nil means none
}

// Node is one controller's part in the cluster. Its methods may be called
// concurrently, and before the cluster has formed.
type Node struct {
	config   Config
	deps     Deps
	logger   *slog.Logger
	identity *Identity
	store    *logStore
	snaps    raft.SnapshotStore
	machine  *machine

	watchers watchers
	asker    *asker
	probes   *probeServer
	instance atomic.Pointer[instance] // nil until raft runs
	halted   chan error
	life     lifetime
}

// lifetime is what ends a node, and what ends with it.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	closed chan struct{} // Close has returned

	mu      sync.Mutex // guards what follows, and starting raft
	closing bool
	detail  string // what a forming node waits for
	adopted chan struct{}
	duties  func(context.Context, Epoch) error
}

// Open returns a node of the data directory, at once: a node without a cluster
// forms one, or waits to be taken into one, in the background (see Status).
// It fails with ErrConfig, ErrIdentity or ErrLogStore, or when an existing
// state cannot be loaded; then nothing is left running. The state machine must
// be empty.
func Open(config Config, deps Deps) (*Node, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	config.Snapshots = config.Snapshots.orDefaults()
	if deps.Clock == nil {
		deps.Clock = systemClock{}
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	store, err := openLogStore(config.Dir)
	if err != nil {
		return nil, err
	}
	logger := deps.Logger.With("node", config.NodeID)
	snaps, err := raft.NewFileSnapshotStoreWithLogger(raftDir(config.Dir), retainSnapshots, raftLogger(logger))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open snapshots: %w", err), store.Close())
	}
	n := &Node{
		config: config, deps: deps, logger: logger, identity: deps.Identity,
		store: store, snaps: snaps, halted: make(chan error, 1),
		asker: &asker{dialer: deps.Dialer, idle: map[string][]*mux.Conn{}},
	}
	n.life.ctx, n.life.cancel = context.WithCancel(context.Background())
	n.life.closed, n.life.adopted = make(chan struct{}), make(chan struct{}, 1)
	n.machine = &machine{
		inner: deps.StateMachine, onApply: deps.OnApply, onHalt: n.halt, beforeSnap: n.tuneTrailing,
		logger: logger, waiting: map[chan struct{}]uint64{},
	}
	if n.deps.AskReadIndex == nil {
		n.deps.AskReadIndex = n.askReadIndex
	}
	if n.deps.AskRefused == nil {
		n.deps.AskRefused = n.askRefused
	}
	if err := n.begin(); err != nil {
		n.life.cancel()
		return nil, errors.Join(err, store.Close())
	}
	return n, nil
}

// begin starts raft where there is a state, else the forming of a cluster.
func (n *Node) begin() error {
	has, err := n.hasState()
	if err != nil {
		return err
	}
	if has {
		if n.identity.Self().ClusterID == "" {
			return fmt.Errorf("%w: %s has raft state but belongs to no cluster: restore %s, or empty the directory and rejoin as a new node",
				ErrIdentity, n.config.Dir, identityFile)
		}
		if err := n.start(); err != nil {
			return err
		}
	}
	n.probes = newProbeServer(n, n.deps.Streams.Channel(mux.Probe))
	if !has {
		n.life.wait.Add(1)
		go func() {
			defer n.life.wait.Done()
			n.form(n.life.ctx)
		}()
	}
	return nil
}

// Lead registers the leader's duties. Whenever this node begins an epoch they
// run with a context that ends when leadership is lost; the next epoch waits
// until they have returned. An error while the context stands means that they
// could not start: leadership is given away. Lead is called once; before it
// the node never begins an epoch.
func (n *Node) Lead(duties func(ctx context.Context, epoch Epoch) error) {
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	if n.life.duties != nil {
		panic("raftnode: Lead called twice")
	}
	n.life.duties = duties
	if r := n.instance.Load(); r != nil {
		r.lead.update(func() { r.lead.duties = duties })
	}
}

// Propose logs one encoded command and returns its result, and the index of
// its entry, when it has been applied here. The errors are ErrNotLeader,
// ErrOverloaded and ErrTooLarge (no effect), and ErrOutcomeUnknown; a context
// that ends is wrapped in the one that tells whether the command may happen.
// cmd must not change until Propose returns, nor after ErrOutcomeUnknown.
func (n *Node) Propose(ctx context.Context, cmd []byte) (command.Result, uint64, error) {
	if len(cmd) > command.MaxCommandBytes {
		return command.Result{}, 0, ErrTooLarge
	}
	if err := n.serving(); err != nil {
		return command.Result{}, 0, fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	r := n.running()
	if r == nil {
		return command.Result{}, 0, fmt.Errorf("%w: %s", ErrNotLeader, n.Status().Detail)
	}
	_, c := r.lead.current()
	if c == nil {
		return command.Result{}, 0, ErrNotLeader
	}
	return c.propose(ctx, cmd)
}

// Identity returns who this node is, for the preface of a stream.
func (n *Node) Identity() mux.Identity { return n.identity.Self() }

// CheckPeer is Identity.Check of this node.
func (n *Node) CheckPeer(kind mux.Type, peer mux.Identity) error { return n.identity.Check(kind, peer) }

// Close gives leadership away if it can, lets what is in flight be answered
// and returns when everything the node started has ended. It does not close
// the streams' port.
func (n *Node) Close() error {
	n.life.mu.Lock()
	if n.life.closing {
		n.life.mu.Unlock()
		<-n.life.closed
		return nil
	}
	n.life.closing = true
	n.life.mu.Unlock()
	defer close(n.life.closed)

	if r := n.instance.Load(); r != nil {
		n.leave(r)
	}
	n.life.cancel()
	n.probes.close()
	n.asker.close()
	n.life.wait.Wait()
	n.watchers.close()
	return n.store.Close()
}

// leave gives leadership away if it can, lets what is in flight be answered
// and stops raft.
func (n *Node) leave(r *instance) {
	if peers, _ := r.otherVoters(); len(peers) > 0 && r.raft.State() == raft.Leader {
		ctx, cancel := context.WithTimeout(n.life.ctx, 2*n.config.scaled(baseElection))
		if err := r.transfer(ctx); err != nil {
			n.logger.Warn("could not give leadership away before ending", "err", err)
		}
		cancel()
	}
	r.lead.close(drainTimeout)
	r.shutdown()
}

// serving returns why nothing is served, or nil.
func (n *Node) serving() error {
	if err := n.machine.haltError(); err != nil {
		return err
	}
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	if n.life.closing {
		return ErrClosed
	}
	return nil
}

func (n *Node) running() *instance { return n.instance.Load() }

// addressOf resolves a node ID for a dial.
func (n *Node) addressOf(id string) (string, error) {
	if n.deps.Resolve != nil {
		if addr, ok := n.deps.Resolve(id); ok {
			return addr, nil
		}
	}
	for _, p := range n.config.Join {
		if p.ID == id {
			return p.Addr, nil
		}
	}
	if r := n.running(); r != nil {
		for _, s := range r.raft.GetConfiguration().Configuration().Servers {
			if string(s.ID) == id {
				return string(s.Address), nil
			}
		}
	}
	return "", fmt.Errorf("no address known for node %s", id)
}
