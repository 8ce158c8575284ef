package sim

import (
	"fmt"
	"slices"
	"time"

	"rcd/wire"
)

// boot starts the machine and then its agent.
func (h *host) boot() {
	h.boots++
	h.startAgent()
}

func (h *host) instance() string { return fmt.Sprintf("%s-%d", h.name, h.instances) }

func (h *host) startAgent() {
	if h.up || h.gone {
		return
	}
	h.up = true
	h.instances++
	h.w.note("agent %s starts", h.instance())
	h.fresh()
	instance := h.instance()
	h.connect(instance)
	h.beat(instance)
	h.w.after(h.w.between(time.Second, 20*time.Second), func() { h.probe(instance) })
}

// stopAgent ends the agent process; its jobs go on. What was about to start
// either has its process or leaves no trace but the fence, and the next agent
// may find a record unreadable, its process an orphan.
func (h *host) stopAgent() {
	if !h.up {
		return
	}
	h.w.note("agent %s stops", h.instance())
	h.up = false
	s := h.session
	h.session = nil
	if s != nil && h.w.rng.IntN(2) == 0 { // the connection is reset; else silence
		h.w.send(h, s.e.n, false, func() { s.closeLeaderSide(false) })
	}
	if h.container {
		h.killAll()
		return
	}
	for _, r := range slices.Clone(h.records) {
		switch {
		case r.phase == wire.PhaseStarting && h.w.rng.IntN(2) == 0:
			h.forget(r.key)
		case r.phase == wire.PhaseRunning && !h.retiredAlive && h.w.chance(10):
			h.w.note("%s: the record of %d/%d cannot be read any more", h.name, r.key.job, r.key.lease)
			h.w.counts.Orphans++
			h.forget(r.key)
		}
	}
}

// reboot ends every process. Records of ended jobs are on disk.
func (h *host) reboot() {
	h.stopAgent()
	h.boots++
	h.w.note("host %s reboots", h.name)
	h.killAll()
}

// killAll ends every process at once; nobody sees how. Records of ended jobs
// are on disk.
func (h *host) killAll() {
	h.trees = nil
	h.records = slices.DeleteFunc(h.records, func(r *record) bool { return r.phase != wire.PhaseEnded })
}

// replace puts another machine under the name.
func (h *host) replace() {
	h.w.note("another machine gets the name %s", h.name)
	h.w.counts.Replaced++
	h.machine++
	h.boots, h.term, h.index = 0, 0, 0
	h.begun, h.records, h.trees = map[string]fence{}, nil, nil
	h.gone = false
	h.relabel()
	h.boot()
}
