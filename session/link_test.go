package session

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"rcd/internal/codec"
	"rcd/model"
	"rcd/wire"
)

func TestAgentFindsTheLeaderThroughAFollowerAndRunsAJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c2, 5)
		c2.want(want(1, 10, model.JobAssigned))
		h := newHost()
		w.agent("i1", h, "c1")
		took := within(t, time.Second, "attached to c2", func() bool { return c2.contact().Attached })
		if took > 100*time.Millisecond {
			t.Errorf("one redirect took %v", took)
		}
		within(t, time.Second, "job recorded as running", func() bool {
			return len(c2.jobs()) == 1 && c2.jobs()[0].State == model.JobRunning
		})
		if !c2.hub.Ordered(1, 10) || c2.hub.Ordered(1, 11) {
			t.Error("the hub does not know which start it has written")
		}
		h.end(wire.Outcome{Job: 1, Lease: 10})
		within(t, time.Second, "outcome taken and acked", func() bool { return c2.wants() == 0 && h.pending() == 0 })
		if c1.contact().LastHeard.IsZero() {
			t.Error("contact with a follower does not count")
		}
		if len(h.controllers) != 2 {
			t.Errorf("controllers known to the agent: %v", h.controllers)
		}
	})
}

func TestADeadFirstAddressCostsASecond(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		w.agent("i1", newHost(), "off", "c1")
		if took := within(t, 3*time.Second, "attached", func() bool { return c1.contact().Attached }); took > 1200*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestAgentWaitsOnAFollowerForThePush(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2, c3 := w.node("c1"), w.node("c2"), w.node("c3")
		w.agent("i1", newHost(), "c1", "c2", "c3")
		time.Sleep(10 * time.Second) // nobody leads: it goes from one to the next
		for _, n := range []*node{c1, c2, c3} {
			if silent := time.Since(n.contact().LastHeard); silent > 5*time.Second {
				t.Errorf("%s has not heard the agent for %v", n.id, silent)
			}
		}
		w.lead(c3, 5)
		if took := within(t, time.Second, "attached", func() bool { return c3.contact().Attached }); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestAgentFollowsALeaderThatStepsDownAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c1, 5)
		h := newHost()
		w.agent("i1", h, "c1", "c2")
		within(t, time.Second, "attached to c1", func() bool { return c1.contact().Attached })
		w.lead(c2, 6)
		if took := within(t, time.Second, "attached to c2", func() bool { return c2.contact().Attached }); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
		within(t, time.Second, "detached from c1", func() bool { return !c1.contact().Attached })
	})
}

func TestAgentLeavesASilentLeaderWithinEightSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c1, 5)
		c1.want(want(1, 10, model.JobAssigned))
		h := newHost()
		w.agent("i1", h, "c1", "c2")
		within(t, time.Second, "attached to c1", func() bool { return c1.contact().Attached })
		time.Sleep(7 * time.Second)
		c1.freeze()
		time.Sleep(2 * time.Second)
		c2.want(want(1, 10, model.JobRunning))
		w.lead(c2, 6)
		within(t, 4*time.Second, "attached to c2", func() bool { return c2.contact().Attached })
		time.Sleep(5 * time.Second)
		if n := h.orderCount(); n != 1 {
			t.Errorf("%d orders, want the first start only: the job was adopted", n)
		}
	})
}

func TestAnAgentStaysForThePushWhileFollowersNameADeadLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2, c3 := w.node("c1"), w.node("c2"), w.node("c3")
		w.lead(c1, 5)
		w.agent("i1", newHost(), "c1", "c2", "c3")
		within(t, time.Second, "attached to c1", func() bool { return c1.contact().Attached })
		c1.freeze()
		c1.refusing(true)
		c1.mu.Lock()
		c1.hang = false
		c1.mu.Unlock()
		time.Sleep(5300 * time.Millisecond) // c1 has been left, dialled again and refused
		heard := max(heardBy(c2), heardBy(c3))
		time.Sleep(650 * time.Millisecond)
		if now := max(heardBy(c2), heardBy(c3)); now != heard {
			t.Errorf("another hello within 650 ms: the agent runs to and fro")
		}
		w.lead(c3, 6)
		if took := within(t, time.Second, "attached to c3", func() bool { return c3.contact().Attached }); took > 200*time.Millisecond {
			t.Errorf("took %v after the election", took)
		}
	})
}

// heardBy counts the sessions that a node has had or has.
func heardBy(n *node) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

