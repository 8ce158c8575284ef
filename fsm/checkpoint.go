package fsm

import (
	"fmt"
	"slices"
	"strings"

	"rcd/fsm/command"
)

// CheckpointEvery is the number of log indexes between two checkpoints.
const CheckpointEvery = 1000

// keptMarks is how many of a machine's own digests it keeps for a leader that
// asks late.
const keptMarks = 8

// mark is the digest that this machine held at a checkpoint's index.
type mark struct {
	index  uint64
	digest Digest
}

// noteMark keeps the digest at the checkpoint between the last entry applied
// and the one at index. A machine that came past it by a snapshot has none.
func (m *Machine) noteMark(index uint64) {
	at := (index - 1) / CheckpointEvery * CheckpointEvery
	if at == 0 || m.work.index == 0 || m.work.index > at {
		return
	}
	// Readers hold the old slice, so the new one is a copy.
	marks := append(slices.Clone(m.allMarks()), mark{at, m.work.digest})
	if len(marks) > keptMarks {
		marks = marks[1:]
	}
	m.marks.Store(&marks)
}

// allMarks returns the marks, newest last. They must not be written.
func (m *Machine) allMarks() []mark {
	if marks := m.marks.Load(); marks != nil {
		return *marks
	}
	return nil
}

// LastMark returns the newest checkpoint's index for which this machine has a
// digest, and that digest; 0 when there is none yet.
func (m *Machine) LastMark() (uint64, Digest) {
	marks := m.allMarks()
	if len(marks) == 0 {
		return 0, Digest{}
	}
	last := marks[len(marks)-1]
	return last.index, last.digest
}

// DigestAt returns the digest that this machine held at a checkpoint's index,
// false when it does not know.
func (m *Machine) DigestAt(index uint64) (Digest, bool) {
	for _, k := range m.allMarks() {
		if k.index == index {
			return k.digest, true
		}
	}
	return Digest{}, false
}

// Diverged reports whether this machine held another digest than the majority
// of voters at the last checkpoint at which a majority agreed, and its index.
// False also when it has no digest for that index. Unlike the event, which a
// log brings again to a node that was emptied since, it speaks for the state
// that this machine holds.
func (m *Machine) Diverged() (uint64, bool) {
	index, agreed := m.View().Checkpoint()
	own, known := m.DigestAt(index)
	return index, known && own != agreed
}

// checkpoint compares what the voters held at one index. Who differs from the
// majority is named by an event; what follows is up to the controllers.
func (t *txn) checkpoint(b *command.Checkpoint) answer {
	if b.Index != 0 && b.Index <= t.meta.CheckIndex {
		return refuse(command.StaleCheckpoint, "The voters agreed at index %d already; compare them at a later one.", t.meta.CheckIndex)
	}
	if a := t.checkReports(b); a.Code != command.OK {
		return a
	}
	most, count := majority(b.Reports)
	if count*2 <= int(b.Voters) {
		if differ(b.Reports) {
			t.emit(command.Event{Kind: command.EventNoMajority, Reason: digestsOf(b)})
		}
		return answer{}
	}
	d, err := digestFrom(most)
	assert(err == nil, "a digest that was checked is well formed")
	t.meta.CheckIndex, t.meta.CheckHigh, t.meta.CheckLow = b.Index, d.high, d.low
	t.emit(command.Event{Kind: command.EventCheckpoint})
	for _, r := range b.Reports {
		if string(r.Digest) != string(most) {
			t.emit(command.Event{Kind: command.EventDiverged, Reason: r.Node})
		}
	}
	return answer{}
}

func (t *txn) checkReports(b *command.Checkpoint) answer {
	byNode := func(x, y command.DigestReport) int { return strings.Compare(x.Node, y.Node) }
	bad := b.Index == 0 || b.Index >= t.atIndex || len(b.Reports) == 0 || len(b.Reports) > maxMembers || len(b.Reports) > int(b.Voters)
	bad = bad || !slices.IsSortedFunc(b.Reports, byNode)
	for i, r := range b.Reports {
		bad = bad || len(r.Digest) != len(Digest{}.Bytes()) || r.Node == "" || len(r.Node) > maxNamed || (i > 0 && b.Reports[i-1].Node == r.Node)
	}
	if bad {
		return refuse(command.BadRequest, "A checkpoint has an index before this one, the number of voters and at most one digest of each, sorted by node; ask the voters again.")
	}
	return answer{}
}

// majority returns the digest reported most often, and how often.
func majority(reports []command.DigestReport) (digest []byte, count int) {
	for _, r := range reports {
		n := 0
		for _, other := range reports {
			if string(other.Digest) == string(r.Digest) {
				n++
			}
		}
		if n > count {
			digest, count = r.Digest, n
		}
	}
	return digest, count
}

// digestsOf says for operators who held what.
func digestsOf(b *command.Checkpoint) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d of %d voters at index %d:", len(b.Reports), b.Voters, b.Index)
	for _, r := range b.Reports {
		fmt.Fprintf(&s, " %s=%x", r.Node, r.Digest)
	}
	return s.String()
}

func differ(reports []command.DigestReport) bool {
	return slices.ContainsFunc(reports, func(r command.DigestReport) bool { return string(r.Digest) != string(reports[0].Digest) })
}

// Checkpoint returns the index and the digest of the last checkpoint at which
// a majority of voters agreed; 0 when there was none.
func (v *View) Checkpoint() (uint64, Digest) {
	return v.meta.CheckIndex, Digest{v.meta.CheckHigh, v.meta.CheckLow}
}
