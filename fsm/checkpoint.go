package fsm

import (
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
	if at == 0 || m.work.index == 0 || m.work.index > at || (len(m.marks) > 0 && m.marks[len(m.marks)-1].index >= at) {
		return
	}
	m.marks = append(m.marks, mark{at, m.work.digest})
	if len(m.marks) > keptMarks {
		m.marks = slices.Delete(m.marks, 0, 1)
	}
}

// LastMark returns the newest checkpoint's index for which this machine has a
// digest, and that digest; 0 when there is none yet.
func (m *Machine) LastMark() (uint64, Digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.marks) == 0 {
		return 0, Digest{}
	}
	last := m.marks[len(m.marks)-1]
	return last.index, last.digest
}

// DigestAt returns the digest that this machine held at a checkpoint's index,
// false when it does not know.
func (m *Machine) DigestAt(index uint64) (Digest, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.marks {
		if k.index == index {
			return k.digest, true
		}
	}
	return Digest{}, false
}

// checkpoint compares what the voters held at one index. Who differs from the
// majority is named by an event; what follows is up to the controllers.
func (t *txn) checkpoint(b *command.Checkpoint) answer {
	if b.Index <= t.meta.CheckIndex {
		return refuse(command.StaleCheckpoint, "There is a checkpoint at %d already.", t.meta.CheckIndex)
	}
	if a := t.checkReports(b); a.Code != command.OK {
		return a
	}
	most, count := majority(b.Reports)
	if count*2 <= int(b.Voters) {
		if differ(b.Reports) {
			t.emit(command.Event{Kind: command.EventNoMajority})
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
	bad := b.Index >= t.atIndex || b.Voters == 0 || len(b.Reports) == 0 || len(b.Reports) > maxMembers || len(b.Reports) > int(b.Voters)
	bad = bad || !slices.IsSortedFunc(b.Reports, byNode)
	for i, r := range b.Reports {
		bad = bad || len(r.Digest) != len(Digest{}.Bytes()) || r.Node == "" || (i > 0 && b.Reports[i-1].Node == r.Node)
	}
	if bad {
		return refuse(command.BadRequest, "A checkpoint has an earlier index, the number of voters and at most one digest of each, sorted.")
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

func differ(reports []command.DigestReport) bool {
	return slices.ContainsFunc(reports, func(r command.DigestReport) bool { return string(r.Digest) != string(reports[0].Digest) })
}

// Checkpoint returns the index and the digest of the last checkpoint at which
// a majority of voters agreed; 0 when there was none.
func (v *View) Checkpoint() (uint64, Digest) {
	return v.meta.CheckIndex, Digest{v.meta.CheckHigh, v.meta.CheckLow}
}
