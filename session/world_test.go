package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcd/model"
	"rcd/wire"
)

// bubble runs f in virtual time. yamux keeps a pool of timers for the whole
// process; a timer of one bubble kills the next, so the pool is emptied first.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	for range 3 {
		runtime.GC()
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, nodes: map[string]*node{}}
		f(t, w)
		w.close() // a goroutine that is left fails the bubble
	})
}

// world is controllers and agents on pipes.
type world struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*node
	stops []func()
}

func (w *world) close() {
	for _, stop := range slices.Backward(w.stops) {
		stop()
	}
	for _, n := range w.nodes {
		n.cancel()
		n.cut()
		n.wait.Wait()
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// node is one controller: a hub with a lease table of its own.
type node struct {
	id      string
	w       *world
	hub     *Hub
	roles   RoleCell
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	stopped context.CancelFunc // ends the epoch

	mu       sync.Mutex // guards what follows
	refuse   bool       // connections
	hang     bool       // connections, until their dial gives up
	conns    []*gate
	admitted []wire.Hello
	admit    func(ctx context.Context, h wire.Hello) error
	desired  map[uint64]Desired
	// tableTerm is the epoch that desired is of; 0: whoever asks.
	tableTerm  uint64
	outcomes   []wire.Outcome
	finish     func(ctx context.Context, o wire.Outcome) (bool, error)
	starts     int
	proofs     []wire.Hello
	wantsProof bool
	table      factTable
	index      uint64
	ended      []error // of control sessions
}

func (w *world) node(id string) *node {
	n := &node{id: id, w: w, desired: map[uint64]Desired{}, index: 10}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.hub = NewHub(id, n, quiet())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[id] = n
	return n
}

// lead makes n the leader of a term, and everybody else a follower that knows.
func (w *world) lead(n *node, term uint64) {
	for _, other := range w.nodes {
		if other == n {
			continue
		}
		if other.stopped != nil {
			other.stopped()
			other.stopped = nil
		}
		other.roles.Set(Role{Term: term, Leader: n.id, Addr: n.id})
	}
	if n.stopped != nil {
		n.stopped()
	}
	epoch, stop := context.WithCancel(context.Background())
	n.stopped = stop
	n.hub.Reset()
	n.roles.Set(Role{Leading: true, Epoch: epoch, Generation: 1, Term: term, Leader: n.id, Addr: n.id})
	w.stops = append(w.stops, stop)
}

func (n *node) Role() (Role, <-chan struct{}) { return n.roles.Get() }

func (n *node) Admit(ctx context.Context, h wire.Hello) (Admission, error) {
	n.mu.Lock()
	admit := n.admit
	n.mu.Unlock()
	if admit != nil {
		if err := admit(ctx, h); err != nil {
			return Admission{}, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.admitted = append(n.admitted, h)
	return Admission{ClusterID: "k", Index: n.index, Facts: n.table.held.Digest()}, nil
}

func (n *node) Desired(_ string, term uint64) ([]Desired, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tableTerm != 0 && n.tableTerm != term {
		return nil, false
	}
	var out []Desired
	for _, d := range n.desired {
		out = append(out, d)
	}
	return out, true
}

// jobs is what the node's table wants, whatever its epoch.
func (n *node) jobs() []Desired {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.desired))
}

func (n *node) WantsProof(wire.Hello) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wantsProof
}

func (n *node) Prove(_ context.Context, h wire.Hello) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proofs = append(n.proofs, h)
	return nil
}

func (n *node) Started(_ context.Context, _, _ string, job, lease uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.starts++
	if d, ok := n.desired[job]; ok && d.Lease == lease {
		d.State = model.JobRunning
		n.desired[job] = d
	}
	return nil
}

