package raftnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"rcd/fsm/command"
	"rcd/internal/mux"
	"rcd/jepsen/bubble"
)

const beginPrefix = "begin:"

// tally is a state machine whose commands are texts: it keeps how often each
// was applied, and the rule of epochs.
type tally struct {
	mu     sync.Mutex
	Count  map[string]int
	Epoch  uint64
	At     uint64
	Begins int
}

func newTally() *tally { return &tally{Count: map[string]int{}} }

var errPoison = errors.New("poison")

func (s *tally) Apply(index, term uint64, data []byte) ([]command.Result, []command.Event, error) {
	entry, err := command.DecodeEntry(data)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]command.Result, len(entry.Commands))
	for i, cmd := range entry.Commands {
		text := string(cmd)
		switch {
		case text == "poison":
			return nil, nil, errPoison
		case strings.HasPrefix(text, beginPrefix):
			if entry.Term != term {
				results[i].Code = command.StaleEpoch
				continue
			}
			s.Epoch = term
			s.Begins++
		case entry.Term != term || s.Epoch != term:
			results[i].Code = command.StaleEpoch
		default:
			s.Count[text]++
			results[i].Message = text
		}
	}
	s.At = index
	return results, []command.Event{{Index: index, Term: term}}, nil
}

type tallySnapshot []byte

func (s tallySnapshot) WriteTo(w io.Writer) (int64, error) { return bytes.NewReader(s).WriteTo(w) }

func (s *tally) Snapshot() (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s)
	return tallySnapshot(data), err
}

func (s *tally) Restore(r io.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Count = nil
	return json.NewDecoder(r).Decode(s)
}

func (s *tally) Index() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.At
}

func (s *tally) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Count[text]
}

func (s *tally) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.Count {
		n += c
	}
	return n
}

// host is a node on loopback TCP whose process can be killed or whose links
// can be cut.
type host struct {
	id    string
	dir   string
	addr  string
	node  *Node
	state *tally
	port  *mux.Listener
	dead  bool
}

// rig is a few hosts, on loopback TCP or, inside a synctest bubble, on an
// in-memory network.
type rig struct {
	t      *testing.T
	config func(*Config, *Deps)
	hosts  map[string]*host
	list   []Peer
	log    *lines
	net    fabric
}

// fabric is what connects the hosts and can fail.
type fabric interface {
	Listen(addr string) (net.Listener, error)
	Dialer(from string) func(ctx context.Context, network, addr string) (net.Conn, error)
	Isolate(id string) // connections end, nothing answers
	Kill(id string)    // connections end, the port refuses
	Heal(id string)
}

// lines is a log that a test can search.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

// newRig makes hosts on loopback TCP; nothing is started.
func newRig(t *testing.T, change func(*Config, *Deps), ids ...string) *rig {
	t.Helper()
	f := &tcpFabric{cut: map[string]bool{}, killed: map[string]bool{}, conns: map[string][]net.Conn{}, owner: map[string]string{}}
	r := newRigOn(t, f, change)
	for _, id := range ids {
		l, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		f.owner[l.Addr().String()] = id
		r.add(id, l.Addr().String())
	}
	return r
}

// virtual runs a test in a bubble, with hosts on an in-memory network.
func virtual(t *testing.T, change func(*Config, *Deps), ids []string, test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(10 * time.Minute) }) // runs last: timers of raft's transport end
		r := newRigOn(t, bubble.NewNetwork(), change)
		for _, id := range ids {
			r.add(id, id+":7001")
		}
		test(t, r)
	})
}

var three = []string{"c1", "c2", "c3"}

func newRigOn(t *testing.T, f fabric, change func(*Config, *Deps)) *rig {
	r := &rig{t: t, config: change, hosts: map[string]*host{}, log: &lines{}, net: f}
	t.Cleanup(func() {
		for _, h := range r.hosts {
			r.stop(h.id)
		}
		if t.Failed() && testing.Verbose() {
			t.Log(r.log.buf.String())
		}
	})
	return r
}

func (r *rig) add(id, addr string) {
	r.hosts[id] = &host{id: id, dir: r.t.TempDir(), addr: addr}
	r.list = append(r.list, Peer{id, addr})
}

// tcpFabric is loopback TCP.
type tcpFabric struct {
	mu     sync.Mutex // guards what follows
	cut    map[string]bool
	killed map[string]bool
	conns  map[string][]net.Conn
	owner  map[string]string // address to host
	ports  map[string]net.Listener
}

