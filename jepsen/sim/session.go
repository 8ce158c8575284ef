package sim

import (
	"cmp"
	"slices"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	rc "rcd/session"
	"rcd/wire"
)

// session is a control session as its leader sees it. The host holds the same
// value; each side learns on its own that it is over.
type session struct {
	w        *World
	e        *epoch
	h        *host
	hello    wire.Hello
	instance string
	since    time.Duration
	heard    time.Duration // leader's side
	open     bool          // leader's side
	acked    time.Duration // host's side: last word of the leader

	named   map[jobKey]wire.ReportedJob
	sent    map[sentKey]time.Duration
	working map[sentKey]bool
	neglect map[jobKey]int // see witness.neglected
	proven  time.Duration  // when proof was asked for last
	proving bool
	beat    time.Duration // when the newest heartbeat taken was sent
	newsSeq int           // of the last news taken

	facts     rc.FactBook // host's side
	said      wire.Facts  // with QuirkTrustAnswers: the message under way
	trusted   wire.Facts  // and what was answered last
	factsSeq  uint64      // leader's side: of the last facts taken
	factsBusy bool
}

type sentKey struct {
	kind rc.ActionKind
	jobKey
	limit int64 // of an extend: another one is another order
}

// send carries a message between a host and a node: late, twice, overtaken by
// the next one, or never.
func (w *World) send(h *host, n *node, toHost bool, deliver func()) {
	bad := w.now < w.slowUntil
	if h.blocked(n, toHost) || w.chance(2) || bad && w.chance(20) {
		return
	}
	copies := 1
	if w.chance(3) {
		copies, w.counts.Repeated = 2, w.counts.Repeated+1
	}
	life := n.life
	for range copies {
		delay := w.between(time.Millisecond, 15*time.Millisecond)
		if w.chance(4) || bad && w.chance(40) {
			delay = w.between(100*time.Millisecond, 3*time.Second)
		}
		w.after(delay, func() {
			if n.life == life && n.up && !h.blocked(n, toHost) {
				deliver()
			}
		})
	}
}

func (e *epoch) attach(h *host, hello wire.Hello) {
	if e.ended {
		return
	}
	if old := e.sessionOf(hello.Host); old != nil {
		old.closeLeaderSide(false)
	}
	s := &session{
		w: e.w, e: e, h: h, hello: hello, instance: hello.Instance, since: e.w.now, heard: e.w.now, open: true,
		named: map[jobKey]wire.ReportedJob{}, sent: map[sentKey]time.Duration{}, working: map[sentKey]bool{}, neglect: map[jobKey]int{},
	}
	e.sessions = append(e.sessions, s)
	s.name(hello.Jobs)
	e.w.counts.Attached++
	e.w.note("%s attaches to %s in term %d", hello.Host, e.n.id, e.term)
	index, term, facts := e.n.m.Index(), e.term, []byte(nil)
	if !e.doubts(hello.Host) {
		facts = rc.FactsOf(e.n.m.View(), hello).Digest()
	}
	e.w.send(h, e.n, true, func() { h.welcomed(s, term, index, facts) })
	s.reconcile()
}

// closeLeaderSide detaches; told says whether the host hears of it at once.
func (s *session) closeLeaderSide(told bool) {
	if !s.open {
		return
	}
	s.open = false
	s.e.sessions = slices.DeleteFunc(s.e.sessions, func(o *session) bool { return o == s })
	s.e.detached[s.hello.Host] = s.w.now
	if told || s.w.chance(50) {
		s.w.send(s.h, s.e.n, true, func() { s.h.dropped(s) })
	}
}

func (s *session) name(jobs []wire.ReportedJob) {
	clear(s.named)
	for _, j := range jobs {
		s.named[jobKey{j.Job, j.Lease}] = j
	}
}

// nameOne adds what a message between two heartbeats says about one job. Not
// every message says its limit.
func (s *session) nameOne(j wire.ReportedJob) {
	k := jobKey{j.Job, j.Lease}
	if j.MaxRuntimeS == 0 {
		j.MaxRuntimeS = s.named[k].MaxRuntimeS
	}
	s.named[k] = j
}

// reported returns what the host is known to have, sorted.
func (s *session) reported() []wire.ReportedJob {
	all := make([]wire.ReportedJob, 0, len(s.named))
	for _, j := range s.named {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b wire.ReportedJob) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Lease, b.Lease))
	})
	return all
}

// receive takes a message of the host in, if the session still stands here.
func (s *session) receive(take func()) {
	s.e.n.heard[s.hello.Host] = hostHeard{s.instance, s.w.now}
	if !s.open {
		return
	}
	s.heard = s.w.now
	take()
}

func (s *session) heartbeat(jobs []wire.ReportedJob, sent time.Duration) {
	if sent >= s.beat { // else it was overtaken, which no connection does
		s.beat = sent
		s.name(jobs)
		for _, j := range jobs {
			s.e.named[j.Lease] = s.w.now
		}
	}
	index, prove := s.e.n.m.Index(), s.wantsProof()
	s.w.send(s.h, s.e.n, true, func() { s.h.heartbeatAcked(s, index, prove) })
	s.reconcile()
}

