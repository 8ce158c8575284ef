package sim

import (
	"slices"
	"time"

	"rcd/fsm/command"
	rc "rcd/session"
)

const (
	tickEvery   = time.Second     // as controller looks for silence
	sessionDead = 5 * time.Second // without a message
	resendAfter = 5 * time.Second // an order without effect is written again
	wallStartMS = int64(1_790_000_000_000)
)

// epoch is what a node does as the leader of one term, for as long as it
// believes in it. A node that was deposed goes on until it notices, and one
// that leads again may have an older epoch that has not noticed either.
type epoch struct {
	w     *World
	n     *node
	term  uint64
	began time.Duration
	wall  int64 // Unix ns of its wall clock at the start; stamps go on from here
	open  bool  // its epoch.begin is applied
	ended bool

	live     *rc.Liveness
	sessions []*session
	detached map[string]time.Duration // when a host's session ended
	ordered  map[jobKey]bool
	named    map[uint64]time.Duration // lease: the last heartbeat that named it; the witness's
	callers  map[uint64]time.Duration // hold: when its client was heard last
	queue    *batch                   // being filled
	inflight []*batch

	// A sweep in flight holds off hellos, and a hello being admitted holds off
	// sweeps: what an agent is ordered must not be judged as never ordered.
	verdict   bool
	admitting int
	tending   tending
	told      rc.Doubts
	// quarantines has the index at which a device of a host last went into
	// quarantine: a proof that was asked for before says nothing about it.
	quarantines map[string]uint64
	stuck       map[uint64]int // ticks for which a job was held by a dead host
	deserted    int            // ticks for which a hold has outlived the session of its client
	late        int            // ticks for which a job was unserved past the grace
	waiting     []func()
}

type jobKey struct{ job, lease uint64 }

// begin makes the node leader of a term.
func (n *node) begin(term uint64) *epoch {
	e := &epoch{
		w: n.w, n: n, term: term, began: n.w.now, ordered: map[jobKey]bool{}, named: map[uint64]time.Duration{}, callers: map[uint64]time.Duration{},
		wall: wallStartMS*int64(time.Millisecond) + int64(n.w.now) + int64(n.wall),
		live: rc.NewLiveness(clock(n.w.now)), detached: map[string]time.Duration{},
		quarantines: map[string]uint64{},
		tending:     tending{said: map[string]word{}, refused: map[string]word{}},
	}
	n.epoch = e
	n.w.epochs = append(n.w.epochs, e)
	e.tick()
	e.w.after(e.w.between(0, tendEvery), e.tend)
	return e
}

// allEpochs lists the epochs that a node still believes in.
func (w *World) allEpochs(n *node) []*epoch {
	var all []*epoch
	for _, e := range w.epochs {
		if e.n == n && !e.ended {
			all = append(all, e)
		}
	}
	return all
}

func (n *node) epochBegin() []byte {
	body := &command.EpochBegin{Node: n.id, WallMS: n.epoch.wall / int64(time.Millisecond)}
	if !n.w.chance(20) { // else no clock of another node is fresh enough
		var offsets []time.Duration
		for _, other := range n.w.nodes {
			if other.up {
				offsets = append(offsets, other.wall)
			}
		}
		slices.Sort(offsets)
		body.MedianMS = wallStartMS + (n.w.now + offsets[(len(offsets)-1)/2]).Milliseconds()
	}
	return n.w.encode(command.Request{}, body)
}

func (w *World) encode(r command.Request, body any) []byte {
	data, err := command.Encode(r, body)
	if err != nil {
		w.fail("encode %T: %v", body, err)
	}
	return data
}

// end is how an epoch learns that it is over.
func (e *epoch) end(why string) {
	if e.ended {
		return
	}
	e.ended, e.open = true, false
	e.w.note("%s stops leading term %d: %s", e.n.id, e.term, why)
	e.w.epochs = slices.DeleteFunc(e.w.epochs, func(o *epoch) bool { return o == e })
	for _, s := range slices.Clone(e.sessions) {
		s.closeLeaderSide(true)
	}
	if e.queue != nil {
		e.queue.settle(nil, 0)
		e.queue = nil
	}
	for _, b := range slices.Clone(e.inflight) {
		b.settle(nil, 0)
	}
	e.inflight, e.waiting = nil, nil
}

// propose puts a command into the next entry of this epoch.
func (e *epoch) propose(cmd []byte, done func(answer)) {
	if e.ended {
		e.w.after(0, func() { done(answer{}) })
		return
	}
	if e.queue == nil {
		e.queue = &batch{epoch: e}
		e.w.after(e.w.between(0, 4*time.Millisecond), e.flush)
	}
	e.queue.commands = append(e.queue.commands, cmd)
	e.queue.answers = append(e.queue.answers, done)
}

