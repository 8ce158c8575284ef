package session

import (
	"context"
	"slices"
	"testing"
	"time"

	"rcd/model"
	"rcd/wire"
)

func TestReconcileLengthensAndNeverShortens(t *testing.T) {
	limited := func(d Desired, s int64) Desired { d.Start.MaxRuntimeS = s; return d }
	told := func(s int64, phase wire.JobPhase) wire.ReportedJob {
		r := has(1, 10, phase)
		r.MaxRuntimeS = s
		return r
	}
	ending := told(60, wire.PhaseRunning)
	ending.Killing = true
	running := want(1, 10, model.JobRunning)
	for _, tt := range []struct {
		name    string
		desired Desired
		told    wire.ReportedJob
		want    int64 // 0: no order
	}{
		{"longer", limited(running, 120), told(60, wire.PhaseRunning), 120},
		{"longer, still starting", limited(running, 120), told(60, wire.PhaseStarting), 120},
		{"the same", limited(running, 60), told(60, wire.PhaseRunning), 0},
		{"shorter: the table was set back", limited(running, 30), told(60, wire.PhaseRunning), 0},
		{"no limit in the table", running, told(60, wire.PhaseRunning), 0},
		{"not told", limited(running, 120), told(0, wire.PhaseRunning), 0},
		{"being ended", limited(running, 120), ending, 0},
		{"ended", limited(running, 120), told(60, wire.PhaseEnded), 0},
		{"kill asked", killed(limited(running, 120), "x"), told(60, wire.PhaseRunning), 0},
		{"an older lease", limited(want(1, 12, model.JobRunning), 120), told(60, wire.PhaseRunning), 0},
		{"a newer lease", limited(want(1, 9, model.JobRunning), 120), told(60, wire.PhaseRunning), 0},
	} {
		got := int64(0)
		for _, a := range Reconcile([]Desired{tt.desired}, []wire.ReportedJob{tt.told}) {
			if a.Kind == ActExtend {
				got = a.MaxRuntimeS
			}
		}
		if got != tt.want {
			t.Errorf("%s: extend to %d, want %d", tt.name, got, tt.want)
		}
	}
}

// limitedHost is a host that takes extensions, unless it is deaf to them.
func limitedHost(deaf *bool) *host {
	h := newHost()
	h.obey = func(o wire.Order) wire.OrderAck {
		k := jobKey{o.Job, o.Lease}
		switch o.Kind {
		case wire.OrderStart:
			h.jobs[k] = wire.ReportedJob{Job: o.Job, Lease: o.Lease, Phase: wire.PhaseRunning, MaxRuntimeS: o.Start.MaxRuntimeS}
		case wire.OrderExtend:
			if j := h.jobs[k]; !*deaf {
				j.MaxRuntimeS = max(j.MaxRuntimeS, o.MaxRuntimeS)
				h.jobs[k] = j
			}
		}
		h.change()
		j := h.jobs[k]
		return wire.OrderAck{Job: &j}
	}
	return h
}

// extensions returns the limits that the host was ordered to, in order.
func (h *host) extensions() (out []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.orders {
		if o.Kind == wire.OrderExtend {
			out = append(out, o.MaxRuntimeS)
		}
	}
	return out
}

func TestAnExtensionIsOrderedAtOnceAndUntilItIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c1, 5)
		deaf := false
		h := limitedHost(&deaf)
		d := want(1, 10, model.JobAssigned)
		d.Start.MaxRuntimeS = 60
		c1.want(d)
		w.agent("i1", h, "c1", "c2")
		within(t, 5*time.Second, "limit told", func() bool { n := c1.contact().Named; return len(n) == 1 && n[0].MaxRuntimeS == 60 })
		extend := func(n *node, limitS int64) {
			d.State, d.Start.MaxRuntimeS = model.JobRunning, limitS
			n.want(d)
		}
		extend(c1, 120)
		if took := within(t, 5*time.Second, "ordered", func() bool { return len(h.extensions()) == 1 }); took > 100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		extend(c1, 180) // the one before was written a moment ago
		if took := within(t, 5*time.Second, "ordered again", func() bool { return len(h.extensions()) == 2 }); took > 100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		time.Sleep(time.Minute)
		if got := h.extensions(); !slices.Equal(got, []int64{120, 180}) {
			t.Errorf("ordered %v: what is told is not ordered again", got)
		}
		h.mu.Lock()
		deaf = true
		h.mu.Unlock()
		extend(c1, 240)
		time.Sleep(12 * time.Second)
		if got := h.extensions(); len(got) < 4 || len(got) > 6 {
			t.Errorf("ordered %v while the host does not take it", got)
		}
		// The next leader orders it, whatever the one before has.
		extend(c2, 240)
		h.mu.Lock()
		deaf = false
		h.mu.Unlock()
		w.lead(c2, 6)
		within(t, 10*time.Second, "told to the next leader", func() bool { n := c2.contact().Named; return len(n) == 1 && n[0].MaxRuntimeS == 240 })
	})
}

func TestAnAgentOfAnEarlierProtocolIsTakenInAndGetsNothingNew(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		d := want(1, 10, model.JobRunning)
		d.Start.MaxRuntimeS = 120
		inside, ending := want(2, 10, model.JobAssigned), want(3, 10, model.JobAssigned)
		inside.Start.Hold, ending.Start.Hold, ending.KillRequested = 1, 1, true
		c1.want(d)
		c1.want(inside)
		c1.want(ending)
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
		jobs := []wire.ReportedJob{has(1, 10, wire.PhaseRunning)}
		if err := m.send(wire.AgentMessage{Hello: &wire.Hello{Protocol: 1, Host: "box", Instance: "i1", Jobs: jobs}}); err != nil {
			t.Fatal(err)
		}
		if msg, err := m.receive(time.Second); err != nil || msg.Welcome == nil {
			t.Fatalf("got %+v, %v", msg, err)
		}
		for range 5 {
			if err := m.send(wire.AgentMessage{Heartbeat: &wire.Heartbeat{Jobs: jobs}}); err != nil {
				t.Fatal(err)
			}
			if msg, err := m.receive(time.Second); err != nil || msg.HeartbeatAck == nil {
				t.Fatalf("got %+v, %v", msg, err)
			}
			time.Sleep(HeartbeatEvery)
		}
	})
}

// TestAHelloCanBeReadByProtocolOne: a controller of protocol 1 refuses with a
// sentence what it can read.
func TestAHelloCanBeReadByProtocolOne(t *testing.T) {
	h := newHost()
	h.jobs[jobKey{1, 10}] = wire.ReportedJob{Job: 1, Lease: 10, MaxRuntimeS: 60}
	l := NewLink(LinkConfig{Host: "box", Logger: quiet()}, h)
	if hello := l.hello(); len(hello.Jobs) != 1 || hello.Jobs[0].MaxRuntimeS != 0 || hello.Protocol != wire.AgentProtocol {
		t.Errorf("hello %+v", hello)
	}
	if h.jobs[jobKey{1, 10}].MaxRuntimeS != 60 {
		t.Error("the host's own list was written to")
	}
}