type trackedListener struct {
	net.Listener
	fabric *tcpFabric
	id     string
}

func (l *trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.fabric.keep(l.id, c)
	}
	return c, err
}

func (f *tcpFabric) Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ports == nil {
		f.ports = map[string]net.Listener{}
	}
	f.ports[f.owner[addr]] = l
	return &trackedListener{l, f, f.owner[addr]}, nil
}

func (f *tcpFabric) keep(id string, c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut[id] || f.killed[id] {
		reset(c)
		return
	}
	f.conns[id] = append(f.conns[id], c)
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// resetAll needs f.mu.
func (f *tcpFabric) resetAll(id string) {
	for _, c := range f.conns[id] {
		reset(c)
	}
	f.conns[id] = nil
}

func (f *tcpFabric) Isolate(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[id] = true
	f.resetAll(id)
}

func (f *tcpFabric) Kill(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports[id].Close()
	f.killed[id] = true
	f.resetAll(id)
}

func (f *tcpFabric) Heal(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cut, id)
	delete(f.killed, id)
}

func (f *tcpFabric) Dialer(id string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		f.mu.Lock()
		blocked := f.cut[id] || f.killed[id] || f.cut[f.owner[addr]]
		f.mu.Unlock()
		if blocked {
			return nil, &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		if err == nil {
			f.keep(id, c)
		}
		return c, err
	}
}

// start opens the node of a host on its port.
func (r *rig) start(id string) *host {
	r.t.Helper()
	h := r.hosts[id]
	inner, err := r.net.Listen(h.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	identity, err := LoadIdentity(h.dir, id)
	if err != nil {
		r.t.Fatal(err)
	}
	key := mux.Key{Name: "cluster", Secret: []byte("test key")}
	h.port, err = mux.NewListener(inner, mux.Config{ClusterKey: key, Self: identity.Self, Check: identity.Check, Logger: logger.With("node", id)})
	if err != nil {
		r.t.Fatal(err)
	}
	h.state = newTally()
	config := Config{NodeID: id, Dir: h.dir, BootstrapExpect: len(r.list), Join: r.list}
	deps := Deps{
		Identity: identity, Streams: h.port, StateMachine: h.state, Logger: logger,
		Dialer:     &mux.Dialer{Self: identity.Self, Check: identity.Check, Key: key, DialContext: r.net.Dialer(id)},
		EpochBegin: func(term uint64, _ time.Time) []byte { return fmt.Appendf(nil, "%s%d", beginPrefix, term) },
	}
	if r.config != nil {
		r.config(&config, &deps)
	}
	h.node, err = Open(config, deps)
	if err != nil {
		r.t.Fatal(err)
	}
	h.node.Lead(func(ctx context.Context, _ Epoch) error { <-ctx.Done(); return nil })
	h.dead = false
	return h
}

// kill ends a host's process as far as others can see: the port closes and
// every connection is reset, without a word.
func (r *rig) kill(id string) {
	r.hosts[id].dead = true
	r.net.Kill(id)
}

// stop closes a node in good order, or clears away a killed one.
func (r *rig) stop(id string) {
	h := r.hosts[id]
	if h.node != nil {
		if err := h.node.Close(); err != nil {
			r.t.Errorf("close %s: %v", id, err)
		}
		h.node = nil
	}
	if h.port != nil {
		h.port.Close()
		h.port = nil
	}
	r.net.Heal(id)
}

func (r *rig) startAll() {
	r.t.Helper()
	for _, p := range r.list {
		r.start(p.ID)
	}
}

// leader waits for an open epoch on a host that is not excluded.
func (r *rig) leader(except ...string) *host {
	r.t.Helper()
	var found *host
	eventually(r.t, "a leader", func() bool {
		for _, h := range r.hosts {
			if h.node != nil && !h.dead && !strings.Contains(strings.Join(except, " "), h.id) && h.node.IsLeader() {
				found = h
				return true
			}
		}
		return false
	})
	return found
}

func (h *host) propose(t *testing.T, text string) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	got, index, err := h.node.Propose(ctx, []byte(text))
	if err != nil {
		t.Fatalf("propose %q: %v", text, err)
	}
	if got.Message != text {
		t.Fatalf("propose %q answered %+v", text, got)
	}
	return index
}

// eventually polls; the bound is for a loaded machine, not a promise.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("%s: not within 20 s", what)
}
