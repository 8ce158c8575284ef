package sim

import (
	"fmt"
	"slices"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
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
		h.frozen = min(h.frozen, w.now)
		h.thaw()
		h.rest()
		h.startAgent()
	}
	if w.log.leader == nil {
		w.electSoon(0)
	} else {
		// What stalled in the storm goes on.
		w.log.commit(len(w.log.committed)+len(w.log.tail), w.log.term)
	}
	w.Run(10 * time.Second)
	started := w.now
	w.judgeGone()
	for !w.finished() {
		w.Run(5 * time.Second)
		if w.now-started > calmLimit {
			w.fail("progress: %s", w.unfinished())
		}
	}
	w.witness.promises()
	w.quiet()
	w.compare()
	w.told()
}

// judgeGone: a holder that is truly gone is judged within holdoff and bound.
func (w *World) judgeGone() {
	s := w.witness.last.Settings()
	bound := time.Duration(s.HoldoffMS+s.WriteOffAfterMS) * time.Millisecond
	w.after(bound+judgeSlack, func() {
		v := w.witness.last
		if v.Settings().RetainDisconnected || v.Term() != w.log.term || w.counts.Withheld > 0 {
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
	return c.Queued == 0 && c.Active == 0 && w.clients.asks == 0
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
	if w.clients.asks > 0 {
		return fmt.Sprintf("%d requests have no answer", w.clients.asks)
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

// told: the table says of every host what the host says.
func (w *World) told() {
	v := w.witness.last
	for _, h := range w.hosts {
		if h.gone {
			continue
		}
		if a := v.Agent(h.name); a == nil || a.Instance != h.instance() || a.Silent {
			w.fail("%s is there, and the table has its agent as %+v", h.instance(), a)
		}
		for i := range h.devices {
			d := &h.devices[i]
			row := v.Device(model.DeviceID(h.name, d.Name))
			if row == nil || d.Name == h.leftOut {
				continue // retired, and not registered since
			}
			if !sameLabels(row.Declared, d.Declared) || !sameLabels(row.Detected, d.Detected) {
				w.fail("%s has labels %v and %v in the table, its host says %v and %v", row.ID, row.Declared, row.Detected, d.Declared, d.Detected)
			}
			text := h.sheetText(d.Name)
			if text == "" {
				text = h.sheetText("")
			}
			if sheet := v.Sheet(row); sheet == nil && text != "" || sheet != nil && sheet.Body != text {
				w.fail("%s has the usage sheet %v in the table, its host says %q", row.ID, sheet, text)
			}
		}
	}
}

func sameLabels(rows []model.Label, said []wire.LabelKV) bool {
	for _, l := range said {
		if !slices.ContainsFunc(rows, func(r model.Label) bool { return r.Key == l.Key && r.Value == l.Value }) {
			return false
		}
	}
	return len(rows) == len(said)
}
