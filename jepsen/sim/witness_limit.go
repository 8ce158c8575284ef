package sim

import "time"

// heardOf is how long an extension may take to a host that is well connected:
// four orders of which a network loses some.
const heardOf = 20 * time.Second

// limited tests the end of a process by its limit: an extension that was granted
// has reached a host that could be reached.
func (x *witness) limited(h *host, r *record) {
	j := x.last.Job(r.key.job)
	if j == nil || j.Lease != r.key.lease || j.State.Terminal() || j.KillRequested || r.killing || j.MaxRuntimeS <= r.limit {
		return
	}
	w, s, before := x.w, h.session, x.w.now-heardOf
	switch {
	case x.granted[j.Number] > before || w.slowUntil > before || w.log.stalled > before || w.log.leader == nil || len(w.log.tail) > 0:
		return
	case s == nil || !s.open || s.since > before || w.log.leader != s.e.n || w.log.term != s.e.term || s.e.n.lag > before:
		return
	case h.cutIn[s.e.n.id] > before || h.cutOut[s.e.n.id] > before || h.frozen > before:
		return
	}
	w.fail("law 1: job %d was granted %d s at %v, and its host ended it after %d s", j.Number, j.MaxRuntimeS, x.granted[j.Number], r.limit)
}
