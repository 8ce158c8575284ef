package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/internal/mux"
)

func TestNodeHaltedForGoodGivesLeadershipAwayAndIsRefusedUntilWiped(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		r.startAll()
		bad := r.leader()
		bad.propose(t, "before")
		began := time.Now()
		bad.node.Halt("its table is damaged; empty the directory")
		bad.node.Halt("said twice")
		if _, err := bad.node.Read(context.Background(), Stale); !errors.Is(err, ErrHalted) {
			t.Errorf("a halted node reads: %v", err)
		}
		if s := bad.node.Status(); s.State != Halted || !strings.Contains(s.Detail, "its table is damaged") {
			t.Errorf("status %+v", s)
		}
		next := r.leader(bad.id)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next leader took %v: leadership was not given, it was missed", took)
		}
		next.propose(t, "after")
		if bad.state.count("after") != 0 {
			t.Error("a halted node applied something")
		}
		r.stop(bad.id)
		if _, err := LoadIdentity(bad.dir, bad.id); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "its table is damaged") {
			t.Errorf("the directory is taken again: %v", err)
		}
		if err := os.RemoveAll(bad.dir); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadIdentity(bad.dir, bad.id); err != nil {
			t.Errorf("an emptied directory is refused: %v", err)
		}
	})
}

func TestHaltOfAClosingNodeIsRecorded(t *testing.T) {
	var n *Node
	halt := func(c *Config, d *Deps) {
		d.OnApply = func(uint64, uint64, []command.Event) {
			n.life.mu.Lock()
			closing := n.life.closing
			n.life.mu.Unlock()
			if closing {
				n.Halt("damaged")
			}
		}
	}
	virtual(t, func(c *Config, d *Deps) { single(c, d); halt(c, d) }, []string{"c1"}, func(t *testing.T, r *rig) {
		h := r.start("c1")
		n = h.node
		r.leader()
		n.life.mu.Lock()
		n.life.closing = true // as Close does first, with entries still in flight
		n.life.mu.Unlock()
		_, c := n.running().lead.current()
		_, _, _ = c.propose(context.Background(), []byte("last"))
		n.life.mu.Lock()
		n.life.closing = false
		n.life.mu.Unlock()
		r.stop("c1")
		if _, err := LoadIdentity(h.dir, "c1"); !errors.Is(err, ErrHalted) {
			t.Errorf("the halt is not on disk: %v", err)
		}
	})
}

// oldBuild is a state machine that cannot read the snapshots of this cluster.
type oldBuild struct{ *tally }

func (oldBuild) Restore(io.Reader) error {
	return fmt.Errorf("%w: this build is too old; upgrade it", ErrHalted)
}

// onePort gives every channel the same listener.
type onePort struct{ net.Listener }

func (p onePort) Channel(mux.Type) net.Listener { return p.Listener }

func TestSnapshotThatNeedsAnotherBuildHaltsTheNode(t *testing.T) {
	old := ""
	change := func(c *Config, d *Deps) {
		c.Snapshots.TrailingBytes = 1
		if c.NodeID == old {
			d.StateMachine = oldBuild{d.StateMachine.(*tally)}
		}
	}
	virtual(t, change, three, func(t *testing.T, r *rig) {
		r.startAll()
		leader := r.leader()
		for _, id := range three {
			if id != leader.id {
				old = id
			}
		}
		r.stop(old)
		for i := range 2 * minTrailingLogs {
			leader.propose(t, fmt.Sprint(i))
		}
		if err := leader.node.Snapshot(context.Background()); err != nil {
			t.Fatal(err)
		}
		h := r.start(old)
		eventually(t, "a halt", func() bool { return h.node.Status().State == Halted })
		if s := h.node.Status(); !strings.Contains(s.Detail, "upgrade it") {
			t.Errorf("status %+v", s)
		}
		if err := <-h.node.Halted(); !errors.Is(err, ErrHalted) {
			t.Errorf("halted by %v", err)
		}
		r.stop(old)
		// It is not for good: another build of it goes on.
		h, old = r.hosts[old], ""
		r.start(h.id)
		eventually(t, "the other build", func() bool { return h.state.count("1") == 1 })
		if err := h.node.Snapshot(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.stop(h.id)
		// A snapshot of its own that it cannot read is the reason that Open
		// gives.
		identity, err := LoadIdentity(h.dir, h.id)
		if err != nil {
			t.Fatal(err)
		}
		old = h.id
		port, err := r.net.Listen("spare:7001")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := Open(Config{NodeID: h.id, Dir: h.dir, BootstrapExpect: 3, Join: r.list}, Deps{
			Identity: identity, StateMachine: oldBuild{newTally()},
			Streams: onePort{port}, EpochBegin: func(uint64, time.Time) []byte { return nil },
		}); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "upgrade it") {
			t.Errorf("opened on it: %v, %v", n, err)
		}
	})
}
