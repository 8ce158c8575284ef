package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"rcd/api"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/internal/ident"
	"rcd/internal/mux"
	"rcd/raftnode"
	"rcd/session"
)

// Controller is one node of a cluster. Its exported methods beyond Run and
// Close serve the interfaces of the packages that it joins; all may be called
// concurrently.
type Controller struct {
	config   Config
	log      *slog.Logger
	identity *raftnode.Identity
	machine  *fsm.Machine
	node     *raftnode.Node
	hub      *session.Hub

	role        session.RoleCell
	live        *session.Liveness
	heartbeats  *heartbeats
	reach       *reach
	clocks      *clocks
	notify      *notifier
	events      *api.EventLog
	peerClient  *api.PeerClient
	verdicts    *verdictGate
	words       words
	doubts      session.Doubts
	quarantines quarantines
	alarms      alarms
	webhooks    *webhooks // nil: none are sent
	copying     *copying
	opened      chan struct{} // closed when node is set

	told told

	streams *mux.Listener
	web     net.Listener
	life    lifetime
	leading leading
}

// leading is this node's own epoch, nil while it has none.
type leading struct {
	mu   sync.Mutex
	role *session.Role
	last raftnode.Leader // as raft last told
}

// lifetime owns the controller's goroutines.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelFunc
	failed chan error // the first reason to end that is not a request

	mu     sync.Mutex // guards closed, and wait.Add against wait.Wait
	closed bool
	wait   sync.WaitGroup
}

