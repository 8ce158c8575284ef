package sim

import (
	"slices"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// takeOrder is an order that arrives at the host's agent.
func (h *host) takeOrder(s *session, o wire.Order) {
	if !h.running(s.instance) {
		return
	}
	if o.Term < h.term {
		h.w.counts.RefusedOrders++
		return
	}
	h.seen(o.Term, o.Index)
	came := h.w.now
	h.duty(s.instance, func() {
		if o.Kind == wire.OrderStart && h.w.now-came >= resendAfter && !h.w.broken(QuirkObeyLate) {
			h.w.counts.TooLate++ // the leader repeats it, if it is still wanted
			return
		}
		h.obey(s, o)
	})
}

// duty does something once all that came before it has been done: an order
// waits for the disk, and a proof for the orders.
func (h *host) duty(instance string, do func()) {
	if h.w.now >= h.frozen {
		do()
		return
	}
	if len(h.stuck) == 0 {
		h.w.after(h.frozen-h.w.now, h.thaw)
	}
	h.stuck = append(h.stuck, func() {
		if h.running(instance) {
			do()
		}
	})
}

// thaw does what has waited for the disk.
func (h *host) thaw() {
	if h.w.now < h.frozen {
		h.w.after(h.frozen-h.w.now, h.thaw)
		return
	}
	stuck := h.stuck
	h.stuck = nil
	for _, do := range stuck {
		do()
	}
}

// obey does what an order says.
func (h *host) obey(s *session, o wire.Order) {
	if o.Kind == wire.OrderStart && o.Index < h.proven {
		return // a connection does not reorder: it would have come before the proof
	}
	var now *wire.ReportedJob
	switch o.Kind {
	case wire.OrderStart:
		now = h.start(o)
	case wire.OrderKill:
		now = h.kill(o)
	case wire.OrderExtend:
		if r := h.record(jobKey{o.Job, o.Lease}); r != nil && r.phase != wire.PhaseEnded {
			if r.limit > 0 { // repeats and orders that come late change nothing
				r.limit = max(r.limit, o.MaxRuntimeS)
			}
			state := r.report()
			now = &state
		}
	case wire.OrderReport:
		if r := h.record(jobKey{o.Job, o.Lease}); r != nil {
			h.sendOutcomes(true)
		}
	}
	h.w.send(h, s.e.n, false, func() { s.receive(func() { s.orderAcked(now) }) })
}

// start obeys the order to start a job, behind the fence.
func (h *host) start(o wire.Order) *wire.ReportedJob {
	k := jobKey{o.Job, o.Lease}
	if r := h.record(k); r != nil {
		now := r.report()
		return &now
	}
	device := h.deviceName(o.Start.Devices[0])
	if device == "" {
		h.w.fail("%s is ordered to start %d/%d on %s, which it does not have", h.name, k.job, k.lease, o.Start.Devices[0])
	}
	if r := h.fenced(k, device); r != nil {
		now := r.report()
		return &now
	} else if h.begun[device].has(k) && !h.w.broken(QuirkNoFence) {
		h.w.counts.Fenced++
		return nil
	}
	if other := h.treesOn(device); len(other) > 0 && other[0].key.lease == k.lease {
		h.w.counts.Beside++
	}
	h.begun[device] = h.begun[device].with(k)
	if h.w.chance(2) {
		h.w.note("%s: agent dies behind the fence of %d/%d", h.name, k.job, k.lease)
		h.stopAgent()
		h.w.after(h.w.between(time.Second, 10*time.Second), h.startAgent)
		return nil
	}
	r := &record{key: k, device: device, phase: wire.PhaseStarting, limit: o.Start.MaxRuntimeS}
	h.records = append(h.records, r)
	h.w.after(h.w.between(time.Millisecond, 200*time.Millisecond), func() { h.spawn(r, *o.Start) })
	now := r.report()
	return &now
}

// fenced returns the record of a job that was begun under the present lease and
// has lost its own: nobody knows what became of it.
func (h *host) fenced(k jobKey, device string) *record {
	if f := h.begun[device]; f.lease != k.lease || !f.has(k) || h.hasTree(k) || h.w.broken(QuirkNoFence) {
		return nil
	}
	r := &record{key: k, device: device}
	h.records = append(h.records, r)
	h.end(r, wire.Outcome{End: uint8(command.EndSupervisorDied), Reason: "record lost", Origin: uint8(model.OriginAgent)})
	return r
}

// spawn makes the process of a job.
func (h *host) spawn(r *record, job wire.StartJob) {
	if !slices.Contains(h.records, r) || r.phase != wire.PhaseStarting {
		return
	}
	if r.killing {
		h.end(r, wire.Outcome{End: uint8(command.EndKilled), Reason: r.reason, Origin: uint8(model.OriginUser)})
		return
	}
	if h.w.chance(3) {
		code := int32(-1)
		h.w.witness.failed(r.key)
		h.end(r, wire.Outcome{End: uint8(command.EndStartFailed), ExitCode: &code, Reason: "no such program", Origin: uint8(model.OriginJob)})
		return
	}
	t := &tree{key: r.key, device: r.device, started: h.w.now}
	h.trees = append(h.trees, t)
	r.phase = wire.PhaseRunning
	h.w.note("%s: %d/%d runs on %s", h.name, r.key.job, r.key.lease, r.device)
	h.w.witness.spawned(h, t)
	if s := h.session; s != nil && h.up {
		named := r.report()
		h.w.send(h, s.e.n, false, func() {
			s.receive(func() {
				s.nameOne(named)
				s.started(r.key)
			})
		})
	}
	h.live(r, t, job)
}

// live lets the process run until its end or its limit.
func (h *host) live(r *record, t *tree, job wire.StartJob) {
	runtime := h.w.between(50*time.Millisecond, 40*time.Second)
	if h.w.rng.IntN(8) == 0 {
		runtime += 3 * time.Minute
	}
	if model.JobKind(job.Kind) == model.KindHold {
		runtime = time.Hour
	}
	o := wire.Outcome{End: uint8(command.EndExited), Origin: uint8(model.OriginJob)}
	code := int32(0)
	if h.w.rng.IntN(3) == 0 {
		code = 1 + int32(h.w.rng.IntN(120))
	}
	o.ExitCode = &code
	h.w.after(runtime, func() { h.reap(r, t, o) })
	if !h.w.broken(QuirkNoWatchdog) {
		h.watch(r, t)
	}
}

// watch is the shim's watchdog: it ends the tree at its limit, whatever has
// become of the agent.
func (h *host) watch(r *record, t *tree) {
	limit := time.Duration(r.limit) * time.Second
	if limit == 0 || !slices.Contains(h.trees, t) || r.phase == wire.PhaseEnded {
		return
	}
	h.w.after(t.started+limit-h.w.now, func() {
		switch {
		case !slices.Contains(h.trees, t) || r.phase == wire.PhaseEnded:
		case h.w.now < t.started+time.Duration(r.limit)*time.Second:
			h.w.counts.Prolonged++
			h.watch(r, t)
		default:
			h.w.witness.limited(h, r)
			h.reap(r, t, wire.Outcome{End: uint8(command.EndKilled), Reason: "max_runtime exceeded", Origin: uint8(model.OriginJob)})
		}
	})
}

// reap ends a tree by itself, if it still lives.
func (h *host) reap(r *record, t *tree, o wire.Outcome) {
	if !slices.Contains(h.trees, t) || r.phase == wire.PhaseEnded {
		return
	}
	h.trees = slices.DeleteFunc(h.trees, func(other *tree) bool { return other == t })
	if slices.Contains(h.records, r) { // else nobody saw how it ended
		h.end(r, o)
	}
}

// kill obeys the order to end a job.
func (h *host) kill(o wire.Order) *wire.ReportedJob {
	k := jobKey{o.Job, o.Lease}
	r := h.record(k)
	if r == nil {
		if o.Start == nil {
			return nil
		}
		device := h.deviceName(o.Start.Devices[0])
		if lost := h.fenced(k, device); lost != nil {
			now := lost.report()
			return &now
		}
		if device == "" || h.begun[device].has(k) {
			return nil
		}
		// Never started, and never will be.
		h.begun[device] = h.begun[device].with(k)
		r = &record{key: k, device: device}
		h.records = append(h.records, r)
		h.end(r, wire.Outcome{End: uint8(command.EndKilled), Reason: o.Reason, Origin: uint8(model.OriginUser)})
	}
	h.killRecord(r, o.Reason)
	now := r.report()
	return &now
}

// killRecord ends a tree, which takes a while and now and then fails.
func (h *host) killRecord(r *record, reason string) {
	if r.killing || r.phase == wire.PhaseEnded {
		return
	}
	r.killing, r.reason = true, reason
	if r.phase == wire.PhaseStarting {
		return // spawn looks
	}
	boot := h.boots
	h.w.after(h.w.between(5*time.Millisecond, 3*time.Second), func() {
		if h.boots != boot || r.phase == wire.PhaseEnded || !slices.Contains(h.records, r) {
			return
		}
		o := wire.Outcome{End: uint8(command.EndKilled), Reason: reason, Origin: uint8(model.OriginUser)}
		if h.w.chance(4) {
			h.w.counts.Survivors++
			o.Survivors = "pid 4711 does not die"
		} else {
			h.trees = slices.DeleteFunc(h.trees, func(t *tree) bool { return t.key == r.key })
		}
		h.end(r, o)
	})
}
