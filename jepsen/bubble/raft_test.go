package bubble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"rcd/raftnode"
)

func TestCutLeaderIsReplacedAndItsProposersHearTheTruth(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.mustWrite(old, "before")
		c.net.Isolate(old.id)
		cut := time.Now()
		var book ledger
		var wait sync.WaitGroup
		for i := range 20 { // in flight and queued while it still believes to lead
			wait.Add(1)
			go func() {
				defer wait.Done()
				text := fmt.Sprint("stale ", i)
				_, err := old.write(text, time.Minute)
				book.record(text, err)
			}()
			time.Sleep(time.Millisecond)
		}
		wait.Wait()
		if len(book.accepted) != 0 || len(book.unknown) == 0 || len(book.refused) == 0 {
			t.Errorf("accepted %d, unknown %d, refused %d", len(book.accepted), len(book.unknown), len(book.refused))
		}
		if took := time.Since(cut); took > time.Second {
			t.Errorf("the cut leader answered after %v", took)
		}
		if _, err := old.write("late", time.Second); !errors.Is(err, raftnode.ErrNotLeader) {
			t.Errorf("the deposed leader answered %v", err)
		}
		next := c.leader(old.id)
		took := time.Since(cut)
		t.Logf("%s leads %v after %s was cut", next.id, took, old.id)
		if took < 250*time.Millisecond || took > 5*time.Second {
			t.Errorf("another leader after %v: a mere cut takes the timeout path", took)
		}
		c.mustWrite(next, "after")
		c.net.Heal(old.id)
		last := c.mustWrite(next, "healed")
		for _, n := range c.nodes {
			c.eventually(n.id+" to catch up", func() bool { return n.state.Index() >= last })
			book.check(t, n)
			if n.state.count("before") != 1 || n.state.count("after") != 1 {
				t.Errorf("%s: %v", n.id, n.state.Count)
			}
		}
	})
}

func TestLeadershipLostAndRegainedAtOnceIsANewEpoch(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		leader := c.leader()
		var book ledger
		var wait sync.WaitGroup
		stop := make(chan struct{})
		for w := range 4 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					text := fmt.Sprintf("%d/%d", w, i)
					_, err := leader.write(text, time.Second)
					book.record(text, err)
					time.Sleep(9700 * time.Microsecond)
				}
			}()
		}
		const rounds = 50
		first, _ := leader.node.Epoch()
		for range rounds {
			if err := leader.node.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		close(stop)
		wait.Wait()
		if leader = c.leader(); len(book.accepted) < rounds || len(book.accepted) < len(book.refused) {
			t.Errorf("too little load: accepted %d, unknown %d, refused %d", len(book.accepted), len(book.unknown), len(book.refused))
		}
		t.Logf("accepted %d, unknown %d, refused %d, stale in the log %d", len(book.accepted), len(book.unknown), len(book.refused), leader.state.Stale)
		last := c.mustWrite(leader, "last")
		if e, _ := leader.node.Epoch(); e.Term < first.Term+rounds {
			t.Errorf("term %d after %d elections from %d", e.Term, rounds, first.Term)
		}
		for _, n := range c.nodes {
			c.eventually(n.id+" to catch up", func() bool { return n.state.Index() >= last })
			book.check(t, n)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := 1; i < len(c.epochs); i++ {
			if c.epochs[i] <= c.epochs[i-1] {
				t.Fatalf("epochs began in the order %v", c.epochs)
			}
		}
	})
}

func TestWholeClusterRestartsWithEverything(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		for round := range 3 {
			leader := c.leader()
			for i := range 100 {
				c.mustWrite(leader, fmt.Sprintf("%d/%d", round, i))
			}
			if round == 1 {
				if err := leader.node.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for id := range c.nodes {
				c.stop(id)
			}
			time.Sleep(time.Hour)
			for id := range c.nodes {
				c.start(id)
			}
			leader = c.leader()
			for r := range round + 1 {
				for i := range 100 {
					if text := fmt.Sprintf("%d/%d", r, i); leader.state.count(text) != 1 {
						t.Fatalf("after restart %d: %q happened %d times", round, text, leader.state.count(text))
					}
				}
			}
		}
	})
}

func TestReadsOnEveryNodeSeeWhatWasAnswered(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for id, n := range c.nodes { // a majority is enough for a write, and one may not have heard who leads
			c.eventually(id+" to know the leader", func() bool {
				_, err := n.node.Read(t.Context(), raftnode.Linearizable)
				return err == nil
			})
		}
		for i := range 50 {
			text := fmt.Sprint(i)
			index := c.mustWrite(leader, text)
			for id, n := range c.nodes {
				got, err := n.node.Read(t.Context(), raftnode.Linearizable)
				if err != nil || got.Index < index || n.state.count(text) != 1 {
					t.Fatalf("%s reads %+v, %v, %q seen %d times; it was written at %d", id, got, err, text, n.state.count(text), index)
				}
			}
		}
		follower := c.others(leader.id)[0]
		c.net.Isolate(follower.id)
		time.Sleep(30 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if got, err := follower.node.Read(ctx, raftnode.Linearizable); !errors.Is(err, raftnode.ErrNoLeader) {
			t.Errorf("an isolated node reads %+v, %v", got, err)
		}
		got, err := follower.node.Read(ctx, raftnode.Stale)
		if err != nil || got.Index == 0 || got.Age < 29*time.Second {
			t.Errorf("a stale read is %+v, %v", got, err)
		}
	})
}

