package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"rcd/relay"
	"rcd/wire"
)

// CopyRequest asks a controller for its own copy of a job's output.
type CopyRequest struct {
	Job, Lease uint64
	Offset     int64
	// Follow: while the copy is being written, more is waited for.
	Follow bool
	// Holes: damage is a gap like any other, for readers who have nobody else to
	// ask.
	Holes bool
	// Whole: a copy that is not complete, or has gaps, is as good as none.
	Whole bool
}

// CopySource is an opened copy. Its End is Complete if the copy is.
type CopySource interface {
	relay.Source
	// Close frees it, once Next is not called any more.
	Close()
}

func (c CopyRequest) query() url.Values {
	return url.Values{
		"job": {strconv.FormatUint(c.Job, 10)}, "lease": {strconv.FormatUint(c.Lease, 10)},
		"offset": {strconv.FormatInt(c.Offset, 10)}, "follow": {strconv.FormatBool(c.Follow)}, "holes": {strconv.FormatBool(c.Holes)},
		"whole": {strconv.FormatBool(c.Whole)},
	}
}

func copyRequest(q url.Values) (c CopyRequest, err error) {
	if c.Job, err = strconv.ParseUint(q.Get("job"), 10, 64); err != nil {
		return c, badRequest("job: %v", err)
	}
	if c.Lease, err = strconv.ParseUint(q.Get("lease"), 10, 64); err != nil {
		return c, badRequest("lease: %v", err)
	}
	if c.Offset, err = strconv.ParseInt(q.Get("offset"), 10, 64); err != nil || c.Offset < 0 {
		return c, badRequest("offset: %q is none", q.Get("offset"))
	}
	c.Follow, c.Holes, c.Whole = q.Get("follow") == "true", q.Get("holes") == "true", q.Get("whole") == "true"
	return c, nil
}

// copyStream serves this node's own copy of an output to another controller.
func (s *server) copyStream(internal Internal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.readers <- struct{}{}:
			defer func() { <-s.readers }()
		default:
			s.fail(w, r, errOverloaded)
			return
		}
		want, err := copyRequest(r.URL.Query())
		if err != nil {
			s.fail(w, r, err)
			return
		}
		source, err := internal.Copy(r.Context(), want)
		if err != nil {
			s.fail(w, r, refuse(http.StatusNotFound, wire.CodeNotFound, "controller %s has no such copy; ask another one", s.NodeID))
			return
		}
		defer source.Close() // after Send, which has then ended with it
		conn, err := relay.Upgrade(w, r)
		if err != nil {
			s.Logger.Debug("copy not served", "job", want.Job, "err", err)
			return
		}
		if err := relay.Send(r.Context(), conn, want.Offset, source, relay.SendOptions{}); err != nil {
			s.Logger.Debug("copy ended early", "job", want.Job, "err", err)
		}
	}
}

// Copy opens a stream from a controller's own copy of an output; Receive
// follows. ctx bounds the opening only. A controller without a copy, or of an
// earlier release, is an error.
func (c *PeerClient) Copy(ctx context.Context, nodeID string, want CopyRequest) (relay.Conn, error) {
	r, err := http.NewRequest(http.MethodGet, peerURL+pathCopy+"?"+want.query().Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", nodeID, err)
	}
	conn, resp, err := relay.DialUpgrade(ctx, r, func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx, nodeID) })
	if resp != nil && err != nil {
		resp.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for its copy: %w", nodeID, err)
	}
	return conn, nil
}
