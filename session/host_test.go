package session

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"rcd/wire"
)

// host is an agent's side without processes.
type host struct {
	mu          sync.Mutex // guards what follows
	jobs        map[jobKey]wire.ReportedJob
	outcomes    map[jobKey]wire.Outcome
	changed     chan struct{}
	events      []string
	controllers []wire.Controller
	orders      []wire.Order
	obey        func(o wire.Order) wire.OrderAck
	stall       func(o wire.Order) // before anything is known of it, as by a disk; nil for none
	seenErr     error
	facts       wire.Facts
	faults      []wire.DeviceFault
	faultLeases []uint64 // of the answers
	words       int      // calls of Seen
	serve       func(ctx context.Context, conn net.Conn)
}

func newHost() *host {
	return &host{jobs: map[jobKey]wire.ReportedJob{}, outcomes: map[jobKey]wire.Outcome{}, changed: make(chan struct{}, 1)}
}

func (h *host) change() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *host) Hello() wire.Hello { return wire.Hello{MachineID: "m", BootID: "b", Jobs: h.Jobs()} }

func (h *host) Jobs() []wire.ReportedJob {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []wire.ReportedJob
	for _, j := range h.jobs {
		out = append(out, j)
	}
	return out
}

func (h *host) Order(_ context.Context, o wire.Order) wire.OrderAck {
	if h.stall != nil {
		h.stall(o)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.orders = append(h.orders, o)
	h.events = append(h.events, fmt.Sprintf("order %d", o.Term))
	if h.obey != nil {
		return h.obey(o)
	}
	k := jobKey{o.Job, o.Lease}
	switch o.Kind {
	case wire.OrderStart:
		if _, ok := h.jobs[k]; !ok {
			h.jobs[k] = wire.ReportedJob{Job: o.Job, Lease: o.Lease, Phase: wire.PhaseRunning}
		}
	case wire.OrderKill:
		if _, ok := h.jobs[k]; ok {
			h.endLocked(k, wire.Outcome{Job: o.Job, Lease: o.Lease, End: 1, Reason: o.Reason})
		}
	}
	h.change()
	j, ok := h.jobs[k]
	if !ok {
		return wire.OrderAck{Code: wire.OrderUnknownJob}
	}
	return wire.OrderAck{Job: &j}
}

func (h *host) end(o wire.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(jobKey{o.Job, o.Lease}, o)
	h.change()
}

func (h *host) endLocked(k jobKey, o wire.Outcome) {
	h.outcomes[k] = o
	h.jobs[k] = wire.ReportedJob{Job: o.Job, Lease: o.Lease, Phase: wire.PhaseEnded}
}

func (h *host) Outcomes() []wire.Outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []wire.Outcome
	for _, o := range h.outcomes {
		out = append(out, o)
	}
	return out
}

func (h *host) Changed() <-chan struct{} { return h.changed }

func (h *host) Acked(a wire.OutcomeAck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.jobs, jobKey{a.Job, a.Lease})
	delete(h.outcomes, jobKey{a.Job, a.Lease})
}

func (h *host) Controllers(list []wire.Controller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.controllers = list
}

func (h *host) Welcomed(w wire.Welcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, "welcome "+w.Leader)
}

func (h *host) Seen(_, term, _ uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.words++
	if e := fmt.Sprintf("seen %d", term); h.seenErr == nil && !slices.Contains(h.events, e) {
		h.events = append(h.events, e)
	}
	return h.seenErr
}

func (h *host) ServeStream(ctx context.Context, conn net.Conn) {
	if h.serve != nil {
		h.serve(ctx, conn)
	}
}

func (h *host) orderCount() int { h.mu.Lock(); defer h.mu.Unlock(); return len(h.orders) }
func (h *host) pending() int    { h.mu.Lock(); defer h.mu.Unlock(); return len(h.outcomes) }
func (h *host) trace() []string { h.mu.Lock(); defer h.mu.Unlock(); return slices.Clone(h.events) }
