package raftnode

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcd/internal/mux"
)

func (r *rig) wipe(id string) {
	r.t.Helper()
	r.stop(id)
	if err := os.RemoveAll(r.hosts[id].dir); err != nil {
		r.t.Fatal(err)
	}
}

func TestNobodyBootstrapsBeforeAllHaveAnswered(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		c1, c2 := r.start("c1"), r.start("c2")
		eventually(t, "c1 to say whom it waits for", func() bool {
			return c1.node.Status() == Status{Forming, "waiting for c3"}
		})
		for _, h := range []*host{c1, c2} {
			if id := h.node.Identity(); id.ClusterID != "" {
				t.Errorf("%s is already in cluster %s", h.id, id.ClusterID)
			}
			if _, err := h.node.Read(t.Context(), Stale); !errors.Is(err, ErrNoLeader) {
				t.Errorf("%s reads: %v", h.id, err)
			}
			if _, _, err := h.node.Propose(t.Context(), []byte("x")); !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s proposes: %v", h.id, err)
			}
		}
		r.start("c3")
		r.leader().propose(t, "x")
	})
}

func TestNodesWithDifferentJoinListsFormNothing(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		r.config = func(c *Config, d *Deps) {
			if c.NodeID == "c3" {
				c.Join = []Peer{r.list[0], r.list[2]}
				c.BootstrapExpect = 2
			}
		}
		r.startAll()
		for _, id := range []string{"c1", "c2", "c3"} {
			node := r.hosts[id].node
			eventually(t, id+" to see the difference", func() bool {
				return strings.Contains(node.Status().Detail, "the join lists differ: ")
			})
			if node.Identity().ClusterID != "" {
				t.Errorf("%s formed a cluster", id)
			}
		}
	})
}

func TestRestartOfAllWithTheSameFlagsChangesNothing(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		r.startAll()
		r.leader().propose(t, "x")
		before := map[string]mux.Identity{}
		for id, h := range r.hosts {
			before[id] = h.node.Identity()
		}
		for id := range r.hosts {
			r.stop(id)
		}
		r.startAll()
		h := r.leader()
		h.propose(t, "y")
		if h.state.count("x") != 1 {
			t.Error("the state is lost")
		}
		for id, h := range r.hosts {
			if got := h.node.Identity(); got != before[id] {
				t.Errorf("%s was %+v, is %+v", id, before[id], got)
			}
		}
	})
}

func TestWipedMajorityFormsNoRivalCluster(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		r.startAll()
		r.leader().propose(t, "x")
		cluster := r.hosts["c1"].node.Identity().ClusterID
		r.stop("c1")
		r.wipe("c2")
		r.wipe("c3")
		r.startAll()
		for _, id := range []string{"c2", "c3"} {
			node := r.hosts[id].node
			eventually(t, id+" to say what to do", func() bool {
				d := node.Status().Detail
				return strings.Contains(d, "c1 already belongs to cluster "+cluster) && strings.Contains(d, "rejoin as a new node")
			})
		}
		time.Sleep(time.Minute)
		for id, h := range r.hosts {
			if h.node.IsLeader() {
				t.Errorf("%s leads", id)
			}
		}
		for _, id := range []string{"c2", "c3"} {
			if got := r.hosts[id].node.Identity(); got.ClusterID != "" {
				t.Errorf("%s is in cluster %s", id, got.ClusterID)
			}
		}
	})
}

func TestWipedFirstNodeFormsNoRivalCluster(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		r.startAll()
		r.leader().propose(t, "x")
		r.wipe("c1")
		wiped := r.start("c1")
		eventually(t, "c1 to say what to do", func() bool {
			return strings.Contains(wiped.node.Status().Detail, "c2 already belongs to cluster ")
		})
		h := r.leader("c1")
		h.propose(t, "y")
		if h.state.count("x") != 1 {
			t.Error("the state is lost")
		}
		// Its vote would count under its old ID, if anybody let it in.
		if err := h.node.CheckPeer(mux.Raft, mux.Identity{NodeID: "c1", Incarnation: wiped.node.Identity().Incarnation}); err == nil {
			t.Error("a wiped node is let in under its old ID")
		}
	})
}

// TestInterruptedBootstrapIsFinished covers a kill of the first node at each
// point between asking the others to join and having raft state itself.
func TestInterruptedBootstrapIsFinished(t *testing.T) {
	members := func(r *rig, ids ...string) map[string]string {
		m := map[string]string{}
		for _, id := range ids {
			identity, err := LoadIdentity(r.hosts[id].dir, id)
			if err != nil {
				t.Fatal(err)
			}
			m[id] = identity.Self().Incarnation
		}
		return m
	}
	join := func(r *rig, id, cluster string, m map[string]string) {
		identity, err := LoadIdentity(r.hosts[id].dir, id)
		if err == nil {
			err = identity.join(cluster, firstGeneration, m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name  string
		leave func(r *rig)
	}{
		{"one other has joined", func(r *rig) { join(r, "c2", "first-try", members(r, "c1", "c2", "c3")) }},
		{"all have joined", func(r *rig) {
			for _, id := range []string{"c1", "c2", "c3"} {
				join(r, id, "first-try", members(r, "c1", "c2", "c3"))
			}
		}},
		{"between raft's two writes", func(r *rig) {
			for _, id := range []string{"c1", "c2", "c3"} {
				join(r, id, "first-try", members(r, "c1", "c2", "c3"))
			}
			s, err := openLogStore(r.hosts["c1"].dir)
			if err == nil {
				err = errors.Join(s.SetUint64(keyCurrentTerm, 1), s.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			virtual(t, nil, three, func(t *testing.T, r *rig) {
				test.leave(r)
				r.startAll()
				h := r.leader()
				h.propose(t, "x")
				eventually(t, "one cluster", func() bool {
					for _, other := range r.hosts {
						if other.node.Identity().ClusterID != h.node.Identity().ClusterID || other.state.count("x") != 1 {
							return false
						}
					}
					return true
				})
			})
		})
	}
}

func TestIdentityOfADirectoryIsNotGuessed(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadIdentity(dir, "c1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadIdentity(dir, "c1")
	if err != nil || again.Self() != first.Self() {
		t.Errorf("loaded again: %+v, %v", again.Self(), err)
	}
	if _, err := LoadIdentity(dir, "c2"); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "belongs to node c1") {
		t.Errorf("under another ID: %v", err)
	}
	path := filepath.Join(dir, identityFile)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(dir, "c1"); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), path) {
		t.Errorf("damaged: %v", err)
	}
	s, err := openLogStore(dir)
	if err == nil {
		err = errors.Join(s.Close(), os.Remove(path))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(dir, "c1"); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "rejoin as a new node") {
		t.Errorf("log without identity: %v", err)
	}
}

func TestIdentityFileIsFrozen(t *testing.T) {
	id := &Identity{path: filepath.Join(t.TempDir(), identityFile), rec: record{
		Version: 1, NodeID: "c1", Incarnation: "inc-1", ClusterID: "cl-1", Generation: 1,
		Members: map[string]string{"c1": "inc-1", "c2": "inc-2"},
	}}
	if err := id.SetMember("c3", "inc-3"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(id.path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "identity.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the identity file has changed:\n%s", got)
	}
}
