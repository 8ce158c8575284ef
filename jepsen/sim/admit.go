package sim

import (
	"time"

	"rcd/fsm/command"
	rc "rcd/session"
	"rcd/wire"
)

// takeHello is a hello that arrives at a node.
func (n *node) takeHello(h *host, hello wire.Hello) {
	n.heard[hello.Host] = hostHeard{hello.Instance, n.w.now}
	e := n.epoch
	if e == nil || !e.open {
		leader := n.w.log.leader
		n.w.send(h, n, true, func() { h.redirected(hello.Instance, leader) })
		return
	}
	e.verify(h, hello, 0)
}

// verify is the round trip that proves leadership, and the wait for an index
// that the agent has seen. It holds up nobody else.
func (e *epoch) verify(h *host, hello wire.Hello, tries int) {
	e.w.after(e.w.between(time.Millisecond, 5*time.Millisecond), func() {
		switch {
		case e.ended || e.w.log.leader != e.n || e.w.log.term != e.term || tries > 50:
		case e.n.m.Index() < hello.Index:
			e.w.after(100*time.Millisecond, func() { e.verify(h, hello, tries+1) })
		default:
			e.enter(func(leave func()) { e.admit(h, hello, leave) })
		}
	})
}

// enter runs do once no verdict is in flight, and keeps verdicts off until do
// calls leave.
func (e *epoch) enter(do func(leave func())) {
	if e.ended {
		return
	}
	if e.verdict && !e.w.broken(QuirkAdmitInVerdict) {
		e.waiting = append(e.waiting, func() { e.enter(do) })
		return
	}
	e.admitting++
	do(func() { e.admitting-- })
}

// admit takes an agent in. What it is ordered must not be judged as never
// ordered.
func (e *epoch) admit(h *host, hello wire.Hello, leave func()) {
	known := e.n.m.View().Agent(hello.Host)
	switch {
	case known != nil && known.MachineID != hello.MachineID:
		e.w.counts.WrongMachine++ // a host that comes every second must not fill the log
		leave()
	case known != nil && known.Instance == hello.Instance:
		e.admitted(h, hello)
		leave()
	default:
		e.propose(e.w.encode(command.Request{}, rc.Registration(hello)), func(a answer) {
			switch {
			case a.known && a.result.Code == command.OK:
				e.admitted(h, hello)
			case a.known && a.result.Code != command.StaleEpoch:
				e.w.note("registration of %s refused: %s", hello.Host, a.result.Code)
			}
			leave()
		})
	}
}

func (e *epoch) admitted(h *host, hello wire.Hello) {
	if !e.w.broken(QuirkAttachUnseen) {
		e.live.Admit(hello.Host, clock(e.w.now))
	}
	delay := e.w.slowAttach + e.w.between(0, 20*time.Millisecond)
	if e.w.chance(10) {
		delay = e.w.between(100*time.Millisecond, 2*time.Second)
	}
	e.w.after(delay, func() { e.attach(h, hello) })
}

// proveEvery is how often a host is asked for another proof.
const proveEvery = 10 * time.Second

// wantsProof reports whether to ask the host for another hello: a device of it
// is in quarantine for a reason that a fresh proof may answer.
func (s *session) wantsProof() bool {
	if !s.open || s.w.now-s.proven < proveEvery || !s.e.wantsProof(s.hello) {
		return false
	}
	s.proven = s.w.now
	return true
}

func (e *epoch) wantsProof(hello wire.Hello) bool {
	return !hello.RequireManualClear && e.n.m.View().ProofWanted(hello.Host)
}

// prove hands a later hello to the lease table. Only a clean proof is worth an
// entry.
func (s *session) prove(hello wire.Hello) {
	if s.proving || !hello.Proof.SurvivorsChecked || hello.Proof.SurvivorsFound || !s.e.wantsProof(hello) {
		return
	}
	s.proving = true
	s.e.enter(func(leave func()) {
		done := func(answer) {
			s.proving = false
			leave()
		}
		known := s.e.n.m.View().Agent(hello.Host)
		old := hello.Index < s.e.quarantines[hello.Host] && !s.w.broken(QuirkOldProof)
		if known == nil || known.Instance != hello.Instance || old {
			done(answer{})
			return
		}
		s.w.counts.Proofs++
		s.e.propose(s.w.encode(command.Request{}, rc.Recovery(hello)), done)
	})
}

// takeNews proposes what a host says beside its jobs, in the order in which it
// was said, and acks what the lease table has taken or has no use for.
func (s *session) takeNews(seq int, body any, ack func()) {
	if seq < s.newsSeq {
		return // a connection does not reorder
	}
	s.newsSeq = seq
	if known := s.e.n.m.View().Agent(s.hello.Host); known == nil || known.Instance != s.instance {
		return // it has to register first
	}
	s.w.counts.News++
	s.e.propose(s.w.encode(command.Request{}, body), func(a answer) {
		if !a.known {
			return
		}
		switch a.result.Code {
		case command.OK, command.DeviceNotFound:
			s.w.send(s.h, s.e.n, true, ack)
		case command.StaleEpoch, command.StaleInstance, command.UnknownAgent:
		default:
			s.w.fail("%s says %T and is refused: %s", s.hello.Host, body, a.result.Message)
		}
	})
}
