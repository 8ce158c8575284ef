package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"rcd/fsm/command"
	"rcd/internal/codec"
	"rcd/internal/ident"
	"rcd/raftnode"
	"rcd/wire"
)

// call is a request that changes something, read whole, so that it can be
// tried again or carried to another node.
type call struct {
	who    Identity
	method string
	path   string // escaped
	target string // the {id} of the path, or ""
	body   []byte

	// key is the caller's Idempotency-Key, or one that this edge has made so
	// that its own tries have one effect.
	key    string
	minted bool
}

// digest is what a request ID is bound to: the same ID with another method,
// path or body is another request.
func (c *call) digest() []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", c.method, c.path)
	h.Write(c.body)
	return h.Sum(nil)
}

// request is the request ID of the header. The prefixes keep the two spaces of
// IDs, the header's and the body field's, from meeting.
func (c *call) request() command.Request {
	return command.Request{Scope: c.who.Scope, ID: "h:" + c.key, Digest: c.digest(), Strict: true}
}

// attempt tries a call once on this node, which leads.
type attempt func(ctx context.Context, c *call) (reply, error)

// write returns the handler of a request that changes something: here when
// this node leads, else on the leader, again and again under one request ID
// until there is an answer or the deadline has passed.
func (s *server) write(try attempt) handler {
	return func(w http.ResponseWriter, r *http.Request, who Identity) error {
		select {
		case s.writes <- struct{}{}:
			defer func() { <-s.writes }()
		default:
			return errOverloaded
		}
		c, err := readCall(w, r, who)
		if err != nil {
			return err
		}
		if s.internal {
			return s.writeForwarded(w, r, c, try)
		}
		rep, err := s.untilAnswered(r.Context(), c, try)
		if errors.Is(err, error(errOutcomeUnknown)) {
			w.Header().Set(wire.HeaderRequestID, c.key)
			if c.minted {
				err = refuse(errOutcomeUnknown.status, errOutcomeUnknown.code,
					"%s (this node gave the request the key %s)", sayOutcomeUnknown, c.key)
			}
		}
		if err != nil {
			return err
		}
		return s.send(w, rep)
	}
}

// untilAnswered tries c until it is answered, its deadline has passed or life
// ends.
func (s *server) untilAnswered(life context.Context, c *call, try attempt) (reply, error) {
	deadline := time.Now().Add(requestDeadline)
	ctx, cancel := context.WithDeadline(life, deadline)
	defer cancel()
	unknown := false // some try may have had its effect
	for {
		if err := s.ifHalted(); err != nil {
			if unknown {
				err = errOutcomeUnknown
			}
			return reply{}, err
		}
		var rep reply
		var err error
		leader := s.backend.Leader()
		switch {
		case leader.Self:
			rep, err = try(ctx, c)
		case leader.ID != "" && leader.ID != s.NodeID:
			rep, err = s.forward(life, leader, c, deadline)
		default:
			err = raftnode.ErrNotLeader
		}
		if err == nil && unknown && rep.status == http.StatusServiceUnavailable {
			err = raftnode.ErrOverloaded // said by the leader this was carried to
		}
		if err == nil {
			return rep, nil
		}
		again, maybe := retryable(err)
		unknown = unknown || maybe
		if !again && !(unknown && errors.Is(err, raftnode.ErrOverloaded)) {
			// "Overloaded, nothing was changed" would be a lie after a try
			// whose outcome is not known.
			return reply{}, err
		}
		if !pause(ctx) {
			s.Logger.Debug("request not answered in time", "path", c.path, "unknown", unknown, "err", err)
			if unknown {
				return reply{}, errOutcomeUnknown
			}
			return reply{}, s.noLeader(ctx)
		}
	}
}

// writeForwarded tries once, and tells the node that asks what may have
// happened rather than wait here for another leader.
func (s *server) writeForwarded(w http.ResponseWriter, r *http.Request, c *call, try attempt) error {
	ctx, cancel := forwardedDeadline(r)
	defer cancel()
	err := error(raftnode.ErrNotLeader)
	var rep reply
	if s.backend.Leader().Self {
		rep, err = try(ctx, c)
	}
	if err == nil {
		return s.send(w, rep)
	}
	switch again, unknown := retryable(err); {
	case again && unknown:
		w.Header().Set(headerRefused, refusedUnknown)
		return errOutcomeUnknown
	case again:
		w.Header().Set(headerRefused, refusedNotLeader)
		return errNoLeader
	}
	return err
}

// readCall reads the request whole.
func readCall(w http.ResponseWriter, r *http.Request, who Identity) (*call, error) {
	c := &call{
		who:    who,
		method: r.Method,
		path:   r.URL.EscapedPath(),
		target: r.PathValue("id"),
		key:    r.Header.Get(wire.HeaderRequestID),
	}
	const longest = command.MaxRequestID - len("h:")
	if len(c.key) > longest {
		return nil, badRequest("the Idempotency-Key has %d bytes; use at most %d, a UUID for example", len(c.key), longest)
	}
	if !utf8.ValidString(c.key) || !utf8.ValidString(c.target) {
		return nil, badRequest("the Idempotency-Key or the ID in the path is not UTF-8; use plain text")
	}
	if c.key == "" {
		c.key, c.minted = ident.New(), true
	}
	body, err := readBody(w, r)
	if err != nil {
		// What is left of the body must not be waited for.
		w.Header().Set("Connection", "close")
		return nil, err
	}
	c.body = body
	return c, nil
}

// maxDrain is how much of a body over the limit is read all the same: a client
// in the middle of sending would see its connection break, and not the answer.
const maxDrain = 16 << 20

// readBody reads a body of at most wire.MaxBody within bodyDeadline. After an
// error the connection's read deadline stays set.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyDeadline))
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxBody+1))
	if err != nil {
		return nil, badRequest("the request body did not come whole (%v); send it again", err)
	}
	if len(body) > wire.MaxBody {
		_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
		return nil, refuse(http.StatusRequestEntityTooLarge, wire.CodeBodyTooLarge,
			"the request body is over %d bytes; put large data in a file on the device's host and name it in the command", wire.MaxBody)
	}
	// Left behind, it would end the connection while it is served.
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

// propose puts a command into the log of this node, which leads, and returns
// the answer if it was accepted.
func (s *server) propose(ctx context.Context, request command.Request, body any) (command.Result, uint64, error) {
	return s.proposeBoth(ctx, request, command.Request{}, body)
}

// proposeBoth is propose for a command with two request IDs.
func (s *server) proposeBoth(ctx context.Context, request, also command.Request, body any) (command.Result, uint64, error) {
	cmd, err := command.EncodeBoth(request, also, body)
	if errors.Is(err, command.ErrTooLarge) {
		return command.Result{}, 0, refuse(http.StatusRequestEntityTooLarge, wire.CodeBodyTooLarge,
			"the request makes a command over %d bytes; put large data in a file on the device's host", command.MaxCommandBytes)
	}
	if errors.Is(err, command.ErrUnencodable) {
		return command.Result{}, 0, badRequest("the request holds a list of more than %d or a map of more than %d elements, or text that is not UTF-8; put large data in a file on the device's host",
			codec.MaxArrayElements, codec.MaxMapPairs)
	}
	if err != nil {
		return command.Result{}, 0, badRequest("the request cannot be encoded: %v", err)
	}
	result, index, err := s.backend.Propose(ctx, cmd)
	if err != nil {
		return result, index, err
	}
	if result.Code == command.StaleEpoch {
		return result, index, errStaleEpoch
	}
	if no := rejected(result); no != nil {
		return result, index, no
	}
	return result, index, nil
}
