package raftnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/fsm/command"
)

func TestOneNodeIsAWholeCluster(t *testing.T) {
	r := newRig(t, single, "c1")
	r.start("c1")
	h := r.leader()
	index := h.propose(t, "a")
	ctx := context.Background()
	if got, err := h.node.Read(ctx, Linearizable); err != nil || got.Index < index {
		t.Errorf("read %+v, %v after index %d", got, err, index)
	}
	if err := h.node.Snapshot(ctx); err != nil {
		t.Fatal(err)
	}
	h.propose(t, "b")
	first := h.node.Identity()

	r.stop("c1")
	r.start("c1")
	h = r.leader()
	if got := h.node.Identity(); got != first {
		t.Errorf("identity changed from %+v to %+v", first, got)
	}
	if h.state.count("a") != 1 || h.state.count("b") != 1 {
		t.Errorf("after restart: %v", h.state.Count)
	}
	if h.node.Stats().SnapshotIndex != index {
		t.Errorf("snapshot at %d, want %d", h.node.Stats().SnapshotIndex, index)
	}
}

func TestThreeNodesFormOneClusterAndAgree(t *testing.T) {
	r := newRig(t, nil, "c1", "c2", "c3")
	r.startAll()
	leader := r.leader()
	var wait sync.WaitGroup
	const writers, each = 20, 20
	for w := range writers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := range each {
				if _, _, err := leader.node.Propose(context.Background(), fmt.Appendf(nil, "%d/%d", w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wait.Wait()
	last := leader.propose(t, "last")
	cluster := leader.node.Identity().ClusterID
	for id, h := range r.hosts {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		got, err := h.node.Read(ctx, Linearizable)
		cancel()
		if err != nil || got.Index < last {
			t.Errorf("%s reads %+v, %v; the last write is %d", id, got, err, last)
		}
		if n := h.state.total(); n != writers*each+1 {
			t.Errorf("%s has %d commands", id, n)
		}
		if c := h.node.Identity().ClusterID; c == "" || c != cluster {
			t.Errorf("%s is in cluster %q, the leader in %q", id, c, cluster)
		}
		if got := h.node.Leader(); got.ID != leader.id || got.Addr != leader.addr {
			t.Errorf("%s thinks %+v leads", id, got)
		}
		if h != leader {
			if _, _, err := h.node.Propose(context.Background(), []byte("x")); !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s, a follower, answered %v", id, err)
			}
		}
	}
	if n := len(leader.node.Members()); n != 3 {
		t.Errorf("%d members", n)
	}
	stats := leader.node.Stats()
	if entries := stats.LastIndex; entries >= writers*each {
		t.Errorf("%d commands took %d entries: nothing was combined", writers*each, entries)
	}
	eventually(t, "peers' positions on the leader", func() bool {
		for _, p := range leader.node.Stats().Peers {
			if p.LastIndex != stats.LastIndex {
				return false
			}
		}
		return len(leader.node.Stats().Peers) == 2
	})
}

func TestPreVoteIsOnInTheRunningNode(t *testing.T) {
	virtual(t, single, []string{"c1"}, func(t *testing.T, r *rig) {
		r.start("c1")
		node := r.leader().node
		running := reflect.ValueOf(node.running().raft).Elem()
		if off := running.FieldByName("preVoteDisabled"); off.Bool() {
			t.Error("raft runs without pre-vote: the transport does not offer it")
		}
		if conf := node.running().raft.ReloadableConfig(); conf.SnapshotThreshold != defaultSnapshotThreshold {
			t.Errorf("raft got %+v", conf)
		}
	})
}

func TestEveryRaftOptionIsNamed(t *testing.T) {
	source, err := os.ReadFile("config.go")
	if err != nil {
		t.Fatal(err)
	}
	options := reflect.TypeOf(*Config{}.raftConfig(nil, discard))
	for i := range options.NumField() {
		if f := options.Field(i); f.IsExported() && !strings.Contains(string(source), "\t"+f.Name+":") {
			t.Errorf("raft option %s is left to its default", f.Name)
		}
	}
}

func TestConfigurationsThatCannotBecomeAClusterAreRefused(t *testing.T) {
	list := []Peer{{"c1", "h1:1"}, {"c2", "h2:1"}, {"c3", "h3:1"}}
	good := Config{NodeID: "c2", Dir: "d", BootstrapExpect: 3, Join: list}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*Config)
		says   string
	}{
		{"expect differs", func(c *Config) { c.BootstrapExpect = 2 }, "must be equal"},
		{"no list", func(c *Config) { c.Join = nil }, "join list"},
		{"not on the list", func(c *Config) { c.NodeID = "c4" }, "does not contain this node"},
		{"an ID twice", func(c *Config) { c.Join = []Peer{list[0], list[1], {"c1", "h9:1"}} }, "twice"},
		{"an address twice", func(c *Config) { c.Join = []Peer{list[0], list[1], {"c3", "h1:1"}} }, "h1:1"},
		{"an empty address", func(c *Config) { c.Join = []Peer{list[0], list[1], {"c3", ""}} }, "ID=HOST:PORT"},
		{"no ID", func(c *Config) { c.NodeID = "" }, "node ID"},
		{"no directory", func(c *Config) { c.Dir = "" }, "directory"},
		{"too fast", func(c *Config) { c.Multiplier = 0.39 }, "at least 200ms"},
		{"negative", func(c *Config) { c.Multiplier = -1 }, "at least 200ms"},
	} {
		c := good
		test.change(&c)
		if err := c.Check(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestHaltedNodeServesNothing(t *testing.T) {
	virtual(t, single, []string{"c1"}, func(t *testing.T, r *rig) {
		r.start("c1")
		h := r.leader()
		h.propose(t, "before")
		_, _, err := h.node.Propose(context.Background(), []byte("poison"))
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrHalted) {
			t.Errorf("the poison was answered %v", err)
		}
		select {
		case err := <-h.node.Halted():
			if !errors.Is(err, errPoison) {
				t.Errorf("halted by %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("not halted")
		}
		if _, _, err := h.node.Propose(context.Background(), []byte("after")); !errors.Is(err, ErrHalted) || !errors.Is(err, ErrNotLeader) {
			t.Errorf("propose: %v", err)
		}
		for _, level := range []Level{Stale, Linearizable} {
			if _, err := h.node.Read(context.Background(), level); !errors.Is(err, ErrHalted) {
				t.Errorf("read at level %d: %v", level, err)
			}
		}
		if err := h.node.Snapshot(context.Background()); !errors.Is(err, ErrHalted) {
			t.Errorf("snapshot: %v", err)
		}
		if s := h.node.Status(); s.State != Halted {
			t.Errorf("status %+v", s)
		}
		if h.state.count("after") != 0 {
			t.Error("something was applied after the halt")
		}
	})
}

func TestLeadershipMovesOnRequestAndOnClose(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		r.startAll()
		first := r.leader()
		first.propose(t, "a")
		watch, stop := first.node.Watch()
		defer stop()
		if l := <-watch; l.ID != first.id {
			t.Errorf("watch begins with %+v", l)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := first.node.TransferLeadership(ctx); err != nil {
			t.Fatal(err)
		}
		second := r.leader(first.id)
		second.propose(t, "b")
		eventually(t, "the watch to show the new leader", func() bool {
			select {
			case l := <-watch:
				return l.ID == second.id
			default:
				return false
			}
		})
		start := time.Now()
		r.stop(second.id)
		third := r.leader(second.id)
		third.propose(t, "c")
		t.Logf("closing the leader cost %v", time.Since(start))
		if got := third.state.count("a") + third.state.count("b") + third.state.count("c"); got != 3 {
			t.Errorf("%d of 3 commands are left", got)
		}
	})
}

func TestTooLargeCommandIsNotLogged(t *testing.T) {
	virtual(t, single, []string{"c1"}, func(t *testing.T, r *rig) {
		r.start("c1")
		h := r.leader()
		if _, _, err := h.node.Propose(context.Background(), make([]byte, command.MaxCommandBytes+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		h.propose(t, strings.Repeat("x", command.MaxCommandBytes)) // and the largest goes through
	})
}

// single makes a cluster of one.
func single(c *Config, _ *Deps) { c.Join, c.BootstrapExpect = nil, 1 }
