package sim

import (
	"slices"
	"strings"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

const (
	tendEvery      = 2 * time.Second // as controller compares and records
	digestPatience = 5 * time.Second
)

// word is what a controller says of itself.
type word struct {
	supports uint32
	build    string
}

func (n *node) word() word { return word{n.knows, "build-" + string(rune('0'+n.knows))} }

// tending is a leader's memory of what it owes the controllers: the digests it
// has collected and the words it was told in this epoch.
type tending struct {
	index   uint64 // of the checkpoint under way, 0: none
	since   time.Duration
	done    uint64 // the last checkpoint that this epoch is through with
	reports map[string][]byte
	lacking map[string]bool // came past the index by a snapshot

	said    map[string]word
	refused map[string]word // not taken by the lease table
	raised  uint32          // the level proposed last
	busy    bool            // waits for the answer to a proposal
}

// tend compares the lease tables and records the controllers, every other
// second.
func (e *epoch) tend() {
	if e.ended {
		return
	}
	e.w.after(tendEvery, e.tend)
	if !e.open || e.tending.busy {
		return
	}
	for _, n := range e.w.nodes {
		n.answer(e, func(said word) { e.tending.said[n.id] = said })
	}
	if !e.record() {
		e.compare()
	}
}

// answer gives a leader what a node says of itself, a moment later.
func (n *node) answer(e *epoch, take func(word)) {
	life := n.life
	e.w.after(e.w.between(time.Millisecond, 20*time.Millisecond), func() {
		if n.up && n.life == life && !e.ended && !e.w.chance(5) {
			take(n.word())
		}
	})
}

// ask proposes one thing at a time, as the goroutine of a controller does.
func (e *epoch) ask(body any, done func(answer)) {
	e.tending.busy = true
	e.propose(e.w.encode(command.Request{}, body), func(a answer) {
		e.tending.busy = false
		done(a)
	})
}

// record proposes the next thing that the record of the controllers lacks, and
// reports whether there was one.
func (e *epoch) record() bool {
	view := e.n.m.View()
	rows := view.Members()
	row := func(id string) *model.Member {
		i := slices.IndexFunc(rows, func(m *model.Member) bool { return m.ID == id })
		if i < 0 {
			return nil
		}
		return rows[i]
	}
	level := uint32(0)
	for _, n := range e.w.nodes {
		said, ok := e.tending.said[n.id]
		m := row(n.id)
		switch {
		case ok && (m == nil || m.Supports != said.supports || m.Build != said.build) && e.tending.refused[n.id] != said:
			body := &command.MemberPut{ID: n.id, Incarnation: n.id, Supports: said.supports, Build: said.build}
			e.ask(body, func(a answer) {
				if a.known && a.result.Code != command.OK && a.result.Code != command.StaleEpoch {
					e.tending.refused[n.id] = said
				}
			})
			return true
		case !ok:
			level = 0
		case level == 0 || said.supports < level:
			level = said.supports
		}
	}
	for _, m := range rows {
		if !slices.ContainsFunc(e.w.nodes, func(n *node) bool { return n.id == m.ID }) {
			e.ask(&command.MemberRemove{ID: m.ID}, func(answer) {})
			return true
		}
	}
	if len(e.tending.said) < len(e.w.nodes) || level <= max(view.FeatureLevel(), e.tending.raised) {
		return false
	}
	raise := &command.FeatureRaise{Level: level}
	for _, n := range e.w.nodes {
		raise.Members = append(raise.Members, n.id)
	}
	e.ask(raise, func(a answer) {
		if a.known {
			e.tending.raised = level
		}
	})
	return true
}

// compare collects what the voters held at the newest checkpoint and proposes
// it when all have answered, or after a while.
func (e *epoch) compare() {
	p := &e.tending
	agreed, _ := e.n.m.View().Checkpoint()
	if p.index == 0 {
		index, own := e.n.m.LastMark()
		if index <= agreed || index <= p.done {
			return
		}
		raw := own.Bytes()
		p.index, p.since, p.lacking = index, e.w.now, map[string]bool{}
		p.reports = map[string][]byte{e.n.id: raw[:]}
	}
	for _, n := range e.w.nodes {
		if p.reports[n.id] == nil && !p.lacking[n.id] {
			e.askDigest(n, p.index)
		}
	}
	if len(p.reports)+len(p.lacking) < len(e.w.nodes) && e.w.now-p.since < digestPatience {
		return
	}
	body := &command.Checkpoint{Index: p.index, Voters: uint32(len(e.w.nodes))}
	for _, n := range e.w.nodes {
		if digest := p.reports[n.id]; digest != nil {
			body.Reports = append(body.Reports, command.DigestReport{Node: n.id, Digest: digest})
		}
	}
	slices.SortFunc(body.Reports, func(a, b command.DigestReport) int { return strings.Compare(a.Node, b.Node) })
	differ := slices.ContainsFunc(body.Reports, func(r command.DigestReport) bool { return string(r.Digest) != string(body.Reports[0].Digest) })
	p.done, p.index = p.index, 0
	if differ || 2*len(body.Reports) > len(e.w.nodes) {
		e.ask(body, func(a answer) {
			if !a.known {
				p.done = 0 // ask for it again
			}
		})
	}
}

func (e *epoch) askDigest(n *node, index uint64) {
	life := n.life
	e.w.after(e.w.between(time.Millisecond, 20*time.Millisecond), func() {
		if !n.up || n.life != life || e.ended || e.tending.index != index || e.w.chance(5) {
			return
		}
		applied := n.m.Index()
		digest, ok := n.m.DigestAt(index)
		switch {
		case ok:
			raw := digest.Bytes()
			e.tending.reports[n.id] = raw[:]
		case applied > index:
			e.tending.lacking[n.id] = true
		}
	})
}

// moveAway gives leadership away when this epoch is the first to withhold a
// mass write-off: it may be this leader that cannot hear the hosts.
func (e *epoch) moveAway() {
	withheld, waits := e.n.m.View().Withheld()
	if !waits || withheld.FirstTerm != e.term && !e.w.broken(QuirkMoveAgain) || e.ended {
		return
	}
	e.w.note("%s gives leadership away: a mass write-off is withheld", e.n.id)
	e.w.counts.MovedAway++
	if e.w.log.leader != e.n || e.w.log.term != e.term {
		e.end("it leads no more")
		return
	}
	e.w.witness.moved(withheld)
	e.w.log.depose(0)
	e.w.electSoon(e.w.between(50*time.Millisecond, time.Second))
}
