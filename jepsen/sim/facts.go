package sim

import (
	"bytes"
	"slices"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	rc "rcd/session"
	"rcd/wire"
)

// factBook is what one session of a host knows about who knows what, as package
// session keeps it: one message is under way at a time.
type factBook struct {
	confirmed map[string]string
	sent      []fact
	under     bool // a message is under way
	seq       uint64
	at        time.Duration
}

// fact is one thing that a host tells, as text to compare.
type fact struct {
	key, text string
	labels    *wire.DeviceFacts
	sheet     *wire.SheetText
}

func factList(f wire.Facts) (all []fact) {
	for i := range f.Labels {
		text := ""
		for _, l := range f.Labels[i].Detected {
			text += l.Key + "=" + l.Value + ","
		}
		all = append(all, fact{key: "labels of " + f.Labels[i].Name, text: text, labels: &f.Labels[i]})
	}
	for i := range f.Sheets {
		all = append(all, fact{key: "sheet of " + f.Sheets[i].Name, text: f.Sheets[i].Body, sheet: &f.Sheets[i]})
	}
	return all
}

// agree notes that the table has the facts with this digest.
func (b *factBook) agree(held wire.Facts, digest []byte) {
	b.confirmed, b.under = map[string]string{}, false
	if bytes.Equal(held.Digest(), digest) {
		for _, f := range factList(held) {
			b.confirmed[f.key] = f.text
		}
	}
}

// next returns the message to send now, nil if there is none.
func (b *factBook) next(held wire.Facts, now time.Duration, trusting bool) *wire.Facts {
	if b.confirmed == nil || b.under && now-b.at < resendAfter {
		return nil
	}
	var out wire.Facts
	b.sent, b.under = nil, false
	for _, f := range factList(held) {
		if told, ok := b.confirmed[f.key]; ok && told == f.text {
			continue
		}
		b.sent, b.under = append(b.sent, f), true
		if !trusting {
			delete(b.confirmed, f.key) // without an answer the table may have either
		}
		if f.sheet != nil {
			out.Sheets = append(out.Sheets, *f.sheet)
		} else {
			out.Labels = append(out.Labels, *f.labels)
		}
	}
	if !b.under {
		return nil
	}
	b.seq++
	out.Seq, b.at = b.seq, now
	return &out
}

func (b *factBook) answered(seq uint64) bool {
	if !b.under || seq != b.seq {
		return false
	}
	for _, f := range b.sent {
		b.confirmed[f.key] = f.text
	}
	b.under = false
	return true
}

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
	msg := s.facts.next(h.facts(), h.w.now, h.w.broken(QuirkTrustAnswers))
	if msg == nil {
		return
	}
	if h.w.broken(QuirkForgetFacts) {
		s.facts.answered(msg.Seq)
	}
	h.w.send(h, s.e.n, false, func() { s.receive(func() { s.takeFacts(*msg) }) })
}

func (h *host) factsAcked(s *session, seq uint64) {
	if h.session == s && s.facts.answered(seq) {
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
	settle := s.e.doubt(s.hello.Host)
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

// onWay is what a leader knows of proposals that may still change what the
// table has of a host: the newest, and the newest whose outcome is known.
type onWay struct{ proposed, settled int }

// doubts reports whether the rows of a host may change by what is on its way.
func (e *epoch) doubts(host string) bool {
	w := e.told[host]
	return w.proposed > w.settled && !e.w.broken(QuirkNoDoubts)
}

func (e *epoch) doubt(host string) (settle func()) {
	e.tells++
	mine := e.tells
	e.told[host] = onWay{mine, e.told[host].settled}
	return func() {
		w := e.told[host]
		e.told[host] = onWay{w.proposed, max(w.settled, mine)}
	}
}
