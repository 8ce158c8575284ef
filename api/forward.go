package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"rcd/raftnode"
	"rcd/wire"
)

// Headers between controllers. A request from outside loses all of them.
const (
	headerRole     = "Rc-Forward-Role"
	headerScope    = "Rc-Forward-Scope"
	headerDeadline = "Rc-Forward-Deadline-Ms" // time left
	headerRefused  = "Rc-Forward-Refused"     // in answers: why the asking node should try again

	refusedNotLeader = "not-leader" // nothing happened
	refusedUnknown   = "unknown"    // it may have happened
)

// maxForwardedAnswer bounds an answer that is handed on whole. The largest is
// the row of a job, which came in a body of 1 MiB; JSON escapes can make six
// bytes of one.
const maxForwardedAnswer = 8 << 20

func dropForwardHeaders(h http.Header) {
	for _, name := range []string{headerRole, headerScope, headerDeadline, headerRefused} {
		h.Del(name)
	}
}

func forwardedIdentity(h http.Header) (Identity, error) {
	who := Identity{Role: Role(h.Get(headerRole)), Scope: h.Get(headerScope)}
	switch who.Role {
	case RoleClient, RoleWorker, RoleAdmin:
		if who.Scope != "" {
			return who, nil
		}
	}
	return Identity{}, refuse(http.StatusUnauthorized, wire.CodeUnauthorized, "the forwarding controller named no caller")
}

func forwardedDeadline(r *http.Request) (context.Context, context.CancelFunc) {
	left := requestDeadline
	if ms, err := strconv.ParseInt(r.Header.Get(headerDeadline), 10, 64); err == nil {
		left = min(left, time.Duration(ms)*time.Millisecond)
	}
	return context.WithTimeout(r.Context(), left)
}

// forwardGrace is how much longer the leader's answer is waited for than the
// leader is given to find one: to hear "nothing happened" a little late is
// better than not to know.
const forwardGrace = 250 * time.Millisecond

// forwardRequest makes the request that carries a caller's to the leader.
func forwardRequest(ctx context.Context, method, path string, who Identity, body []byte, deadline time.Time) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, peerURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	r.Header.Set(headerRole, string(who.Role))
	r.Header.Set(headerScope, who.Scope)
	r.Header.Set(headerDeadline, strconv.FormatInt(time.Until(deadline).Milliseconds(), 10))
	return r, nil
}

// forward carries a call to the leader and returns its answer, refusals
// included. It gives up as soon as another leader is known.
func (s *server) forward(ctx context.Context, leader Leader, c *call, deadline time.Time) (reply, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(forwardGrace))
	defer cancel()
	ctx, done := whileLeader(ctx, leader, raftnode.ErrOutcomeUnknown)
	defer done()
	r, err := forwardRequest(ctx, c.method, c.path, c.who, c.body, deadline)
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(wire.HeaderRequestID, c.key)
	resp, err := s.backend.Forward(leader.ID).RoundTrip(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	if err := refusedBy(resp); err != nil {
		return reply{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxForwardedAnswer+1))
	if err == nil && len(raw) > maxForwardedAnswer {
		err = fmt.Errorf("answer of %s over %d bytes", leader.ID, maxForwardedAnswer)
	}
	if err != nil {
		return reply{}, fmt.Errorf("read answer of %s: %w", leader.ID, err)
	}
	index, _ := strconv.ParseUint(resp.Header.Get(wire.HeaderIndex), 10, 64)
	return reply{
		status:      resp.StatusCode,
		contentType: resp.Header.Get("Content-Type"),
		raw:         raw,
		index:       index,
		leader:      resp.Header.Get(wire.HeaderLeader),
	}, nil
}

// refusedBy returns why another controller wants its answer not to be handed
// on.
func refusedBy(resp *http.Response) error {
	switch resp.Header.Get(headerRefused) {
	case refusedNotLeader:
		return raftnode.ErrNotLeader
	case refusedUnknown:
		return raftnode.ErrOutcomeUnknown
	}
	return nil
}
