package session

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"rcd/model"
	"rcd/wire"
)

func TestRefusalReachesTheAgentAndIsNotRetriedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		var count atomic.Int32
		c1.admit = func(context.Context, wire.Hello) error {
			count.Add(1)
			return &Refusal{"wrong_machine", "retire the host first"}
		}
		w.lead(c1, 5)
		w.agent("i1", newHost(), "c1")
		time.Sleep(21 * time.Second)
		if tries := count.Load(); tries < 4 || tries > 9 {
			t.Errorf("%d tries in 21 s, want one about every 5 s", tries)
		}
		c1.mu.Lock()
		defer c1.mu.Unlock()
		var r *Refusal
		if !errors.As(c1.ended[0], &r) || r.Code != "wrong_machine" {
			t.Errorf("session ended with %v", c1.ended[0])
		}
	})
}

func TestBadHellosAreRefusedWithASentence(t *testing.T) {
	for _, tt := range []struct {
		name, host string
		protocol   int
		code       string
	}{
		{"another host than authenticated", "other", wire.AgentProtocol, RefusedHost},
		{"no host", "", wire.AgentProtocol, RefusedHost},
		{"another protocol", "box", wire.AgentProtocol + 1, RefusedProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.lead(w.node("c1"), 5)
				conn, err := w.dial(context.Background(), "c1", false, "box")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				tr, err := newTransport(conn, controlProfile, true, quiet())
				if err != nil {
					t.Fatal(err)
				}
				defer tr.close()
				stream, err := tr.open(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				m := &messages{conn: stream}
				if err := m.send(wire.AgentMessage{Hello: &wire.Hello{Protocol: tt.protocol, Host: tt.host}}); err != nil {
					t.Fatal(err)
				}
				msg, err := m.receive(time.Second)
				if err != nil || msg.Refused == nil || msg.Refused.Code != tt.code || msg.Refused.Message == "" {
					t.Errorf("got %+v, %v; want refusal %s", msg.Refused, err, tt.code)
				}
			})
		})
	}
}

func TestHeartbeatsDoNotWaitForProposals(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		c1.finish = func(ctx context.Context, _ wire.Outcome) (bool, error) { <-ctx.Done(); return false, ctx.Err() }
		h := newHost()
		for i := range uint64(200) { // more than a session works on at once
			h.end(wire.Outcome{Job: i + 1, Lease: i + 1})
		}
		w.agent("i1", h, "c1")
		time.Sleep(time.Minute)
		if n := c1.hellos(); n != 1 || !c1.contact().Attached {
			t.Errorf("%d sessions, attached %v; want the first to last", n, c1.contact().Attached)
		}
		c1.mu.Lock()
		if n := len(c1.outcomes); n != maxWorking {
			t.Errorf("%d proposals at once, want %d", n, maxWorking)
		}
		c1.mu.Unlock()
	})
}

func TestASilentAgentIsDetachedAfterFiveSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		stop := w.agent("i1", newHost(), "c1")
		within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
		c1.mu.Lock()
		g := c1.conns[0]
		c1.mu.Unlock()
		close(g.frozen)
		stop()
		took := within(t, 10*time.Second, "detached", func() bool { return !c1.contact().Attached })
		if took < 2*time.Second || took > 6*time.Second {
			t.Errorf("detached after %v", took)
		}
		if c := c1.contact(); c.DetachedSince.IsZero() || time.Since(c.LastHeard) < 2*time.Second {
			t.Errorf("contact %+v", c)
		}
	})
}

func TestContactsSayWhatTheHostSaid(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c1, 5)
		h := newHost()
		h.jobs[jobKey{1, 10}] = has(1, 10, wire.PhaseRunning)
		c1.want(want(1, 10, model.JobRunning))
		w.agent("i1", h, "c1", "c2")
		time.Sleep(time.Minute)
		c := c1.contact()
		if c.Host != "box" || c.Instance != "i1" || !c.Attached || !c1.hub.Attached("box") || time.Since(c.AttachedSince) < 59*time.Second || !c.DetachedSince.IsZero() {
			t.Errorf("contact %+v", c)
		}
		if time.Since(c.LastHeard) > HeartbeatEvery || !slices.Equal(c.Named, h.Jobs()) || time.Since(time.UnixMilli(c.WallMS)) > HeartbeatEvery+time.Millisecond {
			t.Errorf("heard %v ago, named %v, wall %v", time.Since(c.LastHeard), c.Named, time.UnixMilli(c.WallMS))
		}
		if len(c2.hub.Contacts()) != 0 {
			t.Error("c2 has heard nobody")
		}
	})
}

