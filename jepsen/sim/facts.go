package sim

import (
	"slices"

	"rcd/fsm/command"
	"rcd/model"
	rc "rcd/session"
	"rcd/wire"
)

// facts returns all that the host has to tell of its devices.
func (h *host) facts() wire.Facts {
	f := wire.Facts{Sheets: []wire.SheetText{{Body: h.sheetText("")}}}
	for i := range h.devices {
		d := &h.devices[i]
		if d.Name == h.leftOut {
			continue
		}
		if !d.KeepDetected {
			f.Labels = append(f.Labels, wire.DeviceFacts{Name: d.Name, Detected: slices.Clone(d.Detected)})
		}
		f.Sheets = append(f.Sheets, wire.SheetText{Name: d.Name, Body: h.sheetText(d.Name)})
	}
	return f
}

// tellFacts sends what the leader does not know yet.
func (h *host) tellFacts() {
	s := h.session
	if s == nil {
		return
	}
	msg := s.facts.Next(h.facts(), clock(h.w.now))
	if msg == nil {
		return
	}
	if h.w.broken(QuirkTrustAnswers) && s.trusts(msg) {
		return
	}
	if h.w.broken(QuirkForgetFacts) {
		s.facts.Answered(msg.Seq)
	}
	h.w.send(h, s.e.n, false, func() { s.receive(func() { s.takeFacts(*msg) }) })
}

// trusts is the quirk of a host that takes what was once answered for what the
// table has now, whatever it has sent since without an answer. It takes out of a
// message what was answered, and reports whether nothing is left.
func (s *session) trusts(msg *wire.Facts) bool {
	s.said = *msg
	msg.Labels = slices.DeleteFunc(slices.Clone(msg.Labels), func(d wire.DeviceFacts) bool {
		return slices.ContainsFunc(s.trusted.Labels, func(t wire.DeviceFacts) bool { return t.Name == d.Name && slices.Equal(t.Detected, d.Detected) })
	})
	msg.Sheets = slices.DeleteFunc(slices.Clone(msg.Sheets), func(d wire.SheetText) bool { return slices.Contains(s.trusted.Sheets, d) })
	return len(msg.Labels)+len(msg.Sheets) == 0
}

func (h *host) factsAcked(s *session, seq uint64) {
	if h.session == s && s.facts.Answered(seq) {
		s.trusted = s.said
		h.tellFacts()
	}
}

// takeFacts hands what a host tells to the lease table, one message at a time
// and in their order, and answers.
func (s *session) takeFacts(f wire.Facts) {
	if s.factsBusy || f.Seq < s.factsSeq {
		return
	}
	s.factsBusy, s.factsSeq = true, f.Seq
	s.w.counts.Facts++
	done := func(ack bool) {
		s.factsBusy = false
		if ack {
			s.w.send(s.h, s.e.n, true, func() { s.h.factsAcked(s, f.Seq) })
		}
	}
	s.recordFacts(f, 1, done)
}

// factTries bounds how often facts are looked at again because a device was
// retired while they were on their way.
const factTries = 3

func (s *session) recordFacts(f wire.Facts, try int, done func(ack bool)) {
	view, all := s.e.n.m.View(), s.e.doubts(s.hello.Host)
	if known := view.Agent(s.hello.Host); known == nil || known.Instance != s.instance {
		done(false)
		return
	}
	sets, sheets := rc.DifferingLabels(view, s.hello.Host, f.Labels, all), rc.DifferingSheets(view, s.hello.Host, f.Sheets, all)
	if len(sets)+len(sheets) == 0 {
		s.w.counts.FactsRepeated++
	}
	refused := func(code command.Code) {
		if code == command.DeviceNotFound && try < factTries && !s.w.broken(QuirkTakeRefusals) {
			s.recordFacts(f, try+1, done)
			return
		}
		done(true)
	}
	s.record(len(sets) > 0, &command.LabelsReplace{Host: s.hello.Host, Instance: s.instance, Source: model.Detected, Sets: sets}, done, refused, func() {
		s.record(len(sheets) > 0, &command.SheetPut{Host: s.hello.Host, Instance: s.instance, Sheets: sheets}, done, refused, func() { done(true) })
	})
}

// record proposes a command if it is worth an entry, and goes on with next once
// it was taken.
func (s *session) record(worth bool, body any, done func(ack bool), refused func(command.Code), next func()) {
	if !worth {
		next()
		return
	}
	settle := s.e.told.Propose(s.hello.Host)
	s.e.propose(s.w.encode(command.Request{}, body), func(a answer) {
		if !a.known || a.result.Code == command.StaleEpoch {
			done(false)
			return
		}
		settle()
		if a.result.Code != command.OK {
			s.w.note("facts of %s refused: %s", s.hello.Host, a.result.Message)
			refused(a.result.Code)
			return
		}
		next()
	})
}

// doubts reports whether the rows of a host may change by what is on its way.
func (e *epoch) doubts(host string) bool {
	return e.told.About(host) && !e.w.broken(QuirkNoDoubts)
}
