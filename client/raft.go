package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rcd/wire"
)

// lookupPatience bounds the search for a node by its ID; a node that does not
// answer within it is of little use to whoever asks for it by name.
const lookupPatience = 2 * time.Second

// RaftStatus returns one node's own view of the cluster. In the methods of this
// file nodeID is the node to ask: "" for any, a node's ID, or a URL or
// host:port. None of them needs a leader. A node that is in no cluster refuses
// to list members or a log (not_in_cluster); without a nodeID another is asked
// then, and an *OutageError comes once all have failed and one refused so.
func (c *Client) RaftStatus(ctx context.Context, nodeID string) (*wire.RaftStatus, error) {
	var status wire.RaftStatus
	if err := c.ask(ctx, nodeID, "/v1/raft/status", &status); err != nil {
		return nil, err
	}
	return &status, nil
}

// RaftPeers returns the members as the node sees them.
func (c *Client) RaftPeers(ctx context.Context, nodeID string) ([]wire.RaftPeer, error) {
	var peers wire.RaftPeers
	if err := c.ask(ctx, nodeID, "/v1/raft/peers", &peers); err != nil {
		return nil, err
	}
	return peers.Peers, nil
}

// RaftLog returns entries of the node's log, oldest first: from index since on
// if since is not 0, at most n (0: the node's own default); without since the
// newest.
func (c *Client) RaftLog(ctx context.Context, nodeID string, since uint64, n int) (*wire.RaftLog, error) {
	q := url.Values{}
	if since > 0 {
		q.Set("since", strconv.FormatUint(since, 10))
	}
	if n > 0 {
		q.Set("n", strconv.Itoa(n))
	}
	path := "/v1/raft/log"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var log wire.RaftLog
	if err := c.ask(ctx, nodeID, path, &log); err != nil {
		return nil, err
	}
	return &log, nil
}

// ask is get from a certain node, or from any.
func (c *Client) ask(ctx context.Context, nodeID, path string, v any) error {
	r := call{method: http.MethodGet, path: path, patience: c.patience, enough: inNoCluster}
	if nodeID != "" {
		n, err := c.find(ctx, nodeID)
		if err != nil {
			return err
		}
		// Nobody else can answer for this node, so there is less to wait for.
		r.only, r.patience = n, min(c.patience, answerTimeout)
	}
	err := c.do(ctx, r, v)
	var refusal *APIError
	var outage *OutageError
	if r.only != nil && errors.As(err, &outage) && len(outage.Failures) == 1 && errors.As(outage.Failures[0].Err, &refusal) {
		return refusal // the node was named: what it says needs no frame
	}
	return err
}

// inNoCluster tells whether one of the nodes that all have failed is in no
// cluster. Waiting would change that no sooner than whoever starts the missing
// ones looks again.
func inNoCluster(failures []Failure) bool {
	return slices.ContainsFunc(failures, func(f Failure) bool {
		var refusal *APIError
		return errors.As(f.Err, &refusal) && refusal.Code == wire.CodeNotInCluster
	})
}

// find returns the node with an ID or address.
func (c *Client) find(ctx context.Context, name string) (*node, error) {
	if strings.ContainsAny(name, ":/") {
		return parseNode(name)
	}
	statuses := make([]wire.RaftStatus, len(c.nodes))
	var asking sync.WaitGroup
	for i, n := range c.nodes {
		asking.Go(func() {
			r := call{method: http.MethodGet, path: "/v1/raft/status", only: n, patience: lookupPatience}
			_ = c.do(ctx, r, &statuses[i]) // who does not answer is not found
		})
	}
	asking.Wait()
	for i, status := range statuses {
		if status.Node == name {
			return c.nodes[i], nil
		}
	}
	peers, err := c.RaftPeers(ctx, "")
	if err != nil {
		return nil, err
	}
	var known []string
	for _, peer := range peers {
		if peer.ID == name && peer.HTTP != "" {
			return parseNode(peer.HTTP)
		}
		known = append(known, peer.ID)
	}
	return nil, &APIError{Status: http.StatusNotFound, Code: wire.CodeNotFound,
		Message: fmt.Sprintf("no address is known for node %q; the cluster has %s; name its --http address instead",
			name, strings.Join(known, ", "))}
}
