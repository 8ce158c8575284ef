package sim

import (
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

const (
	// judgeSlack is what detection, sessions and ticks may add to a bound.
	judgeSlack = 20 * time.Second
	// calmLimit is when everything has ended in a calm, whatever came before.
	calmLimit = 40 * time.Minute
	// quietTime is how long a cluster without work must not write its log.
	quietTime = 2 * time.Minute
)

// settle ends all faults and wants everything to come to its end: every job
// terminal, every outcome acked, every promise kept, every replica alike, and
// then an idle log.
func (w *World) settle() {
	w.note("calm")
	w.calm = true
	w.log.stalled, w.slowUntil = 0, 0
	for _, n := range w.nodes {
		n.lag = 0
		n.restart()
		n.applySoon()
	}
	for _, h := range w.hosts {
		for _, n := range w.nodes {
			h.cutIn[n.id], h.cutOut[n.id] = 0, 0
		}
		h.startAgent()
	}
	if w.log.leader == nil {
		w.electSoon(0)
	} else {
		// What stalled in the storm goes on.
		w.log.commit(len(w.log.committed)+len(w.log.tail), w.log.term)
	}
	w.Run(10 * time.Second)
	started, killed := w.now, false
	w.judgeGone()
	for !w.finished() {
		w.Run(5 * time.Second)
		if w.now-started > calmLimit/2 && !killed {
			killed = w.killHopeless()
		}
		if w.now-started > calmLimit {
			w.fail("progress: %s", w.unfinished())
		}
	}
	w.witness.promises()
	w.quiet()
	w.compare()
}

// judgeGone: a holder that is truly gone is judged within holdoff and bound.
func (w *World) judgeGone() {
	s := w.witness.last.Settings()
	bound := time.Duration(s.HoldoffMS+s.WriteOffAfterMS) * time.Millisecond
	w.after(bound+judgeSlack, func() {
		v := w.witness.last
		if v.Settings().RetainDisconnected || v.Term() != w.log.term {
			return
		}
		for _, h := range w.hosts {
			if !h.gone {
				continue
			}
			for _, l := range v.LeasesOn(h.name) {
				w.fail("law 4: %s is gone and lease %d has not been judged after %v", h.name, l.Number, bound+judgeSlack)
			}
		}
	})
}

func (w *World) finished() bool {
	for _, s := range w.clients.submits {
		if !s.done {
			return false
		}
	}
	for _, h := range w.hosts {
		if len(h.records) > 0 && !h.gone {
			return false
		}
	}
	c := w.witness.last.Counts()
	return c.Queued == 0 && c.Active == 0
}

func (w *World) unfinished() string {
	for _, s := range w.clients.submits {
		if !s.done {
			return "request " + s.request.ID + " has no answer"
		}
	}
	for _, h := range w.hosts {
		if len(h.records) > 0 && !h.gone {
			return "an outcome of " + h.name + " is not acked"
		}
	}
	for _, j := range append(w.witness.last.Active(), w.queued()...) {
		return "job " + j.ID() + " is still " + j.State.String() + " " + j.Pinned + j.Selector + " on " + j.Host
	}
	return "nothing"
}

func (w *World) queued() []*model.Job {
	var all []*model.Job
	for j := range w.witness.last.Queued() {
		all = append(all, j)
	}
	return all
}

// killHopeless ends what nothing can serve: jobs of a host that is gone, and
// jobs for devices that no host offers any more.
func (w *World) killHopeless() bool {
	e := w.clients.leader()
	if e == nil {
		return false
	}
	for _, j := range append(e.n.m.View().Active(), w.queued()...) {
		if j.State.Active() && !w.hostGone(j.Host) || j.State == model.JobQueued && w.servable(j) {
			continue
		}
		w.note("nothing can serve job %d", j.Number)
		w.clients.killJob(e, j)
	}
	return true
}

func (w *World) hostGone(name string) bool {
	for _, h := range w.hosts {
		if h.name == name {
			return h.gone
		}
	}
	return false
}

// servable reports whether a device that is there could run a queued job.
func (w *World) servable(j *model.Job) bool {
	v := w.witness.last
	ids := []string{j.Pinned}
	if j.Pinned == "" {
		ids, _, _ = v.Matching(j.Selector)
	}
	for _, id := range ids {
		d := v.Device(id)
		if d != nil && !d.Absent && !w.hostGone(d.Host) && (d.MaxRuntimeS == 0 || !j.CeilingAsked || j.MaxRuntimeS <= d.MaxRuntimeS) {
			return true
		}
	}
	return false
}

// quiet: a cluster without work does not write its log. An operator who clears
// the last devices is let finish first.
func (w *World) quiet() {
	w.Run(time.Duration(w.witness.last.Settings().WriteOffAfterMS)*time.Millisecond + time.Minute)
	before := len(w.log.committed)
	w.Run(quietTime)
	if after := len(w.log.committed); after != before {
		last := w.log.committed[after-1]
		entry, err := command.DecodeEntry(last.data)
		if err != nil {
			w.fail("decode: %v", err)
		}
		c, _ := command.Decode(entry.Commands[0])
		w.fail("an idle log grew by %d entries in %v, the last a %s", after-before, quietTime, c.Kind)
	}
}

// compare: all replicas are at one index with one digest.
func (w *World) compare() {
	first := w.nodes[0].m
	for _, n := range w.nodes {
		if n.m.Index() != first.Index() || n.m.Digest() != first.Digest() {
			w.fail("law 5: %s is at %s, %s at %s", n.id, n.m.View(), w.nodes[0].id, first.View())
		}
		if err := n.m.Check(); err != nil {
			w.fail("%s at the end: %v", n.id, err)
		}
	}
}