func (e *epoch) flush() {
	b := e.queue
	if b == nil || e.ended {
		return
	}
	e.queue = nil
	e.n.appendBatch(b)
}

func (n *node) appendEntry(e *epoch, commands [][]byte, answers []func(answer)) {
	n.appendBatch(&batch{epoch: e, commands: commands, answers: answers})
}

// appendBatch hands an entry to Raft. A node that does not lead any more
// believes that it was taken, and it goes nowhere. An epoch that has passed on
// a node that leads again speaks into the log of the new term.
func (n *node) appendBatch(b *batch) {
	e := b.epoch
	stamp := e.wall + int64(n.w.now-e.began)
	data, err := command.EncodeEntry(e.term, stamp, b.commands)
	if err != nil {
		n.w.fail("encode entry: %v", err)
	}
	e.inflight = append(e.inflight, b)
	if n.w.log.leader != n {
		n.w.counts.StaleProposals++
		return
	}
	if n.w.log.term != e.term {
		n.w.counts.GhostEntries++
	}
	n.w.witness.proposed(e, stamp)
	n.w.log.append(logged{term: n.w.log.term, data: data, batch: b})
}

// tick is a leader's duty of every second.
func (e *epoch) tick() {
	if e.ended {
		return
	}
	e.w.after(tickEvery, e.tick)
	if !e.open {
		return
	}
	for _, s := range slices.Clone(e.sessions) {
		if e.w.now-s.heard > sessionDead {
			s.closeLeaderSide(false)
		}
	}
	e.dropUnregistered()
	e.sweep()
	e.moveAway()
	if e.ended {
		return
	}
	e.w.witness.swallowed(e)
	e.w.witness.neglected(e)
	e.w.witness.overdue(e)
	e.w.witness.abandoned(e)
	if view := e.n.m.View(); view.PruneNeeded() {
		e.propose(e.w.encode(command.Request{}, &command.JobPrune{Limit: 20}), func(answer) {})
	}
}

// sweep proposes what the leader can witness about silent and returned agents.
func (e *epoch) sweep() {
	if e.verdict || e.admitting > 0 {
		return
	}
	body, worth := e.evidence()
	if !worth && !e.noServeDue() {
		return
	}
	e.w.witness.evidence(e, body)
	e.w.counts.Sweeps++
	e.verdict = true
	e.propose(e.w.encode(command.Request{}, body), func(answer) { e.judged() })
}

// dropUnregistered ends the sessions of agents that the table does not know:
// their hosts were retired at the moment at which they came back.
func (e *epoch) dropUnregistered() {
	if e.verdict || e.admitting > 0 || e.w.broken(QuirkKeepUnregistered) {
		return
	}
	for _, s := range slices.Clone(e.sessions) {
		if a := e.n.m.View().Agent(s.hello.Host); a == nil || a.Instance != s.instance {
			e.w.note("%s ends the session of %s, which is not registered", e.n.id, s.instance)
			e.w.counts.Dropped++
			s.closeLeaderSide(true)
		}
	}
}

// noServeDue reports whether a queued job waits for what no host has any more,
// for so long that even a sweep without evidence is worth an entry. An idle
// log's uptime stands still, so the time since the epoch began is the leader's.
func (e *epoch) noServeDue() bool {
	view := e.n.m.View()
	at, ok := view.NoServeAtMS()
	return ok && !e.w.broken(QuirkNoServeSweep) && view.EpochUptimeMS()+(e.w.now-e.began).Milliseconds() >= at
}

// judged ends a verdict: the hellos that waited go on.
func (e *epoch) judged() {
	e.verdict = false
	waiting := e.waiting
	e.waiting = nil
	for _, admit := range waiting {
		admit()
	}
}

func (e *epoch) sessionOf(host string) *session {
	for _, s := range e.sessions {
		if s.hello.Host == host {
			return s
		}
	}
	return nil
}

func (e *epoch) noteQuarantines(events []command.Event) {
	for _, ev := range events {
		if ev.Kind == command.EventDeviceState && ev.Reason != "" {
			e.quarantines[ev.Host] = ev.Index
		}
	}
}

// react lets the sessions look again at the hosts that events name.
func (e *epoch) react(events []command.Event) {
	var hosts []string
	for _, ev := range events {
		if ev.Host != "" && !slices.Contains(hosts, ev.Host) {
			hosts = append(hosts, ev.Host)
		}
	}
	for _, host := range hosts {
		if s := e.sessionOf(host); s != nil {
			e.w.after(e.w.between(0, 3*time.Millisecond), s.reconcile)
		}
	}
}
