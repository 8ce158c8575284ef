package session

import (
	"bytes"
	"time"

	"rcd/internal/codec"
	"rcd/wire"
)

// maxFactsBytes bounds one message of facts, well below what one entry of the
// log takes. A single set of labels may be larger.
const maxFactsBytes = 128 << 10

// factKey names one thing that a host tells.
type factKey struct {
	sheet bool
	name  string
}

// FactBook is what one session knows about who knows what of a host's facts. One
// message is under way at a time. Not for concurrent use.
type FactBook struct {
	confirmed map[factKey]string // as the leader has answered for it
	sent      map[factKey]string // by the message under way; nil if there is none
	seq       uint64
	at        time.Time // when it was sent
}

// Agree notes that the leader's table has the facts with this digest: if the
// host holds the same, nothing is said again.
func (b *FactBook) Agree(held wire.Facts, digest []byte) {
	b.confirmed, b.sent = map[factKey]string{}, nil
	if bytes.Equal(held.Digest(), digest) {
		for _, item := range items(held) {
			b.confirmed[item.key] = item.text
		}
	}
}

// Next returns the message to send now, nil if there is none. Without an answer
// for outcomeAgain the one before counts as lost.
func (b *FactBook) Next(held wire.Facts, now time.Time) *wire.Facts {
	if b.confirmed == nil || b.sent != nil && now.Sub(b.at) < outcomeAgain {
		return nil
	}
	var out wire.Facts
	sent := map[factKey]string{}
	size := 0
	for i, item := range items(held) {
		if item.key.sheet && len(out.Labels) > 0 && size+sheetBytes(held) > maxFactsBytes {
			break // sheets go together: one that grows may need what another one gives up
		}
		if told, ok := b.confirmed[item.key]; ok && told == item.text {
			continue
		}
		if size += len(item.text); size > maxFactsBytes && len(sent) > 0 {
			break
		}
		sent[item.key] = item.text
		delete(b.confirmed, item.key) // without an answer the table may have either
		if item.key.sheet {
			out.Sheets = append(out.Sheets, held.Sheets[i-len(held.Labels)])
		} else {
			out.Labels = append(out.Labels, held.Labels[i])
		}
	}
	if b.sent = nil; len(sent) == 0 {
		return nil
	}
	b.seq++
	out.Seq, b.sent, b.at = b.seq, sent, now
	return &out
}

// Answered takes the leader's word for the message under way; a word for an
// earlier one changes nothing.
func (b *FactBook) Answered(seq uint64) bool {
	if b.sent == nil || seq != b.seq {
		return false
	}
	for k, text := range b.sent {
		b.confirmed[k] = text
	}
	b.sent = nil
	return true
}

func sheetBytes(f wire.Facts) (n int) {
	for _, s := range f.Sheets {
		n += len(s.Body)
	}
	return n
}

// item is one thing that a host tells, as text to compare.
type item struct {
	key  factKey
	text string
}

// items lists the labels and then the sheets, in their order.
func items(f wire.Facts) []item {
	all := make([]item, 0, len(f.Labels)+len(f.Sheets))
	for _, d := range f.Labels {
		all = append(all, item{factKey{name: d.Name}, string(codec.MustMarshal(d.Detected))})
	}
	for _, s := range f.Sheets {
		all = append(all, item{factKey{sheet: true, name: s.Name}, s.Body})
	}
	return all
}

// tellFacts sends what the leader does not know yet.
func (s *linkSession) tellFacts() error {
	msg := s.facts.Next(s.link.handler.Facts(), time.Now())
	if msg == nil {
		return nil
	}
	return s.out.send(wire.AgentMessage{Facts: msg})
}

// factsAcked takes the leader's answer and goes on with what is left.
func (s *linkSession) factsAcked(ack wire.FactsAck) error {
	if !s.facts.Answered(ack.Seq) {
		return nil
	}
	if ack.Code != "" {
		s.link.log.Warn("facts of this host refused; they are told again when they have changed", "code", ack.Code, "message", ack.Message)
	}
	return s.tellFacts()
}

// faultSaid is what became of a fault in this session.
type faultSaid struct {
	at       time.Time
	answered bool
}

// tellFaults says every fault once, and again without an answer.
func (s *linkSession) tellFaults(now time.Time) error {
	said := map[wire.DeviceFault]faultSaid{}
	for _, f := range s.link.handler.Faults() {
		before, known := s.faults[f]
		if known && (before.answered || now.Sub(before.at) < outcomeAgain/2) {
			said[f] = before
			continue
		}
		if err := s.out.send(wire.AgentMessage{Fault: &f}); err != nil {
			return err
		}
		said[f] = faultSaid{at: now}
	}
	s.faults = said
	return nil
}
