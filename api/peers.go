package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"rcd/wire"
)

// The calls between controllers, on the forward channel, all of them here.
const (
	pathReadIndex = "/internal/read-index"
	pathContacts  = "/internal/contacts"
	pathPeer      = "/internal/peer"
	pathDigest    = "/internal/digest"
	pathWebhooks  = "/internal/webhooks"
	pathCopy      = "/internal/copy"

	// peerURL is where such requests go as far as net/http is concerned; the
	// connection is made by node ID.
	peerURL = "http://controller"

	// maxPeerBody bounds what a call between controllers carries: 10,000 hosts
	// of at most 255 bytes each, and room.
	maxPeerBody = 8 << 20

	// peerDeadline bounds a call whose context has no deadline of its own.
	peerDeadline = 5 * time.Second
)

// internalRoutes serves what PeerClient asks. The channel is authenticated:
// whoever reaches it is a controller of this cluster.
func (s *server) internalRoutes(internal Internal) {
	handle := func(pattern string, h http.HandlerFunc) { s.mux.HandleFunc(pattern, h) }
	add := func(pattern string, h func(w http.ResponseWriter, r *http.Request) (any, error)) {
		handle(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := h(w, r)
			if err != nil {
				s.fail(w, r, s.toldToEdge(w, err))
				return
			}
			_ = s.send(w, reply{status: http.StatusOK, body: body})
		})
	}
	add("POST "+pathReadIndex, func(_ http.ResponseWriter, r *http.Request) (any, error) {
		ctx, cancel := forwardedDeadline(r)
		defer cancel()
		return internal.ReadIndex(ctx, r.URL.Query().Get("heard") == "true")
	})
	add("POST "+pathContacts, func(w http.ResponseWriter, r *http.Request) (any, error) {
		var report ContactReport
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPeerBody)).Decode(&report); err != nil {
			return nil, badRequest("contact report: %v", err)
		}
		ctx, cancel := forwardedDeadline(r)
		defer cancel()
		return internal.Contacts(ctx, report)
	})
	add("GET "+pathPeer, func(http.ResponseWriter, *http.Request) (any, error) {
		return internal.Peer(), nil
	})
	add("GET "+pathDigest, func(_ http.ResponseWriter, r *http.Request) (any, error) {
		index, err := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
		if err != nil {
			return nil, badRequest("index: %v", err)
		}
		return internal.DigestAt(index), nil
	})
	handle("GET "+pathCopy, s.copyStream(internal))
	add("GET "+pathWebhooks, func(http.ResponseWriter, *http.Request) (any, error) {
		return internal.Webhooks(), nil
	})
}

// PeerClient asks other controllers over connections that dial makes. Its
// methods may be called concurrently.
type PeerClient struct {
	dial func(ctx context.Context, nodeID string) (net.Conn, error)

	mu    sync.Mutex
	peers map[string]*peer
}

// NewPeerClient returns a client; dial opens an authenticated connection of the
// forward type to a node's internal handler. Close it when done.
func NewPeerClient(dial func(ctx context.Context, nodeID string) (net.Conn, error)) *PeerClient {
	return &PeerClient{dial: dial, peers: map[string]*peer{}}
}

// Close closes idle connections; those in use end with their requests.
func (c *PeerClient) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		p.transport.CloseIdleConnections()
	}
}

// To returns the round tripper to one controller, for Backend.Forward. An error
// that is not ErrNotSent leaves open whether the request arrived. A request
// with an Idempotency-Key may be sent twice if a kept connection turns out to
// be dead.
func (c *PeerClient) To(nodeID string) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[nodeID]
	if p == nil {
		p = &peer{transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return c.dial(ctx, nodeID)
			},
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
		}}
		c.peers[nodeID] = p
	}
	return p
}

// peer is one controller's connections.
type peer struct{ transport *http.Transport }

// RoundTrip sends the request. Only a request that never had a connection is
// ErrNotSent; that is less than could be known, and safe.
func (p *peer) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := p.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil && !connected.Load() {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return resp, err
}

// ReadIndex asks the leader for the index a read must wait for, and with heard
// for when each host was last heard. Errors wrap raftnode.ErrNotLeader if that
// node does not lead.
func (c *PeerClient) ReadIndex(ctx context.Context, nodeID string, heard bool) (ReadIndex, error) {
	var out ReadIndex
	query := url.Values{"heard": {strconv.FormatBool(heard)}}
	err := c.call(ctx, nodeID, http.MethodPost, pathReadIndex+"?"+query.Encode(), nil, &out)
	return out, err
}

// Contacts tells the leader which agents this node hears. Errors wrap
// raftnode.ErrNotLeader if that node does not lead.
func (c *PeerClient) Contacts(ctx context.Context, nodeID string, report ContactReport) (ContactAnswer, error) {
	var out ContactAnswer
	err := c.call(ctx, nodeID, http.MethodPost, pathContacts, report, &out)
	return out, err
}

// Peer asks a node how it stands.
func (c *PeerClient) Peer(ctx context.Context, nodeID string) (wire.RaftPeer, error) {
	var out wire.RaftPeer
	err := c.call(ctx, nodeID, http.MethodGet, pathPeer, nil, &out)
	return out, err
}

// DigestAt asks a node for the digest of its lease table at a checkpoint's
// index.
func (c *PeerClient) DigestAt(ctx context.Context, nodeID string, index uint64) (DigestAt, error) {
	var out DigestAt
	query := url.Values{"index": {strconv.FormatUint(index, 10)}}
	err := c.call(ctx, nodeID, http.MethodGet, pathDigest+"?"+query.Encode(), nil, &out)
	return out, err
}

// Webhooks asks a node what it knows of webhooks.
func (c *PeerClient) Webhooks(ctx context.Context, nodeID string) (WebhookLedger, error) {
	var out WebhookLedger
	err := c.call(ctx, nodeID, http.MethodGet, pathWebhooks, nil, &out)
	return out, err
}

func (c *PeerClient) call(ctx context.Context, nodeID, method, path string, in, out any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, peerDeadline)
		defer cancel()
	}
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("ask %s: %w", nodeID, err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, peerURL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask %s: %w", nodeID, err)
	}
	deadline, _ := ctx.Deadline()
	r.Header.Set(headerDeadline, strconv.FormatInt(time.Until(deadline).Milliseconds(), 10))
	resp, err := c.To(nodeID).RoundTrip(r)
	if err != nil {
		return fmt.Errorf("ask %s: %w", nodeID, err)
	}
	defer resp.Body.Close()
	if err := refusedBy(resp); err != nil {
		return fmt.Errorf("ask %s: %w", nodeID, err)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxPeerBody))
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", nodeID, err)
	}
	if resp.StatusCode != http.StatusOK {
		var no wire.Error
		_ = json.Unmarshal(raw, &no)
		return fmt.Errorf("ask %s: %w: %d %s %s", nodeID, ErrPeerFailed, resp.StatusCode, no.Code, no.Message)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("read answer of %s: %w", nodeID, err)
	}
	return nil
}

// ErrPeerFailed means that another controller answered a call with an error.
var ErrPeerFailed = errors.New("controller answered with an error")
