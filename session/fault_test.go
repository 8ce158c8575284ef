package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"rcd/wire"
)

func (n *node) Fault(_ context.Context, _, _ string, f wire.DeviceFault) (index, lease uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.table.faults = append(n.table.faults, f)
	switch {
	case n.table.failing:
		return 0, 0, errors.New("no quorum")
	case n.table.refuse != nil:
		return 0, 0, n.table.refuse
	}
	return n.index, 41, nil
}

func (n *node) faults() []wire.DeviceFault {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.table.faults)
}

func (h *host) Faults() []wire.DeviceFault {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.faults)
}

func (h *host) FaultAcked(a wire.FaultAck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faultLeases = append(h.faultLeases, a.Lease)
	if a.Code == "" {
		h.faults = slices.DeleteFunc(h.faults, func(f wire.DeviceFault) bool { return f == a.DeviceFault })
	}
}

func TestAFaultIsSaidUntilItIsAcked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c1, 5)
		c1.table.failing = true
		h := newHost()
		h.faults = []wire.DeviceFault{{Device: "gpu0", Detail: "x"}, {Device: "gpu1", Detail: "y"}}
		w.agent("i1", h, "c1", "c2")
		time.Sleep(20 * time.Second)
		if n := len(c1.faults()); n < 4 || n > 10 || len(h.Faults()) != 2 {
			t.Errorf("said %d times, %v left", n, h.Faults())
		}
		w.lead(c2, 6)
		within(t, 5*time.Second, "acked by the next leader", func() bool { return len(h.Faults()) == 0 })
		h.mu.Lock()
		h.faults = []wire.DeviceFault{{Device: "gpu0", Detail: "another"}}
		h.mu.Unlock()
		h.change()
		within(t, time.Second, "acked at once", func() bool { return len(h.Faults()) == 0 })
		time.Sleep(time.Minute)
		if got := c2.faults(); len(got) != 3 {
			t.Errorf("said %v", got)
		}
		if !slices.Equal(h.faultLeases, []uint64{41, 41, 41}) {
			t.Errorf("leases %v", h.faultLeases)
		}
	})
}

func TestARefusedFaultIsKeptForTheNextSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c1, 5)
		c1.table.refuse = &Refusal{"device_not_found", "register it"}
		h := newHost()
		h.faults = []wire.DeviceFault{{Device: "gpu0", Detail: "x"}}
		w.agent("i1", h, "c1", "c2")
		time.Sleep(time.Minute)
		if n := len(c1.faults()); n != 1 || len(h.Faults()) != 1 {
			t.Errorf("said %d times, %v left", n, h.Faults())
		}
		w.lead(c2, 6)
		within(t, 5*time.Second, "taken by the next", func() bool { return len(h.Faults()) == 0 })
	})
}

func TestAFaultThatComesBackAtOnceIsSaidAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		w.agent("i1", h, "c1")
		for n := 1; n <= 3; n++ { // nothing else is reported in between
			h.mu.Lock()
			h.faults = []wire.DeviceFault{{Device: "gpu0", Detail: "x"}}
			h.mu.Unlock()
			h.change()
			within(t, time.Second, "acked", func() bool { return len(h.Faults()) == 0 && len(c1.faults()) == n })
		}
	})
}

func TestEachAnsweredHeartbeatIsAWordOfTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		w.agent("i1", h, "c1")
		time.Sleep(10 * HeartbeatEvery)
		h.mu.Lock()
		words := h.words
		h.mu.Unlock()
		if words < 9 { // on an idle log, where nothing rises
			t.Errorf("%d words in ten heartbeats", words)
		}
	})
}
