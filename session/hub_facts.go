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
