package raftnode

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// reins lets a test say whose duties fail, and records what ran.
type reins struct {
	mu      sync.Mutex
	broken  map[string]bool
	running map[string]int
	epochs  map[string][]Epoch
	overlap bool
}

var errBroken = errors.New("cannot establish")

// drive registers duties for a host in place of the rig's.
func (d *reins) drive(h *host) {
	h.node.life.mu.Lock()
	h.node.life.duties = nil
	h.node.life.mu.Unlock()
	h.node.Lead(func(ctx context.Context, e Epoch) error {
		d.mu.Lock()
		if d.broken[h.id] {
			d.mu.Unlock()
			return errBroken
		}
		d.running[h.id]++
		d.overlap = d.overlap || d.running[h.id] > 1
		d.epochs[h.id] = append(d.epochs[h.id], e)
		d.mu.Unlock()
		<-ctx.Done()
		time.Sleep(100 * time.Millisecond) // slow to end
		d.mu.Lock()
		d.running[h.id]--
		d.mu.Unlock()
		return ctx.Err()
	})
}

func newReins() *reins {
	return &reins{broken: map[string]bool{}, running: map[string]int{}, epochs: map[string][]Epoch{}}
}

func TestDutiesThatCannotStartGiveLeadershipAway(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		d := newReins()
		for _, id := range three {
			d.drive(r.start(id))
		}
		first := r.leader()
		first.propose(t, "a")
		d.mu.Lock()
		d.broken[first.id] = true
		d.mu.Unlock()
		if err := first.node.Campaign(t.Context()); err != nil { // a new epoch here
			t.Fatal(err)
		}
		start := time.Now()
		next := r.leader(first.id)
		next.propose(t, "b")
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("the others waited %v", took)
		}
		if !r.log.contains(errBroken.Error()) {
			t.Error("nobody was told why")
		}
	})
}

func TestSilenceLosesLeadershipWhereNoTransferWorks(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		r.startAll()
		first := r.leader()
		in := first.node.running()
		silent := make(chan struct{})
		go func() { in.silence(t.Context()); close(silent) }()
		r.leader(first.id).propose(t, "a")
		<-silent
		eventually(t, "the silent node to follow", func() bool { return first.state.count("a") == 1 })
	})
}

func TestDutiesOfASingleNodeAreTriedAgain(t *testing.T) {
	virtual(t, single, []string{"c1"}, func(t *testing.T, r *rig) {
		var tries atomic.Int32
		h := r.start("c1")
		h.node.life.mu.Lock()
		h.node.life.duties = nil
		h.node.life.mu.Unlock()
		h.node.Lead(func(ctx context.Context, _ Epoch) error {
			if tries.Add(1) < 3 {
				return errBroken
			}
			<-ctx.Done()
			return nil
		})
		eventually(t, "the third try", func() bool { return tries.Load() >= 3 && h.node.IsLeader() })
		h.propose(t, "x")
	})
}

// TestRegainWithinAMillisecondIsANewEpoch: the node wins the election that it
// starts against itself before any goroutine has noticed the loss.
func TestRegainWithinAMillisecondIsANewEpoch(t *testing.T) {
	virtual(t, nil, three, func(t *testing.T, r *rig) {
		d := newReins()
		for _, id := range three {
			d.drive(r.start(id))
		}
		h := r.leader()
		h.propose(t, "a")
		before, _ := h.node.Epoch()
		const rounds = 20
		for range rounds {
			if err := h.node.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		h.propose(t, "b")
		after, _ := h.node.Epoch()
		if after.Term < before.Term+rounds || after.BeginIndex <= before.BeginIndex || !after.Started.After(before.Started) {
			t.Errorf("epoch %+v, then %+v", before, after)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.overlap {
			t.Error("duties of two epochs ran at once")
		}
		if n := len(d.epochs[h.id]); n != rounds+1 {
			t.Errorf("duties ran %d times", n)
		}
		if r.hosts["c1"].state.Begins != rounds+1 {
			t.Errorf("%d epochs were begun", r.hosts["c1"].state.Begins)
		}
	})
}