func TestABrokenLinkToALivingLeaderIsMendedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.node("c2")
		w.node("c3")
		w.lead(c1, 5)
		w.agent("i1", newHost(), "c1", "c2", "c3")
		within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
		c1.cut()
		if took := within(t, time.Second, "attached again", func() bool { return c1.hellos() == 2 && c1.contact().Attached }); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestTheAddressBookTriesWhatFailedLast(t *testing.T) {
	b := newAddressBook([]string{"a", "b", "x"}, []wire.Controller{{ID: "1", Addr: "x"}, {ID: "2", Addr: "y"}})
	if got := []string{b.next(), b.next(), b.next(), b.next(), b.next()}; !slices.Equal(got, []string{"x", "y", "a", "b", "x"}) {
		t.Errorf("round %q: those the cluster gave come first, each once", got)
	}
	b.lead("b")
	if got := []string{b.next(), b.next()}; !slices.Equal(got, []string{"b", "y"}) {
		t.Errorf("after a word about the leader %q", got)
	}
	b.failed("a", true)
	b.failed("b", false)
	if got := []string{b.next(), b.next(), b.next()}; slices.Contains(got, "a") || slices.Contains(got, "b") {
		t.Errorf("%q, and a and b have just failed", got)
	}
	if !b.avoided("a") || b.avoided("b") {
		t.Error("only what did not answer is not believed to lead")
	}
	for _, addr := range []string{"x", "y"} {
		b.failed(addr, true)
	}
	if b.next() == "" {
		t.Error("nobody is tried when all have failed")
	}
	if b.update(b.known) || !b.update([]wire.Controller{{ID: "3", Addr: "z"}}) || b.update(nil) {
		t.Error("a list counts when it is another one and not empty")
	}
}

func TestAgentLeavesAKilledLeaderAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2, c3 := w.node("c1"), w.node("c2"), w.node("c3")
		w.lead(c1, 5)
		w.agent("i1", newHost(), "c1", "c2", "c3")
		within(t, time.Second, "attached to c1", func() bool { return c1.contact().Attached })
		c1.refusing(true)
		c1.cut()
		time.Sleep(300 * time.Millisecond) // the followers still name c1
		w.lead(c2, 6)
		if took := within(t, 3*time.Second, "attached to c2", func() bool { return c2.contact().Attached }); took > 600*time.Millisecond {
			t.Errorf("took %v after the election", took)
		}
		_ = c3
	})
}

func TestOutcomeIsRepeatedUntilItIsAcked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		c1.want(want(1, 10, model.JobAssigned))
		c1.finish = func(context.Context, wire.Outcome) (bool, error) { return false, errors.New("overloaded") }
		h := newHost()
		w.agent("i1", h, "c1")
		within(t, time.Second, "started", func() bool { return h.orderCount() == 1 })
		h.end(wire.Outcome{Job: 1, Lease: 10})
		time.Sleep(21 * time.Second)
		c1.mu.Lock()
		tries := len(c1.outcomes)
		c1.finish = nil
		c1.mu.Unlock()
		if tries < 4 || tries > 10 {
			t.Errorf("%d tries in 21 s, want one about every 5 s", tries)
		}
		if h.pending() != 1 {
			t.Fatal("the agent forgot an outcome that nobody acked")
		}
		within(t, 6*time.Second, "acked", func() bool { return h.pending() == 0 })
	})
}

func TestOutcomesWaitForTheNextLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		h := newHost()
		h.end(wire.Outcome{Job: 1, Lease: 10})
		h.end(wire.Outcome{Job: 2, Lease: 11})
		w.agent("i1", h, "c1", "c2")
		time.Sleep(time.Minute)
		if h.pending() != 2 {
			t.Fatal("outcomes were dropped without a leader")
		}
		w.lead(c2, 5)
		within(t, 2*time.Second, "both acked", func() bool { return h.pending() == 0 })
		_ = c1
	})
}

// raw is a controller by hand: what a buggy or stale one might say.
func raw(t *testing.T, wait *sync.WaitGroup, script func(in *messages)) func(context.Context, string, bool) (net.Conn, error) {
	return func(ctx context.Context, _ string, _ bool) (net.Conn, error) {
		near, far := net.Pipe()
		wait.Add(1)
		go func() {
			defer wait.Done()
			defer far.Close()
			tr, err := newTransport(far, controlProfile, false, quiet())
			if err != nil {
				t.Error(err)
				return
			}
			defer tr.close()
			conn, err := tr.accept(context.Background())
			if err != nil {
				return
			}
			script(&messages{conn: conn})
		}()
		return near, nil
	}
}