func TestTheNewerSessionAndTheNewerInstanceWin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		w.agent("i1", newHost(), "c1")
		within(t, time.Second, "i1 attached", func() bool { return c1.contact().Instance == "i1" && c1.contact().Attached })
		stop := w.stops[len(w.stops)-1]
		w.agent("i2", newHost(), "c1")
		within(t, time.Second, "i2 attached", func() bool { return c1.contact().Instance == "i2" && c1.contact().Attached })
		stop()
		c1.mu.Lock()
		defer c1.mu.Unlock()
		if len(c1.ended) == 0 || !errors.Is(c1.ended[0], errReplaced) {
			t.Errorf("sessions ended with %v", c1.ended)
		}
	})
}

func TestAnOrderWithoutEffectIsWrittenAgainAfterFiveSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		h.obey = func(wire.Order) wire.OrderAck { return wire.OrderAck{Code: wire.OrderFailed, Message: "disk full"} }
		w.agent("i1", h, "c1")
		within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
		c1.want(want(1, 10, model.JobAssigned))
		for range 50 {
			c1.hub.Nudge("box")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(15 * time.Second)
		if n := h.orderCount(); n < 3 || n > 5 {
			t.Errorf("%d orders in 20 s, want one about every 5 s", n)
		}
	})
}

func TestAKillIsOrderedOnANudge(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		c1.want(want(1, 10, model.JobAssigned))
		h := newHost()
		w.agent("i1", h, "c1")
		within(t, time.Second, "running", func() bool { return c1.wants() == 1 && c1.jobs()[0].State == model.JobRunning })
		c1.want(killed(want(1, 10, model.JobRunning), "killed by ann"))
		if took := within(t, time.Second, "ended", func() bool { return c1.wants() == 0 }); took > 100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if last := h.orders[len(h.orders)-1]; last.Kind != wire.OrderKill || last.Reason != "killed by ann" || last.Term != 5 || last.Generation != 1 {
			t.Errorf("order %+v", last)
		}
	})
}

func TestJobsOfAnotherLeaseAreKilledOnReturn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		h.jobs[jobKey{1, 3}] = has(1, 3, wire.PhaseRunning)
		h.jobs[jobKey{2, 4}] = has(2, 4, wire.PhaseRunning)
		c1.want(want(1, 10, model.JobAssigned))
		w.agent("i1", h, "c1")
		within(t, time.Second, "old ones ended, new one running", func() bool {
			jobs := h.Jobs()
			return len(jobs) == 1 && jobs[0] == has(1, 10, wire.PhaseRunning)
		})
		var kinds []wire.OrderKind
		for _, o := range h.orders {
			kinds = append(kinds, o.Kind)
		}
		if want := []wire.OrderKind{wire.OrderKill, wire.OrderKill, wire.OrderStart}; !slices.Equal(kinds[:3], want) {
			t.Errorf("orders %v, want the kills first", kinds)
		}
	})
}

func TestResetStartsContactAnew(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		c1.want(want(1, 10, model.JobAssigned))
		stop := w.agent("i1", newHost(), "c1")
		within(t, time.Second, "ordered", func() bool { return c1.hub.Ordered(1, 10) })
		stop()
		time.Sleep(time.Minute)
		c1.hub.Reset()
		begun := time.Now()
		time.Sleep(time.Second)
		if c := c1.contact(); c.Attached || begun.Sub(c.LastHeard) < time.Minute-HeartbeatEvery || !c.DetachedSince.Equal(begun) {
			t.Errorf("contact %+v, want it to count from %v, and what was heard before as it was", c, begun)
		}
		if c1.hub.Ordered(1, 10) {
			t.Error("an order of the epoch before is remembered")
		}
	})
}