// New starts a controller: it listens, joins or forms its cluster in the
// background, and serves. Nothing is left behind when it fails.
func New(config Config, deps Deps) (_ *Controller, err error) {
	tokens, err := config.check()
	if err != nil {
		return nil, errors.Join(err, closeGiven(deps))
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	log := deps.Logger.With("node", config.NodeID)
	if err := os.MkdirAll(config.DataDir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("make the data directory: %w", err), closeGiven(deps))
	}
	identity, err := raftnode.LoadIdentity(config.DataDir, config.NodeID)
	if err != nil {
		return nil, errors.Join(err, closeGiven(deps))
	}
	stream, web, err := listen(config, deps)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		config: config, log: log, identity: identity, web: web,
		machine: fsm.New(deps.Table), opened: make(chan struct{}),
		live: session.NewLiveness(time.Now()), heartbeats: newHeartbeats(time.Now()), reach: newReach(time.Now()), clocks: newClocks(config.NodeID), notify: newNotifier(), events: api.NewEventLog(), verdicts: newVerdictGate(),
	}
	c.copying = newCopying(c, config, deps, log)
	c.webhooks = newWebhooks(config, deps, identity.Self().ClusterID == "")
	if err := checkLevel(identity, c.machine.Knows()); err != nil {
		return nil, errors.Join(err, stream.Close(), web.Close())
	}
	c.life.ctx, c.life.cancel = context.WithCancel(context.Background())
	c.life.failed = make(chan error, 1)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	c.streams, err = mux.NewListener(stream, mux.Config{
		ClusterKey: config.clusterKey(), WorkerKeys: tokens.Workers,
		Self: identity.Self, Check: identity.Check, Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	c.hub = session.NewHub(config.NodeID, agents{c}, log)
	dialer := &mux.Dialer{Self: identity.Self, Key: config.clusterKey(), DialContext: deps.DialContext, Check: identity.Check}
	c.peerClient = api.NewPeerClient(func(ctx context.Context, nodeID string) (net.Conn, error) {
		return c.dialPeer(ctx, dialer, nodeID)
	})
	var table raftnode.StateMachine = replica{c}
	if deps.Replica != nil {
		table = deps.Replica(table)
	}
	c.node, err = raftnode.Open(raftnode.Config{
		NodeID: config.NodeID, Dir: config.DataDir, BootstrapExpect: config.BootstrapExpect, Join: config.Join,
		Multiplier: config.RaftMultiplier,
	}, raftnode.Deps{
		Identity: identity, Streams: c.streams, Dialer: dialer,
		StateMachine: table, EpochBegin: c.epochBegin, OnApply: c.applied, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	if c.webhooks != nil {
		// What the log holds from before the first start with webhooks is not owed.
		c.webhooks.outbox.begin(api.PlaceAfter(identity.Self().Generation, c.node.Stats().LastIndex))
		if err := c.webhooks.save(true); err != nil {
			return nil, err
		}
	}
	close(c.opened)
	c.node.Lead(c.lead)
	c.serve(api.Config{NodeID: config.NodeID, Instance: ident.New(), Tokens: tokens, Logger: log, EventsTokenInURL: config.EventsTokenInURL})
	log.Info("controller started", "listen", stream.Addr(), "http", web.Addr(), "version", config.Version)
	return c, nil
}

func closeGiven(deps Deps) error {
	var errs []error
	for _, l := range []net.Listener{deps.Listener, deps.HTTPListener} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// serve starts everything that runs as long as the controller does.
func (c *Controller) serve(config api.Config) {
	forward := c.streams.Channel(mux.Forward)
	c.goes(func() { c.end(api.Serve(c.life.ctx, forward, api.NewInternal(config, c, c), c.log)) })
	c.goes(func() { c.end(api.Serve(c.life.ctx, c.web, api.New(config, c), c.log)) })
	control, bulk := c.streams.Channel(mux.Agent), c.streams.Channel(mux.Bytes)
	c.goes(func() { c.acceptAgents(control, c.hub.ServeControl) })
	c.goes(func() { c.acceptAgents(bulk, c.hub.ServeBytes) })
	c.goes(func() { c.followLeader(c.life.ctx) })
	c.goes(func() { c.reportContacts(c.life.ctx) })
	c.goes(func() { c.tellHalt(c.life.ctx) })
	c.goes(func() { c.copying.run(c.life.ctx) })
	if c.webhooks != nil {
		c.goes(func() { c.webhooks.keep(c.life.ctx) })
	}
}

// tellHalt says again and again that this node has halted, until ctx ends. The
// process stays: it is where an operator looks for the reason.
func (c *Controller) tellHalt(ctx context.Context) {
	var why error
	select {
	case why = <-c.node.Halted():
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(alarmEvery)
	defer tick.Stop()
	for {
		c.log.Error("this controller has halted and serves nothing but rc raft status", "why", why)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Run serves until ctx ends, then gives leadership away and closes. It returns
// the reason when the controller ended by itself: a lost port. One that has
// halted goes on, to say why.
func (c *Controller) Run(ctx context.Context) error {
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-c.life.failed:
	}
	return errors.Join(failed, c.Close())
}

// Close ends the controller and everything that it started. Agents and clients
// find another node; jobs are not touched.
func (c *Controller) Close() error {
	c.life.mu.Lock()
	if c.life.closed {
		c.life.mu.Unlock()
		c.life.wait.Wait()
		return nil
	}
	c.life.closed = true
	c.life.mu.Unlock()
	var errs []error
	if leader := c.Leader(); c.webhooks != nil && leader.Self {
		c.webhooks.flush(leader.Changed) // nobody else sends while this node leads
	}
	if c.node != nil {
		errs = append(errs, c.node.Close())
	}
	c.life.cancel()
	if c.streams != nil {
		errs = append(errs, c.streams.Close())
	}
	if err := c.web.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		errs = append(errs, err)
	}
	if c.peerClient != nil {
		c.peerClient.Close()
	}
	c.life.wait.Wait()
	return errors.Join(errs...)
}

// goes runs f in a goroutine that Close waits for; false when it is too late.
func (c *Controller) goes(f func()) bool {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	if c.life.closed {
		return false
	}
	c.life.wait.Add(1)
	go func() {
		defer c.life.wait.Done()
		f()
	}()
	return true
}

// end makes Run return, unless the controller is closing anyway.
func (c *Controller) end(err error) {
	if err == nil || c.life.ctx.Err() != nil {
		return
	}
	select {
	case c.life.failed <- err:
	default:
	}
}

// acceptAgents serves each accepted connection of agents until it ends.
func (c *Controller) acceptAgents(l net.Listener, serve func(ctx context.Context, conn net.Conn, peerHost string) error) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // the port is closed
		}
		peer := conn.(*mux.Conn).Peer()
		if !c.goes(func() {
			if err := serve(c.life.ctx, conn, peer.NodeID); err != nil {
				c.log.Debug("session of an agent ended", "host", peer.NodeID, "err", err)
			}
		}) {
			conn.Close()
		}
	}
}

// replica is the lease table as raftnode sees it.
type replica struct{ c *Controller }

func (r replica) Apply(index, term uint64, data []byte) ([]command.Result, []command.Event, error) {
	return r.c.machine.Apply(index, term, data)
}

func (r replica) Snapshot() (raftnode.Snapshot, error) {
	if r.c.webhooks != nil {
		return keptSnapshot{r.c.machine.Snapshot(), r.c.webhooks}, nil
	}
	return r.c.machine.Snapshot(), nil
}

func (r replica) Index() uint64 { return r.c.machine.Index() }

// Restore replaces the table; no events tell what changed.
func (r replica) Restore(from io.Reader) error {
	err := r.c.machine.Restore(from)
	if errors.Is(err, fsm.ErrFeatureLevel) {
		return fmt.Errorf("%w: %w; start the build that the other controllers run", raftnode.ErrHalted, err)
	}
	if err != nil {
		return err
	}
	view := r.c.machine.View()
	r.c.told.entrySays(time.UnixMilli(view.NowMS()))
	r.c.events.Restored(view)
	if r.c.webhooks != nil {
		r.c.webhooks.outbox.restored(view)
	}
	r.c.copying.restored()
	r.c.noteLevel()
	r.c.notify.all()
	r.c.hub.NudgeAll()
	return nil
}

// applied is called for each entry on the state machine's goroutine, and must
// not block it.
func (c *Controller) applied(_, _ uint64, events []command.Event) {
	view := c.machine.View()
	c.told.entrySays(time.UnixMilli(view.NowMS()))
	c.events.Applied(view, events)
	if c.webhooks != nil {
		c.webhooks.outbox.applied(view, events)
	}
	c.copying.applied(events)
	c.notify.events(events)
	if c.Leader().Self {
		c.tellFleet(events) // each controller would say the same
	}
	for _, e := range events {
		switch e.Kind {
		case command.EventJobPlaced, command.EventKillRequested, command.EventJobEnded, command.EventJobRequeued, command.EventLeaseEnded,
			command.EventJobExtended:
			if e.Host != "" {
				c.hub.Nudge(e.Host)
			}
		case command.EventDeviceState:
			if e.Reason != "" {
				c.quarantines.note(e.Host, e.Index)
			}
		case command.EventCheckpoint:
			c.compared()
		case command.EventDiverged:
			if c.Leader().Self && e.Reason != c.config.NodeID {
				c.log.Error("a controller's lease table differs from the majority's; it halts, and returns only with an empty data directory", "controller", e.Reason, "index", e.Index)
			}
		case command.EventNoMajority:
			c.undecided(e.Index)
		case command.EventFeature:
			c.noteLevel()
		case command.EventInvariant:
			c.log.Error("an entry broke an invariant and was undone whole; report this with the output of rc raft log", "index", e.Index, "invariant", e.Reason)
		}
	}
}