// drain reads until the agent closes and returns the acks.
func drain(in *messages) (acks []wire.OrderAck) {
	for {
		msg, err := in.receive(time.Minute)
		if err != nil {
			return acks
		}
		switch {
		case msg.OrderAck != nil:
			acks = append(acks, *msg.OrderAck)
		case msg.Heartbeat != nil:
			if in.send(wire.AgentMessage{HeartbeatAck: &wire.HeartbeatAck{Seq: msg.Heartbeat.Seq}}) != nil {
				return acks
			}
		}
	}
}

func runRaw(t *testing.T, config LinkConfig, h *host, life time.Duration, script func(in *messages)) {
	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	config.Host, config.Instance, config.Addresses, config.Logger = "box", "i1", []string{"x"}, quiet()
	var wait sync.WaitGroup
	config.Dial = raw(t, &wait, script)
	NewLink(config, h).Run(ctx)
	wait.Wait()
}

func TestNoOrderOfAnOldTermIsObeyed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := newHost()
		var acks []wire.OrderAck
		runRaw(t, LinkConfig{Generation: 1, Term: 4}, h, 4*time.Second, func(in *messages) {
			hello, err := in.receive(time.Second)
			if err != nil || hello.Hello == nil || hello.Hello.Term != 4 {
				t.Errorf("hello %+v, %v", hello.Hello, err)
			}
			in.send(wire.AgentMessage{Welcome: &wire.Welcome{Leader: "x", Generation: 1, Term: 5}})
			in.send(wire.AgentMessage{Order: &wire.Order{Generation: 1, Term: 4, Seq: 1, Kind: wire.OrderStart, Job: 1, Lease: 10}})
			in.send(wire.AgentMessage{Order: &wire.Order{Generation: 0, Term: 9, Seq: 2, Kind: wire.OrderKill, Job: 1, Lease: 10}})
			in.send(wire.AgentMessage{Order: &wire.Order{Generation: 1, Term: 4, Seq: 3, Kind: wire.OrderBytes}})
			in.send(wire.AgentMessage{Order: &wire.Order{Generation: 1, Term: 6, Seq: 4, Kind: wire.OrderStart, Job: 2, Lease: 11}})
			acks = drain(in)
		})
		var codes []string
		for _, a := range acks {
			codes = append(codes, a.Code)
		}
		if want := []string{wire.OrderStaleTerm, wire.OrderStaleTerm, wire.OrderStaleTerm, ""}; !slices.Equal(codes, want) {
			t.Errorf("acks %q, want %q", codes, want)
		}
		if h.orderCount() != 1 || h.orders[0].Job != 2 {
			t.Errorf("obeyed %+v, want the last order only", h.orders)
		}
		if want := []string{"seen 5", "welcome x", "seen 6", "order 6"}; !slices.Equal(h.trace(), want) {
			t.Errorf("events %q, want %q: a term is on disk before its orders", h.trace(), want)
		}
	})
}

func TestAWelcomeOfAnOldTermIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := newHost()
		runRaw(t, LinkConfig{Generation: 2, Term: 7}, h, 3*time.Second, func(in *messages) {
			in.receive(time.Second)
			in.send(wire.AgentMessage{Welcome: &wire.Welcome{Leader: "x", Generation: 1, Term: 8}})
			in.send(wire.AgentMessage{Order: &wire.Order{Generation: 1, Term: 8, Seq: 1, Kind: wire.OrderStart, Job: 1, Lease: 10}})
			drain(in)
		})
		if h.orderCount() != 0 || len(h.trace()) != 0 {
			t.Errorf("obeyed %+v, events %q", h.orders, h.trace())
		}
	})
}

func TestNothingIsObeyedWhenTheTermCannotBeKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := newHost()
		h.seenErr = errors.New("disk full")
		runRaw(t, LinkConfig{}, h, 3*time.Second, func(in *messages) {
			in.receive(time.Second)
			in.send(wire.AgentMessage{Welcome: &wire.Welcome{Leader: "x", Generation: 1, Term: 8}})
			in.send(wire.AgentMessage{Order: &wire.Order{Generation: 1, Term: 8, Seq: 1, Kind: wire.OrderStart, Job: 1, Lease: 10}})
			drain(in)
		})
		if h.orderCount() != 0 {
			t.Errorf("obeyed %+v", h.orders)
		}
	})
}

func TestALinkSurvivesGarbage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h, tries := newHost(), 0
		runRaw(t, LinkConfig{}, h, 10*time.Second, func(in *messages) {
			tries++
			in.receive(time.Second)
			codec.WriteRaw(in.conn, []byte{0xff, 0x00}, 10)
			drain(in)
		})
		if tries < 10 || tries > 200 {
			t.Errorf("%d tries in 10 s, want one every 50 to 500 ms", tries)
		}
	})
}
