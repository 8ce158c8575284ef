package session

import (
	"context"
	"errors"

	"rcd/wire"
)

// What a session works on beside single jobs, next to the kinds of actions.
const (
	workProof ActionKind = 240 + iota
	workFacts
	workFault
)

// facts hands what a host tells to the lease table, and answers. Without an
// answer the agent says it again.
func (s *controlSession) facts(f wire.Facts) {
	s.workThen(sentKey{kind: workFacts}, func(ctx context.Context) func() {
		index, err := s.hub.backend.Facts(ctx, s.hello.Host, s.hello.Instance, f)
		ack := wire.FactsAck{Seq: f.Seq, Index: index}
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
			ack.Code, ack.Message = refusal.Code, refusal.Message
		case err != nil:
			if ctx.Err() == nil {
				s.log.Warn("facts of a host not recorded yet", "error", err)
			}
			return nil
		}
		return func() {
			if err := s.out.send(wire.AgentMessage{FactsAck: &ack}); err != nil {
				s.cancel(err)
			}
		}
	})
}

// fault hands the fault of a device to the lease table, and answers.
func (s *controlSession) fault(f wire.DeviceFault) {
	s.work(sentKey{kind: workFault, device: f.Device}, func(ctx context.Context) {
		index, lease, err := s.hub.backend.Fault(ctx, s.hello.Host, s.hello.Instance, f)
		ack := wire.FaultAck{DeviceFault: f, Index: index}
		if s.hello.Protocol >= 4 {
			ack.Lease = lease
		}
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
			ack.Code, ack.Message = refusal.Code, refusal.Message
		case err != nil:
			if ctx.Err() == nil {
				s.log.Warn("fault of a device not recorded yet", "device", f.Device, "error", err)
			}
			return
		}
		if err := s.out.send(wire.AgentMessage{FaultAck: &ack}); err != nil {
			s.cancel(err)
		}
	})
}
