package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rcd/wire"
)

// linkSession is one control session, on the agent. Its fields belong to run's
// goroutine unless they say otherwise.
type linkSession struct {
	link *Link
	addr string
	t    *transport
	out  *messages // safe for all

	welcomed bool
	welcome  wire.Welcome
	beat     uint64
	told     map[jobKey]bool // started was said in this session
	said     map[jobKey]time.Time
	push     *time.Timer // runs while a follower knows no leader worth a try
	avoided  string      // the leader it names, which has just failed
	duties   chan duty
	facts    FactBook
	faults   map[wire.DeviceFault]faultSaid
}

func newLinkSession(l *Link, addr string, t *transport, out *messages) *linkSession {
	push := time.NewTimer(pushWait)
	push.Stop()
	return &linkSession{link: l, addr: addr, t: t, out: out, push: push,
		told: map[jobKey]bool{}, said: map[jobKey]time.Time{}, faults: map[wire.DeviceFault]faultSaid{}, duties: make(chan duty, maxOrders)}
}

// duty is an order, or the leader's wish for another hello. They are done in
// the order in which they came: a host that proves that nothing is left must
// have begun, or refused, whatever it was ordered before.
type duty struct {
	order wire.Order
	prove bool
	at    time.Time // when it came
	index uint64    // of the leader's table when it wished for a proof
}

// Why a session ends by the agent's own choice.
var (
	errNoLeader     = errors.New("the follower knows no leader")
	errNoWelcome    = errors.New("neither welcome nor redirect in time")
	errTooManyOrder = errors.New("too many orders wait")
)

// run says hello and serves the session until it ends or ctx does. All of its
// goroutines have ended when it returns.
func (s *linkSession) run(ctx context.Context) (end ending) {
	ctx, cancel := context.WithCancel(ctx)
	incoming, failed := make(chan wire.AgentMessage), make(chan error, 2)
	var wait sync.WaitGroup
	wait.Add(2)
	go func() { defer wait.Done(); s.read(ctx, incoming, failed) }()
	go func() { defer wait.Done(); s.obey(ctx, failed) }()
	defer func() {
		end.welcomed = s.welcomed
		s.push.Stop()
		cancel()
		s.t.close()
		wait.Wait()
	}()

	hello := s.link.hello()
	if err := s.out.send(wire.AgentMessage{Hello: &hello}); err != nil {
		return ending{err: err}
	}
	beat := time.NewTicker(HeartbeatEvery)
	defer beat.Stop()
	again := time.NewTicker(outcomeAgain)
	defer again.Stop()
	late := time.NewTimer(welcomeTimeout)
	defer late.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ending{err: ctx.Err()}
		case err = <-failed:
		case msg := <-incoming:
			var over *ending
			if over, err = s.take(msg); over != nil {
				return *over
			}
			if s.welcomed {
				late.Stop()
			}
		case <-beat.C:
			err = s.heartbeat()
		case <-again.C:
			err = s.report(true)
		case <-s.link.handler.Changed():
			err = s.report(false)
		case <-s.push.C:
			if s.avoided != "" {
				return ending{redirect: s.avoided}
			}
			err = errNoLeader
		case <-late.C:
			err = errNoWelcome
		}
		if err != nil {
			return ending{err: err}
		}
	}
}

func (s *linkSession) read(ctx context.Context, incoming chan<- wire.AgentMessage, failed chan<- error) {
	for {
		msg, err := s.out.receive(readDeadline)
		if err != nil {
			failed <- fmt.Errorf("control stream: %w", err)
			return
		}
		select {
		case incoming <- msg:
		case <-ctx.Done():
			return
		}
	}
}