// reconcile compares and acts, once.
func (s *session) reconcile() {
	if !s.open {
		return
	}
	view := s.e.n.m.View()
	if view.Term() != s.e.term && !s.w.broken(QuirkOrderAhead) {
		return // a later term has begun: what it placed is not ours to order
	}
	for _, a := range rc.Reconcile(desired(view, s.hello.Host), s.reported()) {
		switch a.Kind {
		case rc.ActAdopt:
			if a.MarkStarted {
				s.started(jobKey{a.Job, a.Lease})
			}
		default:
			s.order(a)
		}
	}
}

func desired(view *fsm.View, host string) []rc.Desired {
	var all []rc.Desired
	for _, j := range view.LiveJobsOn(host) {
		if !j.State.Active() {
			continue
		}
		all = append(all, rc.Desired{
			Job: j.Number, Lease: j.Lease, State: j.State, KillRequested: j.KillRequested, KillReason: j.KillBy,
			Start: wire.StartJob{Job: j.Number, Lease: j.Lease, Kind: uint8(j.Kind), Devices: j.Devices, MaxRuntimeS: j.MaxRuntimeS, Hold: j.Hold},
		})
	}
	return all
}

func (s *session) order(a rc.Action) {
	key := sentKey{a.Kind, jobKey{a.Job, a.Lease}, a.MaxRuntimeS}
	if at, ok := s.sent[key]; ok && s.w.now-at < resendAfter {
		return
	}
	s.sent[key] = s.w.now
	o := wire.Order{Term: s.e.term, Index: s.e.n.m.Index(), Job: a.Job, Lease: a.Lease, Reason: a.Reason, Start: a.Start}
	switch a.Kind {
	case rc.ActStart:
		s.mayStart(a)
		o.Kind = wire.OrderStart
		s.e.ordered[key.jobKey] = true
		s.w.counts.Starts++
	case rc.ActKill:
		o.Kind = wire.OrderKill
		s.w.counts.Kills++
	case rc.ActReport:
		o.Kind = wire.OrderReport
	case rc.ActExtend:
		o.Kind, o.MaxRuntimeS = wire.OrderExtend, a.MaxRuntimeS
		s.w.counts.Extends++
		if s.w.broken(QuirkNoExtend) {
			return
		}
	}
	s.w.note("%s orders %s of %d/%d to %s (term %d)", s.e.n.id, a.Kind, a.Job, a.Lease, s.hello.Host, o.Term)
	s.w.send(s.h, s.e.n, true, func() { s.h.takeOrder(s, o) })
	if s.w.chance(4) { // and once more, when its job may have ended
		s.w.after(s.w.between(3*time.Second, 10*time.Second), func() { s.h.takeOrder(s, o) })
	}
}

// mayStart: what is named is not started again, what is to end not at all.
func (s *session) mayStart(a rc.Action) {
	if r, named := s.named[jobKey{a.Job, a.Lease}]; named {
		s.w.fail("%d/%d is ordered to start, and %s names it (phase %d)", a.Job, a.Lease, s.hello.Host, r.Phase)
	}
	if j := s.e.n.m.View().Job(a.Job); j == nil || j.KillRequested {
		s.w.fail("%d/%d is ordered to start and is to be ended", a.Job, a.Lease)
	}
}

// orderAcked takes the host's answer to an order.
func (s *session) orderAcked(job *wire.ReportedJob) {
	if job == nil {
		return
	}
	s.nameOne(*job)
	s.reconcile()
}

// started proposes that a job runs, unless that is being done.
func (s *session) started(k jobKey) {
	key := sentKey{kind: rc.ActAdopt, jobKey: k}
	if s.working[key] {
		return
	}
	s.working[key] = true
	body := &command.JobStart{JobRef: command.JobRef{Job: k.job, Lease: k.lease}, Host: s.hello.Host, Instance: s.instance}
	s.e.propose(s.w.encode(command.Request{}, body), func(answer) { delete(s.working, key) })
}

// finish proposes an outcome, unless that is being done, and acks it.
func (s *session) finish(o wire.Outcome) {
	k := jobKey{o.Job, o.Lease}
	key := sentKey{kind: rc.ActReport, jobKey: k}
	s.named[k] = wire.ReportedJob{Job: o.Job, Lease: o.Lease, Phase: wire.PhaseEnded}
	s.sent[key] = s.w.now
	if s.working[key] {
		return
	}
	s.working[key] = true
	body := &command.JobFinish{
		JobRef: command.JobRef{Job: o.Job, Lease: o.Lease}, Host: s.hello.Host, Instance: s.instance,
		End: command.EndKind(o.End), ExitCode: o.ExitCode, Reason: o.Reason, Origin: o.Origin,
		OutputLength: o.OutputLength, OutputDigest: o.OutputDigest, OutputKnown: o.OutputKnown, OutputGap: o.OutputGap,
		Survivors: o.Survivors,
	}
	s.e.propose(s.w.encode(command.Request{}, body), func(a answer) {
		delete(s.working, key)
		if !a.known || !acks(a.result.Code) {
			return
		}
		delete(s.named, k)
		s.w.send(s.h, s.e.n, true, func() { s.h.outcomeAcked(k) })
	})
	if j := s.e.n.m.View().Job(k.job); j != nil && j.Lease == k.lease && s.w.chance(6) {
		s.w.clients.snatch(s.e, j.Devices[0])
	}
}

// acks reports whether a host may forget an outcome after this answer.
func acks(code command.Code) bool {
	switch code {
	case command.OK, command.AlreadyEnded, command.StaleLease, command.NotFound:
		return true
	}
	return false
}
