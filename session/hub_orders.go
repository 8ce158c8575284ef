package session

import (
	"context"
	"time"

	"rcd/wire"
)

// InsideProtocol is the first protocol of agents that run jobs inside a hold.
const InsideProtocol = 4

// reconcile compares and acts, once. It is called at the welcome, at each
// heartbeat and at each nudge; what it did already is left alone until
// resendAfter has passed.
func (s *controlSession) reconcile(role Role) error {
	desired, known := s.hub.backend.Desired(s.hello.Host, role.Term)
	if !known {
		return nil // an empty list would end what runs
	}
	for _, a := range Reconcile(desired, s.snapshot()) {
		if a.Kind == ActAdopt {
			if a.MarkStarted {
				s.started(jobKey{a.Job, a.Lease})
			}
			continue
		}
		if a.Start != nil && a.Start.Hold != 0 && s.hello.Protocol < InsideProtocol {
			continue // it would take the job for one with a lease of its own
		}
		order, due := s.orderFor(a, role)
		if !due {
			continue
		}
		if order.Kind == wire.OrderStart {
			// Before the write: once it has begun, the host may have the order.
			s.hub.markOrdered(a.Job, a.Lease)
		}
		if role.Epoch.Err() != nil {
			return nil // lead looks at the epoch next
		}
		if err := s.out.send(wire.AgentMessage{Order: &order}); err != nil {
			return err
		}
	}
	return nil
}

// orderFor returns the order for an action, unless it was written a moment ago.
func (s *controlSession) orderFor(a Action, role Role) (wire.Order, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sentKey{kind: a.Kind, jobKey: jobKey{a.Job, a.Lease}, limit: a.MaxRuntimeS}
	now := time.Now()
	if at, ok := s.sent[key]; ok && now.Sub(at) < resendAfter {
		return wire.Order{}, false
	}
	s.sent[key] = now
	for k, at := range s.sent { // a handful: what was written in the last seconds
		if now.Sub(at) >= resendAfter {
			delete(s.sent, k)
		}
	}
	order := s.numbered(role)
	order.Job, order.Lease, order.Reason, order.Start, order.MaxRuntimeS = a.Job, a.Lease, a.Reason, a.Start, a.MaxRuntimeS
	switch a.Kind {
	case ActStart:
		order.Kind = wire.OrderStart
	case ActKill:
		order.Kind = wire.OrderKill
	case ActReport:
		order.Kind = wire.OrderReport
	case ActExtend:
		order.Kind = wire.OrderExtend
	}
	return order, true
}

// numbered returns an order with its fence and number. The caller holds mu.
func (s *controlSession) numbered(role Role) wire.Order {
	s.seq++
	return wire.Order{Generation: role.Generation, Term: role.Term, Index: s.hub.backend.Index(), Seq: s.seq}
}

// orderBytes asks the agent to dial a bytes session.
func (s *controlSession) orderBytes() error {
	s.mu.Lock()
	order := s.numbered(s.role)
	s.mu.Unlock()
	order.Kind = wire.OrderBytes
	return s.out.send(wire.AgentMessage{Order: &order})
}

// orderAcked takes an agent's answer to an order.
func (s *controlSession) orderAcked(ack *wire.OrderAck) {
	if ack.Code != "" {
		s.log.Warn("order refused by the agent", "seq", ack.Seq, "code", ack.Code, "message", ack.Message)
	}
	if ack.Job == nil {
		return
	}
	if ack.Job.Phase == wire.PhaseEnded {
		s.reported(jobKey{ack.Job.Job, ack.Job.Lease}) // its outcome is on the way
	}
	s.nameOne(*ack.Job)
	s.wake()
}

// started proposes that a job runs, unless that is being done.
func (s *controlSession) started(k jobKey) {
	s.work(sentKey{kind: ActAdopt, jobKey: k}, func(ctx context.Context) {
		err := s.hub.backend.Started(ctx, s.hello.Host, s.hello.Instance, k.job, k.lease)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("start of a job not recorded yet", "job", k.job, "lease", k.lease, "error", err)
		}
	})
}

// proveEvery is how often a host is asked for another proof while a device of
// it is in quarantine: each costs it a walk over all processes.
const proveEvery = 10 * time.Second

// wantsProof reports whether to ask the host for another hello.
func (s *controlSession) wantsProof() bool {
	s.mu.Lock()
	due := s.leading && time.Since(s.proven) >= proveEvery
	s.mu.Unlock()
	if !due || !s.hub.backend.WantsProof(s.hello) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven = time.Now()
	return true
}

// proof hands a later hello to the lease table.
func (s *controlSession) proof(hello wire.Hello) {
	if hello.Host != s.hello.Host || hello.Instance != s.hello.Instance {
		return // not what this session was opened for
	}
	s.work(sentKey{kind: workProof}, func(ctx context.Context) {
		if err := s.hub.backend.Prove(ctx, hello); err != nil && ctx.Err() == nil {
			s.log.Warn("proof of a host not recorded", "error", err)
		}
	})
}

// finish proposes an outcome, unless that is being done, and acks it.
func (s *controlSession) finish(o wire.Outcome) {
	k := jobKey{o.Job, o.Lease}
	s.reported(k)
	s.work(sentKey{kind: ActReport, jobKey: k}, func(ctx context.Context) {
		index, acked, err := s.hub.backend.Finish(ctx, s.hello.Host, s.hello.Instance, o)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("outcome of a job not recorded yet", "job", o.Job, "lease", o.Lease, "error", err)
		}
		if err != nil || !acked {
			return
		}
		s.unname(k)
		s.hub.forgetOrdered(o.Job, o.Lease)
		ack := wire.OutcomeAck{Job: o.Job, Lease: o.Lease, Index: index}
		if err := s.out.send(wire.AgentMessage{OutcomeAck: &ack}); err != nil {
			s.cancel(err)
		}
	})
}

// reported notes that an outcome need not be asked for now.
func (s *controlSession) reported(k jobKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[sentKey{kind: ActReport, jobKey: k}] = time.Now()
}

// work runs f in its own goroutine with a context that ends with the session or
// the epoch. It does nothing before the welcome, while the same thing is being
// done, and past maxWorking: heartbeat and agent bring it up again.
func (s *controlSession) work(key sentKey, f func(ctx context.Context)) {
	s.workThen(key, func(ctx context.Context) func() { f(ctx); return nil })
}

// workThen is work for what the agent answers at once with the next of the same
// kind: what f returns runs when that is taken on again.
func (s *controlSession) workThen(key sentKey, f func(ctx context.Context) (then func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.working[key]; busy || !s.leading || len(s.working) >= maxWorking {
		return
	}
	s.working[key] = struct{}{}
	epoch := s.role.Epoch
	s.wait.Add(1)
	go func() {
		defer s.wait.Done()
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		stop := context.AfterFunc(epoch, cancel)
		defer stop()
		then := f(ctx)
		s.mu.Lock()
		delete(s.working, key)
		s.mu.Unlock()
		if then != nil {
			then()
		}
	}()
}