func (n *node) Finish(ctx context.Context, _, _ string, o wire.Outcome) (uint64, bool, error) {
	n.mu.Lock()
	n.outcomes = append(n.outcomes, o)
	finish := n.finish
	n.mu.Unlock()
	if finish != nil {
		if acked, err := finish(ctx, o); !acked {
			return 0, false, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if d, ok := n.desired[o.Job]; ok && d.Lease == o.Lease {
		delete(n.desired, o.Job)
	}
	n.index++
	return n.index, true, nil
}

func (n *node) Controllers() []wire.Controller {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	var out []wire.Controller
	for id := range n.w.nodes {
		out = append(out, wire.Controller{ID: id, Addr: id})
	}
	slices.SortFunc(out, func(a, b wire.Controller) int { return compareText(a.ID, b.ID) })
	return out
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (n *node) Index() uint64 { n.mu.Lock(); defer n.mu.Unlock(); return n.index }

func (n *node) want(d Desired) {
	n.mu.Lock()
	n.desired[d.Job] = d
	n.mu.Unlock()
	n.hub.Nudge("box")
}

func (n *node) wants() int { n.mu.Lock(); defer n.mu.Unlock(); return len(n.desired) }

func (n *node) hellos() int { n.mu.Lock(); defer n.mu.Unlock(); return len(n.admitted) }

// contact returns what the node knows of the host, if anything.
func (n *node) contact() Contact {
	for _, c := range n.hub.Contacts() {
		return c
	}
	return Contact{}
}

// cut ends every connection of the node, as a kill of the process would.
func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.conns {
		g.Close()
	}
	n.conns = nil
}

func (n *node) refusing(yes bool) { n.mu.Lock(); defer n.mu.Unlock(); n.refuse = yes }

// freeze makes the node swallow and say nothing, as a stopped process would;
// new connections hang.
func (n *node) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.conns {
		close(g.frozen)
	}
	n.conns = nil
	n.hang = true
}

var errRefused = errors.New("connection refused")

// dial returns a connection to a node by its name.
func (w *world) dial(ctx context.Context, addr string, bulk bool, host string) (net.Conn, error) {
	w.mu.Lock()
	n := w.nodes[addr]
	w.mu.Unlock()
	if n == nil { // a host that is off: nothing answers
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n.mu.Lock()
	if n.hang {
		n.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer n.mu.Unlock()
	if n.refuse {
		return nil, errRefused
	}
	near, far := net.Pipe()
	g := &gate{Conn: far, frozen: make(chan struct{}), closed: make(chan struct{})}
	n.conns = append(n.conns, g)
	n.wait.Add(1)
	go func() {
		defer n.wait.Done()
		serve := n.hub.ServeControl
		if bulk {
			serve = n.hub.ServeBytes
		}
		err := serve(n.ctx, g, host)
		n.mu.Lock()
		defer n.mu.Unlock()
		if !bulk {
			n.ended = append(n.ended, err)
		}
	}()
	return near, nil
}

// gate is a connection that can go silent without closing.
type gate struct {
	net.Conn
	frozen chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (g *gate) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	select {
	case <-g.frozen:
		go io.Copy(io.Discard, g.Conn) // a kernel goes on taking bytes for a while
		<-g.closed
		return 0, io.EOF
	default:
		return n, err
	}
}

func (g *gate) Write(b []byte) (int, error) {
	select {
	case <-g.frozen:
		return len(b), nil
	default:
		return g.Conn.Write(b)
	}
}

func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close()
}

// agent runs a link of host "box" until the world ends; stop ends it sooner.
func (w *world) agent(instance string, h *host, addresses ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	l := NewLink(LinkConfig{Host: "box", Instance: instance, Addresses: addresses, Logger: quiet(),
		Dial: func(ctx context.Context, addr string, bulk bool) (net.Conn, error) {
			return w.dial(ctx, addr, bulk, "box")
		}}, h)
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.stops = append(w.stops, stop)
	return stop
}

// within waits for a condition in virtual time and returns how long it took.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) >= limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(start)
}

func bytesHello(host, instance string, term uint64) wire.BytesHello {
	return wire.BytesHello{Host: host, Instance: instance, Term: term}
}
