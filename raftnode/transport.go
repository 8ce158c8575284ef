package raftnode

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// errGated: this node has cut itself off, to lose leadership.
var errGated = errors.New("transport gated")

// transport is raft's network transport with what this node must see or do on
// the way: node IDs in place of addresses, the terms of votes asked for, when
// each peer last answered, a gate, and a way to put an RPC in as if it had
// come from a peer.
//
// Raft finds out by type assertion what a transport can; without
// RequestPreVote it would turn pre-vote off and say so only in its log.
type transport struct {
	*raft.NetworkTransport
	self    raft.ServerID
	streams *streams
	rpcs    chan raft.RPC
	done    chan struct{}
	wait    sync.WaitGroup

	gated   atomic.Bool
	maxVote atomic.Uint64 // highest term anybody asked a vote or pre-vote for

	mu   sync.Mutex // guards acks
	acks map[string]ack
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

// ack is a peer's last good answer to an AppendEntries that was not pipelined;
// heartbeats are none of them.
type ack struct {
	term     uint64
	sentAt   time.Time // when the request was sent, monotonic
	heardAt  time.Time
	lastLog  uint64 // the peer's last log index, as it said
	accepted bool
}

func newTransport(self string, s *streams, timeout time.Duration, logger *slog.Logger) *transport {
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider:   idAddresses{},
		Logger:                  raftLogger(logger),
		Stream:                  s,
		MaxPool:                 maxPool,
		MaxRPCsInFlight:         maxRPCsInFlight,
		Timeout:                 timeout,
		MsgpackUseNewTimeFormat: true,
	})
	inner.TimeoutScale = timeoutScale
	t := &transport{
		NetworkTransport: inner, self: raft.ServerID(self), streams: s,
		rpcs: make(chan raft.RPC), done: make(chan struct{}), acks: map[string]ack{},
	}
	t.wait.Add(1)
	go t.forward()
	return t
}

// idAddresses gives every server its ID as address; streams resolves it.
type idAddresses struct{}

func (idAddresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

// forward passes incoming RPCs on to raft, having looked at the votes.
func (t *transport) forward() {
	defer t.wait.Done()
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			switch r := rpc.Command.(type) {
			case *raft.RequestVoteRequest:
				t.sawVote(r.Term)
			case *raft.RequestPreVoteRequest:
				t.sawVote(r.Term)
			}
			select {
			case t.rpcs <- rpc:
			case <-t.done:
				return
			}
		case <-t.done:
			return
		}
	}
}

func (t *transport) sawVote(term uint64) {
	for {
		seen := t.maxVote.Load()
		if term <= seen || t.maxVote.CompareAndSwap(seen, term) {
			return
		}
	}
}

// timeoutNow makes raft start an election at once, without pre-vote and with
// the mark that lets others vote although they have heard a leader lately.
func (t *transport) timeoutNow(ctx context.Context) error {
	answer := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{
		Command: &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.self), Addr: []byte(t.self),
		}},
		RespChan: answer,
	}
	select {
	case t.rpcs <- rpc:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case r := <-answer:
		return r.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ackedSince counts the peers among ids that accepted, in term, a heartbeat
// sent at or after t0. Raft's VerifyLeader counts any answer that arrives
// after it was called, also one that lay in a socket while this process was
// stopped and others elected a leader.
func (t *transport) ackedSince(ids []string, term uint64, t0 time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, id := range ids {
		if a, ok := t.acks[id]; ok && a.accepted && a.term == term && !a.sentAt.Before(t0) {
			n++
		}
	}
	return n
}

func (t *transport) peerAck(id string) (ack, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.acks[id]
	return a, ok
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// LocalAddr implements raft.Transport.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.self) }

// EncodePeer implements raft.Transport.
func (t *transport) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.gated.Load() {
		return errGated
	}
	sent := time.Now()
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	if err == nil {
		a := ack{args.Term, sent, time.Now(), resp.LastLog, resp.Success}
		t.mu.Lock()
		if old := t.acks[string(id)]; a.sentAt.After(old.sentAt) {
			t.acks[string(id)] = a
		}
		t.mu.Unlock()
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.gated.Load() {
		return nil, errGated
	}
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return gatedPipeline{p, t}, nil
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if t.gated.Load() {
		return errGated
	}
	return t.NetworkTransport.RequestVote(id, target, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.gated.Load() {
		return errGated
	}
	return t.NetworkTransport.RequestPreVote(id, target, args, resp)
}

// Close implements raft.WithClose.
func (t *transport) Close() error {
	select {
	case <-t.done:
	default:
		close(t.done)
	}
	err := t.NetworkTransport.Close() // closes streams, once
	t.NetworkTransport.CloseStreams()
	t.wait.Wait()
	return err
}

type gatedPipeline struct {
	raft.AppendPipeline
	owner *transport
}

func (p gatedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.owner.gated.Load() {
		return nil, errGated
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}
