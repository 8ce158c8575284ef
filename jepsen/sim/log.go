package sim

import (
	"cmp"
	"slices"
	"time"

	"rcd/fsm/command"
)

// raftLog is the replicated log as Raft gives it: one order of entries, each
// with the term of the leader that appended it; what a majority has is final,
// what only a deposed leader appended is lost, or finished by the next one.
type raftLog struct {
	w         *World
	term      uint64
	leader    *node // who truly leads; nil between two terms
	committed []logged
	tail      []logged      // appended in the present log, not committed
	stalled   time.Duration // until then nothing gets committed
	skip      uint64        // indexes that Raft's own entries take before the next one
}

// logged is one entry. Raft has entries of its own between those of the state
// machine, so the index of an entry says nothing of its place among them.
type logged struct {
	index, term uint64
	data        []byte
	batch       *batch
}

// batch is one entry on its way, as its proposer remembers it.
type batch struct {
	epoch    *epoch
	commands [][]byte
	answers  []func(answer)
	settled  bool
}

// answer is what a proposer hears.
type answer struct {
	result command.Result
	index  uint64
	// known is false when the outcome is unknown: it may happen or not.
	known bool
}

// settle answers once; nil results mean that the outcome is unknown.
func (b *batch) settle(results []command.Result, index uint64) {
	if b.settled {
		return
	}
	b.settled = true
	for i, done := range b.answers {
		if results == nil {
			done(answer{})
			continue
		}
		done(answer{result: results[i], index: index, known: true})
	}
}

// elect makes n the leader of the next term. Of what was not committed it has
// received any prefix.
func (l *raftLog) elect(n *node) {
	l.term++
	kept := 0
	if len(l.tail) > 0 {
		kept = l.w.rng.IntN(len(l.tail) + 1)
		l.w.counts.LostEntries += len(l.tail) - kept
		l.w.counts.KeptEntries += kept
	}
	l.tail = l.tail[:kept:kept]
	// Its no-op, and now and then many more, as after hours of other terms: so
	// that checkpoints come up in a short run.
	l.skip = 1
	if l.w.rng.IntN(2) == 0 {
		l.skip += uint64(l.w.rng.IntN(1000))
	}
	l.leader = n
	l.w.note("%s leads term %d, keeps %d entries in flight", n.id, l.term, kept)
	e := n.begin(l.term)
	n.appendEntry(e, [][]byte{n.epochBegin()}, []func(answer){func(answer) {}})
}

// depose ends the present term. Its leader notices after a while, or never
// before it leads again.
func (l *raftLog) depose(notices time.Duration) {
	n := l.leader
	if n == nil {
		return
	}
	l.leader = nil
	e := n.epoch
	l.w.note("%s is deposed in term %d, notices in %v", n.id, l.term, notices)
	l.w.after(notices, func() { e.end("deposed") })
}

// majority reports whether entries can be committed.
func (l *raftLog) majority() bool {
	up := 0
	for _, n := range l.w.nodes {
		if n.up {
			up++
		}
	}
	return up*2 > len(l.w.nodes)
}

// last returns the index of the newest entry, 0 before any.
func (l *raftLog) last() uint64 {
	switch {
	case len(l.tail) > 0:
		return l.tail[len(l.tail)-1].index
	case len(l.committed) > 0:
		return l.committed[len(l.committed)-1].index
	}
	return 0
}

func (l *raftLog) append(e logged) {
	e.index = l.last() + 1 + l.skip
	l.skip = 0
	l.tail = append(l.tail, e)
	place, term := len(l.committed)+len(l.tail), l.term
	delay := l.w.between(time.Millisecond, 15*time.Millisecond)
	if l.w.chance(4) {
		delay = l.w.between(50*time.Millisecond, 3*time.Second)
	}
	l.w.after(delay, func() { l.commit(place, term) })
}

// commit makes everything up to a place in the log final, if the leader that
// appended it still leads: entries of earlier terms count only with one of the
// present.
func (l *raftLog) commit(place int, term uint64) {
	if l.term != term || l.leader == nil || place <= len(l.committed) {
		return
	}
	if !l.majority() || l.w.now < l.stalled {
		l.w.after(50*time.Millisecond, func() { l.commit(place, term) })
		return
	}
	n := place - len(l.committed)
	l.committed = append(l.committed, l.tail[:n]...)
	l.tail = append([]logged(nil), l.tail[n:]...)
	for _, node := range l.w.nodes {
		node.applySoon()
	}
}

// place returns how many committed entries lie at or below an index.
func (l *raftLog) place(index uint64) int {
	i, found := slices.BinarySearchFunc(l.committed, index, func(e logged, index uint64) int { return cmp.Compare(e.index, index) })
	if found {
		i++
	}
	return i
}
