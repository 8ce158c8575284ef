package raftnode

import (
	"errors"

	"github.com/hashicorp/raft"
)

// What Propose and Read answer. The first three are the whole contract of a
// proposal.
var (
	// ErrNotLeader: this node does not lead, or its epoch has not begun; the
	// command had no effect and will have none. Ask the leader.
	ErrNotLeader = errors.New("not the leader")
	// ErrOverloaded: the queue is at its bound or the proposal waited in it
	// until its context ended; the command had no effect. Try again later.
	ErrOverloaded = errors.New("too many commands waiting")
	// ErrOutcomeUnknown: the command may or may not have happened, now or
	// later. Repeat it under the same request ID.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrNoLeader: no leader is known or it could not be asked; nothing was
	// read.
	ErrNoLeader = errors.New("no leader")
	// ErrNotReady: the node is still forming its cluster or has not applied
	// anything: it has no state that it could show as the truth.
	ErrNotReady = errors.New("node has no state yet")
	// ErrHalted: the state machine met an entry it must not skip, or its state
	// must not be trusted (Halt). The node serves nothing until it is
	// repaired.
	ErrHalted = errors.New("node halted")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("node closed")
	// ErrTooLarge: a command above command.MaxCommandBytes, never logged.
	ErrTooLarge = errors.New("command too large")
	// ErrRefusedMember: raft refused a change of membership or a transfer.
	ErrRefusedMember = errors.New("membership change failed")
)

// errAbandoned: nobody waits for a future any more.
var errAbandoned = errors.New("wait ended")

// proposeError maps what a future of raft said. Only three of raft's errors
// mean that nothing was logged; every other leaves the outcome open, also those
// that look final (a failed store may have written, a lost leader's entry may
// be committed by the next).
func proposeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrOverloaded
	}
	return ErrOutcomeUnknown
}
