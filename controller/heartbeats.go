package controller

import (
	"sync"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// heartbeats is what a leader remembers of the clients that holds with a session
// live and die with: when it heard each, on its monotonic clock and from the
// start of its epoch at the earliest. Nothing of it is logged, and it judges
// nobody: it states evidence in a sweep, and the lease table checks every rule
// again. Methods may be called concurrently.
type heartbeats struct {
	mu    sync.Mutex // guards what follows
	since time.Time  // nothing before counts
	// heard is when the client of a hold was heard last. The edge takes
	// heartbeats only for holds that have not ended, and each sweep forgets those
	// that have, so it is bounded by the holds.
	heard map[uint64]time.Time
}

// sessionTable is what evidence about clients needs of the lease table.
type sessionTable interface {
	FeatureLevel() uint32
	EpochUptimeMS() int64
	Settings() model.Settings
	// Sessions returns the holds with a session that have not ended, by number.
	Sessions() []*model.Job
}

var _ sessionTable = (*fsm.View)(nil)

// maxSessionsTold bounds what one sweep tells of sessions; the next one tells the
// rest. It is 20 KB of an entry.
const maxSessionsTold = 1000

func newHeartbeats(now time.Time) *heartbeats {
	h := &heartbeats{}
	h.reset(now)
	return h
}

// reset forgets everything: at the start of an epoch, and when this process was
// stopped for a while.
func (h *heartbeats) reset(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since, h.heard = now, map[uint64]time.Time{}
}

// hear takes that the client of a hold was heard.
func (h *heartbeats) hear(hold uint64, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at.After(h.heard[hold]) && !at.Before(h.since) {
		h.heard[hold] = at
	}
}

// evidence lists what the lease table could draw something from, by number: a
// client that has just fallen silent, one that is heard again, and one that has
// been silent for so long that its hold ends. What it has drawn already is left
// out, so that an idle log stays idle. epochStarted is when this node began its
// epoch. The table is looked at once nobody is heard any more: it has the holds
// of all that were.
func (h *heartbeats) evidence(now, epochStarted time.Time, table func() sessionTable) []command.SessionSilence {
	h.mu.Lock()
	defer h.mu.Unlock()
	view := table()
	if view.FeatureLevel() < fsm.LevelInside {
		return nil // a controller that does not know it could not read the sweep
	}
	judging := now.Sub(h.since).Milliseconds() >= view.Settings().HoldoffMS
	uptimeMS := view.EpochUptimeMS() + now.Sub(epochStarted).Milliseconds() // an idle log's stands still
	live := make(map[uint64]time.Time, len(h.heard))
	var told []command.SessionSilence
	for _, hold := range view.Sessions() {
		last, heard := h.heard[hold.Number]
		if heard {
			live[hold.Number] = last
		} else {
			last = h.since
		}
		silence := min(now.Sub(last).Milliseconds(), uptimeMS-hold.QueuedUptimeMS)
		if len(told) == maxSessionsTold || hold.KillRequested {
			continue
		}
		bound := hold.SessionS * 1000
		switch {
		case silence >= bound && judging, silence >= bound/2 && !hold.SessionSilent:
			told = append(told, command.SessionSilence{Job: hold.Number, SilenceMS: silence})
		case silence < bound/2 && heard && hold.SessionSilent:
			told = append(told, command.SessionSilence{Job: hold.Number})
		}
	}
	h.heard = live
	return told
}

// HearSession implements api.Backend.
func (c *Controller) HearSession(hold uint64) { c.heartbeats.hear(hold, time.Now()) }

// AgentProtocol implements api.Backend.
func (c *Controller) AgentProtocol(host string) int { return c.hub.Protocol(host) }
