package sim

import (
	"bytes"
	"slices"
	"time"

	"rcd/fsm"
)

// node is one controller: a replica, and the leader while it believes so.
type node struct {
	w     *World
	id    string
	up    bool
	m     *fsm.Machine
	knows uint32        // the highest feature level of its build
	wall  time.Duration // its wall clock minus the true time
	lag   time.Duration // until then it applies nothing
	life  int           // counts its process starts

	epoch *epoch // the newest one it has begun, nil before
	// heard is who sent it anything, whatever its role.
	heard    map[string]hostHeard
	snapshot []byte
	applying bool
	damaged  bool // see QuirkDamagedCopy
}

func (w *World) newNode(i int) *node {
	n := &node{w: w, id: "c" + string(rune('1'+i)), up: true, knows: 2, heard: map[string]hostHeard{}}
	if w.rng.IntN(6) == 0 {
		n.knows = 1
	}
	n.wall = time.Duration(w.rng.Int64N(int64(2*time.Second))) - time.Second
	n.m = n.newMachine()
	return n
}

func (n *node) newMachine() *fsm.Machine {
	return fsm.New(fsm.Options{PanicOnInvariant: true, Knows: n.knows})
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
	for place := n.w.log.place(n.m.Index()); place < len(n.w.log.committed) && n.up; place++ {
		n.apply(place, n.w.log.committed[place])
	}
}

// apply applies the entry at a place of the log.
func (n *node) apply(place int, e logged) {
	data, extra := n.w.mutated(n, place, e)
	before := n.m.View()
	results, events, err := n.m.Apply(e.index, e.term, data)
	if err != nil {
		n.w.fail("%s halts at index %d: %v", n.id, e.index, err)
	}
	results = results[extra : len(results)-extra]
	n.w.witness.applied(n, place, e, before, results, events)
	for _, believed := range n.w.allEpochs(n) {
		believed.noteQuarantines(events)
	}
	if n.w.log.leader == n && e.batch.epoch == n.epoch && !n.epoch.ended && n.epoch.term == e.term {
		n.epoch.open = true
		e.batch.settle(results, e.index)
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

// restart brings a node back from its last snapshot and the log, maybe with a
// newer build.
func (n *node) restart() {
	if n.up {
		return
	}
	n.up = true
	if n.knows < 3 && n.w.rng.IntN(3) == 0 {
		n.knows++
	}
	n.m = n.newMachine()
	n.restore(n.snapshot)
	n.w.note("%s restarts at index %d and knows level %d", n.id, n.m.Index(), n.knows)
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
