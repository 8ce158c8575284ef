package raftnode

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestKilledLeaderIsReplacedAtOnce: the election timeout alone would take 0.5
// to 2 s. The bound leaves room for a loaded machine.
func TestKilledLeaderIsReplacedAtOnce(t *testing.T) {
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("RC_KILL_ROUNDS")); err == nil {
		rounds = n // to measure
	}
	for range rounds {
		r := newRig(t, nil, "c1", "c2", "c3")
		r.startAll()
		old := r.leader()
		old.propose(t, "before")
		start := time.Now()
		r.kill(old.id)
		next := r.leader(old.id)
		next.propose(t, "after")
		took := time.Since(start)
		t.Logf("next accepted write after %v", took)
		if took > 450*time.Millisecond {
			t.Errorf("next accepted write after %v", took)
		}
		if !r.log.contains("electing another now") {
			t.Error("it was not forced")
		}
		if next.state.count("before") != 1 {
			t.Error("an acknowledged command is lost")
		}
		for id := range r.hosts {
			r.stop(id)
		}
	}
}

// TestCutLeaderIsNeverForcedOut: its links end the same way, but new
// connections find no route instead of a refusal, so it may well be alive and
// leading others.
func TestCutLeaderIsNeverForcedOut(t *testing.T) {
	r := newRig(t, nil, "c1", "c2", "c3")
	r.startAll()
	old := r.leader()
	old.propose(t, "before")
	r.net.Isolate(old.id)
	next := r.leader(old.id)
	next.propose(t, "after")
	if r.log.contains("electing another now") {
		t.Error("an election was forced")
	}
	eventually(t, "the old leader to step down", func() bool { return !old.node.IsLeader() })
	r.net.Heal(old.id)
	eventually(t, "the old leader to follow", func() bool { return old.state.count("after") == 1 })
}

// TestLeaderThatOneVoterCannotReachStays: one follower loses its connections
// and finds the port refused, the other does not.
func TestLeaderThatOneVoterCannotReachStays(t *testing.T) {
	asked := make(chan string, 100)
	r := newRig(t, func(c *Config, d *Deps) {
		d.AskRefused = func(_ context.Context, peer, _, _ string, _ uint64) (Sighting, error) {
			asked <- peer
			return Sighting{Refused: false}, nil
		}
	}, "c1", "c2", "c3")
	r.startAll()
	old := r.leader()
	old.propose(t, "before")
	// With its port closed and its connections kept, the leader goes on over
	// those; then one of them, to one follower, ends.
	r.net.(*tcpFabric).ports[old.id].Close()
	var follower *host
	for _, h := range r.hosts {
		if h != old {
			follower = h
		}
	}
	follower.node.running().transport.streams.onLost(old.id)
	select {
	case <-asked:
	case <-time.After(5 * time.Second):
		t.Fatal("the other voter was not asked")
	}
	time.Sleep(100 * time.Millisecond) // longer than any rank waits
	if r.log.contains("electing another now") || !old.node.IsLeader() {
		t.Error("a leader that a majority can reach was deposed")
	}
	old.propose(t, "still")
}

func TestForcingHasItsLimits(t *testing.T) {
	r := newRig(t, nil, "c1", "c2", "c3")
	r.startAll()
	leader := r.leader()
	leader.propose(t, "x")
	var f *forcer
	var follower *host
	for _, h := range r.hosts {
		if h != leader {
			follower = h
		}
	}
	in := follower.node.running()
	f = newForcer(follower.node, in)
	term := in.raft.CurrentTerm()
	allowed := func() bool { return f.mayForce(leader.id, term) }
	eventually(t, "the follower to know its leader", allowed)

	if f.mayForce("c9", term) {
		t.Error("forced for a peer that does not lead")
	}
	if f.mayForce(leader.id, term-1) {
		t.Error("forced for a past term")
	}
	f.forcedTerm = term
	if allowed() {
		t.Error("forced twice in one term")
	}
	f.forcedTerm = 0
	f.forcedAt = []time.Time{time.Now(), time.Now(), time.Now()}
	if allowed() {
		t.Error("forced a fourth time within a minute")
	}
	f.forcedAt = []time.Time{time.Now(), time.Now(), time.Now().Add(-2 * forcedWindow)}
	if !allowed() {
		t.Error("a forced election of long ago still counts")
	}
	in.transport.sawVote(term + 1)
	if allowed() {
		t.Error("forced although somebody asks votes for a later term")
	}
	in = leader.node.running()
	if newForcer(leader.node, in).mayForce(leader.id, term) {
		t.Error("a leader forced itself out")
	}
}