func TestOrderLogForgetsOnTheSafeSide(t *testing.T) {
	var o orderLog
	for i := range uint64(maxOrdered + 1) {
		o.add(i, i+1)
	}
	if len(o.leases) > maxOrdered || !o.has(0, 1) || !o.has(maxOrdered-1, maxOrdered) || !o.has(maxOrdered, maxOrdered+1) {
		t.Error("a start that was written is taken for unwritten")
	}
	if o.has(5, maxOrdered+2) {
		t.Error("a later lease is taken for ordered")
	}
}

func TestAStuckWriteEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		near, far := net.Pipe()
		defer far.Close()
		go io.CopyN(io.Discard, far, 12) // the peer takes a stream's opening and no more
		tr, err := newTransport(near, controlProfile, true, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		conn, err := tr.open(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := (&messages{conn: conn}).send(wire.AgentMessage{Started: &wire.Started{}}); err == nil {
			t.Error("a write to a stuck peer succeeded")
		}
		<-tr.done()
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("the session ended after %v", took)
		}
	})
}

func TestAPassedLeaderOrdersNothingOfALaterEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		h.jobs[jobKey{2, 4}] = has(2, 4, wire.PhaseRunning)
		c1.tableTerm = 6 // its table has moved on, and nobody has told it
		c1.want(want(1, 10, model.JobAssigned))
		w.agent("i1", h, "c1")
		within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
		for range 20 {
			c1.hub.Nudge("box")
			time.Sleep(time.Second)
		}
		if n := h.orderCount(); n != 0 {
			t.Errorf("%d orders were drawn from the table of a later epoch", n)
		}
	})
}

func TestAQuarantinedHostIsAskedForProofWhileItIsAttached(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		w.agent("i1", newHost(), "c1")
		within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
		time.Sleep(time.Minute)
		if n := c1.proofCount(); n != 0 {
			t.Errorf("%d proofs that nobody wanted", n)
		}
		c1.mu.Lock()
		c1.wantsProof = true
		c1.mu.Unlock()
		time.Sleep(time.Minute)
		if n := c1.proofCount(); n < 4 || n > 7 {
			t.Errorf("%d proofs in a minute, want one about every 10 s", n)
		}
		if c1.admissions() != 1 {
			t.Errorf("%d sessions, want the one: a proof costs none", c1.admissions())
		}
	})
}

// A start that waits for a frozen disk is nowhere to be seen, and will be: a
// proof that came before it would return its device to the pool.
func TestAHostProvesNothingWhileAnOrderWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		frozen := time.Now().Add(time.Minute)
		h.stall = func(wire.Order) { time.Sleep(time.Until(frozen)) }
		w.agent("i1", h, "c1")
		within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
		c1.want(want(1, 10, model.JobAssigned))
		time.Sleep(time.Second)
		c1.want(want(2, 11, model.JobAssigned))
		c1.mu.Lock()
		c1.wantsProof, c1.index = true, 7
		c1.mu.Unlock()
		time.Sleep(30 * time.Second)
		c1.mu.Lock()
		c1.index = 9
		c1.mu.Unlock()
		time.Sleep(28 * time.Second)
		if n := c1.proofCount(); n != 0 {
			t.Errorf("%d proofs while a start waits", n)
		}
		within(t, 20*time.Second, "proof", func() bool { return c1.proofCount() > 0 })
		c1.mu.Lock()
		named, sessions := len(c1.proofs[0].Jobs), len(c1.admitted)
		if index := c1.proofs[0].Index; index != 7 {
			t.Errorf("a proof that was asked for at index 7 speaks for %d", index)
		}
		c1.mu.Unlock()
		if named == 0 || sessions != 1 {
			t.Errorf("the proof names %d jobs, in session %d", named, sessions)
		}
		// Of a dozen starts of the other job that came meanwhile the last counts.
		within(t, 10*time.Second, "started", func() bool { return len(h.Jobs()) == 2 })
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, o := range h.orders[1:] {
			if o.Job == 2 && o.Seq < 10 {
				t.Errorf("order %d, which waited for most of a minute, was obeyed", o.Seq)
			}
		}
	})
}

func (n *node) proofCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.proofs)
}

func (n *node) admissions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.admitted)
}