func TestCutLeaderAnswersNoLinearizableRead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.mustWrite(old, "before")
		c.net.Isolate(old.id)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := old.node.Read(ctx, raftnode.Linearizable)
		if !errors.Is(err, raftnode.ErrNoLeader) || time.Since(start) > time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(start), got, err)
		}
	})
}

func TestReturningFollowerDeposesNobody(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		leader := c.leader()
		epoch, _ := leader.node.Epoch()
		follower := c.others(leader.id)[0]
		c.net.Isolate(follower.id)
		time.Sleep(time.Minute)
		c.mustWrite(leader, "x")
		c.net.Heal(follower.id)
		c.eventually("the follower to catch up", func() bool { return follower.state.count("x") == 1 })
		time.Sleep(time.Minute)
		if now, ok := leader.node.Epoch(); !ok || now.Term != epoch.Term {
			t.Errorf("epoch %+v has become %+v", epoch, now)
		}
	})
}

func TestKilledLeaderIsReplacedInMilliseconds(t *testing.T) {
	for _, size := range []int{3, 5} {
		inBubble(t, size, func(t *testing.T, c *cluster) {
			old := c.leader()
			c.mustWrite(old, "before")
			time.Sleep(time.Second)
			c.net.Kill(old.id)
			start := time.Now()
			next := c.leader(old.id)
			c.mustWrite(next, "after")
			took := time.Since(start)
			t.Logf("%d controllers: next accepted write after %v", size, took)
			if took > 100*time.Millisecond {
				t.Errorf("next accepted write after %v", took)
			}
			c.stop(old.id)
			c.start(old.id)
			c.eventually("the killed one to come back", func() bool { return c.nodes[old.id].state.count("after") == 1 })
			if _, err := next.write("still", time.Second); err != nil {
				t.Errorf("its return cost the new leader: %v", err)
			}
		})
	}
}

// TestFollowerFarBehindGetsASnapshot: the log it needs is compacted away.
func TestFollowerFarBehindGetsASnapshot(t *testing.T) {
	shortLog := func(c *raftnode.Config) { c.Snapshots.TrailingBytes = 64 << 10 }
	inBubbleWith(t, 3, shortLog, func(t *testing.T, c *cluster) {
		leader := c.leader()
		follower := c.others(leader.id)[0]
		c.stop(follower.id)
		for i := range 200 { // past the trailing log
			c.mustWrite(leader, fmt.Sprintf("%03d%1000d", i, 0))
		}
		if err := leader.node.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := leader.node.Stats(); s.FirstIndex < 10 {
			t.Fatalf("the log still begins at %d", s.FirstIndex)
		}
		c.start(follower.id)
		last := c.mustWrite(leader, "last")
		c.eventually("the follower to catch up", func() bool { return follower.state.Index() >= last })
		if n := len(follower.state.Count); n != len(leader.state.Count) {
			t.Errorf("the follower has %d commands, the leader %d", n, len(leader.state.Count))
		}
	})
}

// TestRandomFaultsLoseAndRepeatNothing cuts, kills and deposes at random while
// writers follow the leader; RC_SEED and RC_ROUNDS repeat or lengthen it.
func TestRandomFaultsLoseAndRepeatNothing(t *testing.T) {
	seed, rounds := uint64(time.Now().UnixNano()), 8
	if s, err := strconv.ParseUint(os.Getenv("RC_SEED"), 10, 64); err == nil {
		seed = s
	}
	if n, err := strconv.Atoi(os.Getenv("RC_ROUNDS")); err == nil {
		rounds = n
	}
	t.Logf("RC_SEED=%d RC_ROUNDS=%d (raft draws its own jitter besides)", seed, rounds)
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		random := rand.New(rand.NewPCG(seed, 1))
		var book ledger
		var wait sync.WaitGroup
		stop := make(chan struct{})
		nodes := make([]*raftnode.Node, 0, len(c.list)) // restarts are not among the faults
		states := make([]*controller, 0, len(c.list))
		for _, p := range c.list {
			nodes, states = append(nodes, c.nodes[p.ID].node), append(states, c.nodes[p.ID])
		}
		for w := range 6 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				at := w % len(nodes)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					text := fmt.Sprintf("%d/%d", w, i)
					ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
					_, _, err := nodes[at].Propose(ctx, []byte(text))
					cancel()
					book.record(text, err)
					if err != nil {
						at = (at + 1) % len(nodes)
					}
					time.Sleep(50 * time.Millisecond)
				}
			}()
		}
		for range rounds {
			victim := c.list[random.IntN(len(c.list))].ID
			switch random.IntN(5) {
			case 0:
				c.net.Isolate(victim)
			case 1:
				c.net.Cut(victim, c.others(victim)[random.IntN(2)].id)
			case 2:
				c.net.Isolate(c.leader().id)
			case 3:
				c.leader().node.TransferLeadership(t.Context())
			case 4:
				c.nodes[victim].node.Campaign(t.Context())
			}
			time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
			for id := range c.nodes {
				c.net.Heal(id)
			}
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		close(stop)
		wait.Wait()
		last := c.mustWrite(c.leader(), "last")
		t.Logf("accepted %d, unknown %d, refused %d", len(book.accepted), len(book.unknown), len(book.refused))
		if len(book.accepted) < 50*rounds {
			t.Errorf("too little load: accepted %d", len(book.accepted))
		}
		for _, n := range states {
			c.eventually(n.id+" to catch up", func() bool { return n.state.Index() >= last })
			book.check(t, n)
		}
	})
}
