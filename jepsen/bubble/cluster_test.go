package bubble

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcd/fsm/command"
	"rcd/internal/mux"
	"rcd/raftnode"
)

// register is a state machine whose commands are texts: it keeps how often
// each was applied, and the rule of epochs.
type register struct {
	mu    sync.Mutex
	Count map[string]int
	Epoch uint64
	At    uint64
	Stale int // commands refused as from another epoch
}

const begin = "epoch.begin"

func (s *register) Apply(index, term uint64, data []byte) ([]command.Result, []command.Event, error) {
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
		case text == begin && entry.Term == term:
			s.Epoch = term
		case text == begin || entry.Term != term || s.Epoch != term:
			results[i].Code = command.StaleEpoch
			s.Stale++
		default:
			s.Count[text]++
		}
	}
	s.At = index
	return results, nil, nil
}

type image []byte

func (i image) WriteTo(w io.Writer) (int64, error) { return bytes.NewReader(i).WriteTo(w) }

func (s *register) Snapshot() (raftnode.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s)
	return image(data), err
}

func (s *register) Restore(r io.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Count = nil
	return json.NewDecoder(r).Decode(s)
}

func (s *register) Index() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.At
}

func (s *register) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Count[text]
}

// controller is one node of a cluster.
type controller struct {
	id    string
	dir   string
	node  *raftnode.Node
	port  *mux.Listener
	state *register
}

// cluster is a few controllers on one network.
type cluster struct {
	t      *testing.T
	config func(*raftnode.Config)
	net    *Network
	nodes  map[string]*controller
	list   []raftnode.Peer

	mu     sync.Mutex // guards what follows
	duties map[string]int
	epochs []uint64
	twice  bool // duties of two epochs at once on one node
}

var key = mux.Key{Name: "cluster", Secret: []byte("bubble")}

// inBubble runs a scenario on a cluster of n that has formed.
func inBubble(t *testing.T, n int, scenario func(t *testing.T, c *cluster)) {
	t.Helper()
	inBubbleWith(t, n, func(*raftnode.Config) {}, scenario)
}

// inBubbleWith changes each controller's configuration first.
func inBubbleWith(t *testing.T, n int, config func(*raftnode.Config), scenario func(t *testing.T, c *cluster)) {
	t.Helper()
	wall := time.Now()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(10 * time.Minute) }) // runs last
		c := &cluster{t: t, config: config, net: NewNetwork(), nodes: map[string]*controller{}, duties: map[string]int{}}
		for i := range n {
			id := fmt.Sprintf("c%d", i+1)
			c.nodes[id] = &controller{id: id, dir: t.TempDir()}
			c.list = append(c.list, raftnode.Peer{ID: id, Addr: id + ":7001"})
		}
		t.Cleanup(func() {
			for id := range c.nodes {
				c.stop(id)
			}
		})
		for id := range c.nodes {
			c.start(id)
		}
		c.leader()
		scenario(t, c)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.twice {
			t.Error("duties of two epochs ran at once on one node")
		}
	})
	t.Logf("wall time %v", time.Since(wall))
}

func (c *cluster) start(id string) {
	c.t.Helper()
	n := c.nodes[id]
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("RC_BUBBLE_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	identity, err := raftnode.LoadIdentity(n.dir, id)
	must(err)
	inner, err := c.net.Listen(id + ":7001")
	must(err)
	n.port, err = mux.NewListener(inner, mux.Config{ClusterKey: key, Self: identity.Self, Check: identity.Check, Logger: logger})
	must(err)
	n.state = &register{Count: map[string]int{}}
	config := raftnode.Config{NodeID: id, Dir: n.dir, BootstrapExpect: len(c.list), Join: c.list}
	c.config(&config)
	n.node, err = raftnode.Open(config, raftnode.Deps{
		Identity: identity, Streams: n.port, StateMachine: n.state, Logger: logger,
		Dialer:     &mux.Dialer{Self: identity.Self, Check: identity.Check, Key: key, DialContext: c.net.Dialer(id)},
		EpochBegin: func(uint64, time.Time) []byte { return []byte(begin) },
	})
	must(err)
	n.node.Lead(func(ctx context.Context, e raftnode.Epoch) error {
		c.mu.Lock()
		c.duties[id]++
		c.twice = c.twice || c.duties[id] > 1
		c.epochs = append(c.epochs, e.Term)
		c.mu.Unlock()
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond) // slow to end
		c.mu.Lock()
		c.duties[id]--
		c.mu.Unlock()
		return nil
	})
}

func (c *cluster) stop(id string) {
	n := c.nodes[id]
	if n.node == nil {
		return
	}
	if err := n.node.Close(); err != nil {
		c.t.Errorf("close %s: %v", id, err)
	}
	n.node = nil
	n.port.Close()
	c.net.Heal(id)
}

// eventually polls in virtual time.
func (c *cluster) eventually(what string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	c.t.Fatalf("%s: not within a virtual minute", what)
}

// leader returns the controller with the latest open epoch, not one of except.
func (c *cluster) leader(except ...string) *controller {
	c.t.Helper()
	var found *controller
	c.eventually("a leader", func() bool {
		var term uint64
		for id, n := range c.nodes {
			if n.node == nil || strings.Contains(strings.Join(except, " "), id) {
				continue
			}
			if e, ok := n.node.Epoch(); ok && e.Term > term {
				found, term = n, e.Term
			}
		}
		return term > 0
	})
	return found
}

func (c *cluster) others(id string) (out []*controller) {
	for _, p := range c.list {
		if p.ID != id {
			out = append(out, c.nodes[p.ID])
		}
	}
	return out
}

func (n *controller) write(text string, timeout time.Duration) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, index, err := n.node.Propose(ctx, []byte(text))
	return index, err
}

func (c *cluster) mustWrite(n *controller, text string) uint64 {
	c.t.Helper()
	index, err := n.write(text, 5*time.Second)
	if err != nil {
		c.t.Fatalf("write %q on %s: %v", text, n.id, err)
	}
	return index
}

// ledger is what writers were told about their commands.
type ledger struct {
	mu                         sync.Mutex
	accepted, refused, unknown []string
}

func (l *ledger) record(text string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.accepted = append(l.accepted, text)
	case errors.Is(err, raftnode.ErrOutcomeUnknown):
		l.unknown = append(l.unknown, text)
	case errors.Is(err, raftnode.ErrNotLeader), errors.Is(err, raftnode.ErrOverloaded):
		l.refused = append(l.refused, text)
	default:
		panic(err)
	}
}

// check compares a state with what the writers were told: accepted commands
// happened once, refused ones never, unknown ones at most once.
func (l *ledger) check(t *testing.T, n *controller) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.accepted {
		if got := n.state.count(text); got != 1 {
			t.Errorf("%s: accepted command %q happened %d times", n.id, text, got)
		}
	}
	for _, text := range l.refused {
		if got := n.state.count(text); got != 0 {
			t.Errorf("%s: refused command %q happened %d times", n.id, text, got)
		}
	}
	for _, text := range l.unknown {
		if got := n.state.count(text); got > 1 {
			t.Errorf("%s: command %q of unknown outcome happened %d times", n.id, text, got)
		}
	}
}