// obey does the duties one after the other, away from the heartbeat: an order
// waits for the disk, and to look for survivors takes a walk over all processes.
func (s *linkSession) obey(ctx context.Context, failed chan<- error) {
	for {
		select {
		case d := <-s.duties:
			if err := s.out.send(s.answer(ctx, d)); err != nil {
				failed <- err
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// answer does one duty. A start that had to wait for longer than it takes a
// leader to repeat it is left to the repetition, if there is one: its lease may
// have ended meanwhile, because nobody saw the job, and its device be another's.
func (s *linkSession) answer(ctx context.Context, d duty) wire.AgentMessage {
	if d.prove {
		hello := s.link.hello()
		hello.Index = d.index // what came later may be about what is not looked for here
		return wire.AgentMessage{Hello: &hello}
	}
	if d.order.Kind == wire.OrderStart && time.Since(d.at) >= resendAfter {
		return wire.AgentMessage{OrderAck: &wire.OrderAck{Seq: d.order.Seq, Code: wire.OrderFailed,
			Message: "the order waited for too long and may be wanted no more; it counts when it is repeated"}}
	}
	ack := s.link.handler.Order(ctx, d.order)
	ack.Seq = d.order.Seq
	return wire.AgentMessage{OrderAck: &ack}
}

// take handles one message; a non-nil ending ends the session.
func (s *linkSession) take(msg wire.AgentMessage) (*ending, error) {
	switch {
	case msg.Welcome != nil:
		return nil, s.takeWelcome(*msg.Welcome)
	case msg.Redirect != nil:
		return s.takeRedirect(*msg.Redirect), nil
	case msg.Refused != nil:
		return &ending{refused: msg.Refused}, nil
	case msg.HeartbeatAck != nil:
		s.controllers(msg.HeartbeatAck.Controllers)
		if msg.HeartbeatAck.Prove {
			select {
			case s.duties <- duty{prove: true, at: time.Now(), index: msg.HeartbeatAck.Index}:
			default: // it is asked for again
			}
		}
		if s.welcomed {
			return nil, s.link.see(s.welcome.Generation, s.welcome.Term, msg.HeartbeatAck.Index)
		}
	case msg.Order != nil:
		return nil, s.takeOrder(*msg.Order)
	case msg.OutcomeAck != nil:
		delete(s.said, jobKey{msg.OutcomeAck.Job, msg.OutcomeAck.Lease})
		s.link.handler.Acked(*msg.OutcomeAck)
	case msg.FaultAck != nil:
		if msg.FaultAck.Code != "" {
			s.faults[msg.FaultAck.DeviceFault] = faultSaid{answered: true}
		} else {
			delete(s.faults, msg.FaultAck.DeviceFault) // the same words again are another fault
		}
		s.link.handler.FaultAcked(*msg.FaultAck)
	case msg.FactsAck != nil:
		return nil, s.factsAcked(*msg.FactsAck)
	default:
		return nil, fmt.Errorf("a %s is not for an agent", describe(msg))
	}
	return nil, nil
}

func (s *linkSession) takeWelcome(w wire.Welcome) error {
	if err := s.link.see(w.Generation, w.Term, w.Index); err != nil {
		return err
	}
	s.welcomed, s.welcome = true, w
	s.push.Stop()
	s.link.book.welcomed(s.addr)
	s.controllers(w.Controllers)
	s.link.handler.Welcomed(w)
	s.facts.Agree(s.link.handler.Facts(), w.Facts)
	s.link.log.Info("attached", "leader", w.Leader, "controller", s.addr, "term", w.Term)
	return s.report(true)
}

// takeRedirect leaves for the leader, or stays for the push of a follower that
// knows none that is worth a try.
func (s *linkSession) takeRedirect(r wire.Redirect) *ending {
	s.controllers(r.Controllers)
	if r.Addr != "" && !s.link.book.avoided(r.Addr) {
		return &ending{redirect: r.Addr}
	}
	if s.welcomed {
		// The leader gave up and closes; others know sooner who follows it.
		return &ending{err: errNoLeader}
	}
	s.avoided = r.Addr
	s.push.Reset(pushWait)
	return nil
}

// takeOrder checks the fence and passes the order on.
func (s *linkSession) takeOrder(o wire.Order) error {
	if !s.welcomed {
		return errors.New("an order before the welcome")
	}
	err := s.link.see(o.Generation, o.Term, o.Index)
	switch {
	case errors.Is(err, errStaleLeader):
		s.link.log.Warn("order of an old term refused", "error", err)
		return s.out.send(wire.AgentMessage{OrderAck: &wire.OrderAck{Seq: o.Seq, Code: wire.OrderStaleTerm,
			Message: "this agent has obeyed a newer leader; give up leadership"}})
	case err != nil:
		return err
	}
	s.welcome.Generation, s.welcome.Term = o.Generation, o.Term
	if o.Kind == wire.OrderBytes {
		s.link.bulk.dial(s.link, s.addr, o.Term)
		return s.out.send(wire.AgentMessage{OrderAck: &wire.OrderAck{Seq: o.Seq}})
	}
	select {
	case s.duties <- duty{order: o, at: time.Now()}:
		return nil
	default:
		return errTooManyOrder
	}
}

func (s *linkSession) controllers(list []wire.Controller) {
	if s.link.book.update(list) {
		s.link.handler.Controllers(list)
	}
}

func (s *linkSession) heartbeat() error {
	s.beat++
	return s.out.send(wire.AgentMessage{Heartbeat: &wire.Heartbeat{
		Seq: s.beat, Jobs: s.link.handler.Jobs(), WallMS: time.Now().UnixMilli()}})
}

// report says what has started, what has ended and what facts have changed since it was last said in
// this session; all of it again if all is set. Before the welcome nobody would
// act on it.
func (s *linkSession) report(all bool) error {
	if !s.welcomed {
		return nil
	}
	jobs := s.link.handler.Jobs()
	told := make(map[jobKey]bool, len(jobs))
	for _, j := range jobs {
		k := jobKey{j.Job, j.Lease}
		if j.Phase != wire.PhaseRunning {
			continue
		}
		if told[k] = true; s.told[k] {
			continue
		}
		if err := s.out.send(wire.AgentMessage{Started: &wire.Started{Job: j.Job, Lease: j.Lease}}); err != nil {
			return err
		}
	}
	s.told = told
	now := time.Now()
	said := map[jobKey]time.Time{}
	for _, o := range s.link.handler.Outcomes() {
		k := jobKey{o.Job, o.Lease}
		at, known := s.said[k]
		if known && (!all || now.Sub(at) < outcomeAgain/2) {
			said[k] = at
			continue
		}
		if err := s.out.send(wire.AgentMessage{Outcome: &o}); err != nil {
			return err
		}
		said[k] = now
	}
	s.said = said
	if err := s.tellFaults(now); err != nil {
		return err
	}
	return s.tellFacts()
}
