package sim

import (
	"bytes"
	"slices"
	"time"

	"rcd/fsm"
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
}

type logged struct {
	term  uint64
	data  []byte
	batch *batch
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

func (l *raftLog) append(e logged) {
	l.tail = append(l.tail, e)
	index, term := len(l.committed)+len(l.tail), l.term
	delay := l.w.between(time.Millisecond, 15*time.Millisecond)
	if l.w.chance(4) {
		delay = l.w.between(50*time.Millisecond, 3*time.Second)
	}
	l.w.after(delay, func() { l.commit(index, term) })
}

// commit makes everything up to an index final, if the leader that appended it
// still leads: entries of earlier terms count only with one of the present.
func (l *raftLog) commit(index int, term uint64) {
	if l.term != term || l.leader == nil || index <= len(l.committed) {
		return
	}
	if !l.majority() || l.w.now < l.stalled {
		l.w.after(50*time.Millisecond, func() { l.commit(index, term) })
		return
	}
	n := index - len(l.committed)
	l.committed = append(l.committed, l.tail[:n]...)
	l.tail = append([]logged(nil), l.tail[n:]...)
	for _, node := range l.w.nodes {
		node.applySoon()
	}
}

// node is one controller: a replica, and the leader while it believes so.
type node struct {
	w    *World
	id   string
	up   bool
	m    *fsm.Machine
	wall time.Duration // its wall clock minus the true time
	lag  time.Duration // until then it applies nothing
	life int           // counts its process starts

	epoch *epoch // the newest one it has begun, nil before
	// heard is who sent it anything, whatever its role.
	heard    map[string]hostHeard
	snapshot []byte
	applying bool
}

func (n *node) applySoon() {
	if !n.up || n.applying {
		return
	}
	n.applying = true
	life := n.life
	delay := n.w.between(0, 2*time.Millisecond)
	if n.w.log.leader != n {
		delay = n.w.between(0, 20*time.Millisecond)
	}
	n.w.after(max(delay, n.lag-n.w.now), func() {
		if n.life != life || !n.up {
			return
		}
		n.applying = false
		n.catchUp()
	})
}

// catchUp applies everything that is committed.
func (n *node) catchUp() {
	for int(n.m.Index()) < len(n.w.log.committed) && n.up {
		n.applyNext()
	}
}

func (n *node) applyNext() {
	index := n.m.Index() + 1
	e := n.w.log.committed[index-1]
	results, events, err := n.m.Apply(index, e.term, e.data)
	if err != nil {
		n.w.fail("%s halts at index %d: %v", n.id, index, err)
	}
	n.w.witness.applied(n, index, e, results, events)
	if n.w.log.leader == n && e.batch.epoch == n.epoch && !n.epoch.ended && n.epoch.term == e.term {
		n.epoch.open = true
		e.batch.settle(results, index)
		n.epoch.inflight = slices.DeleteFunc(n.epoch.inflight, func(b *batch) bool { return b == e.batch })
	}
	for _, believed := range n.w.allEpochs(n) {
		believed.react(events)
	}
}

// crash ends the process: what it knew is gone, what it had promised to the
// log is not.
func (n *node) crash() {
	if !n.up {
		return
	}
	n.w.note("%s crashes", n.id)
	n.w.counts.Crashes++
	if n.w.log.leader == n {
		n.w.log.leader = nil
	}
	n.up, n.applying = false, false
	n.life++
	for _, e := range n.w.allEpochs(n) {
		e.end("crash")
	}
	n.heard = map[string]hostHeard{}
}

// restart brings a node back from its last snapshot and the log.
func (n *node) restart() {
	if n.up {
		return
	}
	n.up = true
	n.m = fsm.New(fsm.Options{PanicOnInvariant: true})
	n.restore(n.snapshot)
	n.w.note("%s restarts at index %d", n.id, n.m.Index())
	n.applySoon()
}

func (n *node) restore(snapshot []byte) {
	if snapshot == nil {
		return
	}
	if err := n.m.Restore(bytes.NewReader(snapshot)); err != nil {
		n.w.fail("%s does not restore its snapshot: %v", n.id, err)
	}
	n.w.counts.Restores++
	n.w.witness.restored(n)
}

// takeSnapshot keeps a snapshot of the present state.
func (n *node) takeSnapshot() {
	var out bytes.Buffer
	if _, err := n.m.Snapshot().WriteTo(&out); err != nil {
		n.w.fail("%s does not write a snapshot: %v", n.id, err)
	}
	n.snapshot = out.Bytes()
}

// install gives a node that is behind the snapshot of another.
func (n *node) install(from *node) {
	if !n.up || !from.up || n.m.Index() >= from.m.Index() || n.w.log.leader == n {
		return
	}
	from.takeSnapshot()
	n.w.note("%s takes the snapshot of %s at index %d", n.id, from.id, from.m.Index())
	n.restore(from.snapshot)
	n.snapshot = from.snapshot
}
