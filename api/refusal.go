package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"rcd/fsm/command"
	"rcd/raftnode"
	"rcd/wire"
)

// Sentences that more than one route says.
const (
	sayNoLeader = "no controller leads at present, nothing was changed; ask again in a few seconds, " +
		"and if it lasts, look at rc raft status: a majority of the controllers must run and reach each other"
	sayOutcomeUnknown = "the leader was lost while the request was under way, so it may or may not have happened; " +
		"ask again with the same Idempotency-Key and the answer will be the one effect"
	sayOverloaded = "this controller has more requests waiting than it takes, nothing was changed; ask again in a moment"
)

// refusal is an answer that says no: a status, a code for programs and a
// sentence for people that says what to do next.
type refusal struct {
	status  int
	code    string
	message string
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, wire.CodeBadRequest, format, args...)
}

var (
	errNoLeader       = refuse(http.StatusServiceUnavailable, wire.CodeNoLeader, sayNoLeader)
	errOutcomeUnknown = refuse(http.StatusGatewayTimeout, wire.CodeOutcomeUnknown, sayOutcomeUnknown)
	errOverloaded     = refuse(http.StatusServiceUnavailable, wire.CodeOverloaded, sayOverloaded)
)

// noLeader refuses when the time is up: nothing was changed. A node that is in
// no cluster says so, since a leader elsewhere is none to it.
func (s *server) noLeader(ctx context.Context) error {
	if status := s.backend.RaftStatus(ctx); status.Waiting != "" {
		return refuse(http.StatusServiceUnavailable, wire.CodeNotInCluster,
			"%s is in no cluster yet: %s; nothing was changed. Ask another controller, or start what is missing", s.NodeID, status.Waiting)
	}
	return errNoLeader
}

// ifHalted refuses when this node takes no part in the cluster any more: what
// it holds is not to be used, and waiting for a leader would be in vain.
func (s *server) ifHalted() error {
	why := s.backend.Halted()
	if why == "" {
		return nil
	}
	return refuse(http.StatusServiceUnavailable, wire.CodeHalted,
		"controller %s has halted and serves nothing but rc raft status, nothing was changed; use another controller. What halted it: %s", s.NodeID, why)
}

// statusOf is the HTTP status of each code with which the state machine
// rejects a command. What is not listed is a failure of ours (500).
var statusOf = map[command.Code]int{
	command.BadRequest:         http.StatusBadRequest,
	command.BadSelector:        http.StatusBadRequest,
	command.PriorityOutOfRange: http.StatusBadRequest,
	command.UnknownDevice:      http.StatusBadRequest,
	command.NoMatchingDevice:   http.StatusBadRequest,
	command.RuntimeAboveLimit:  http.StatusBadRequest,
	command.ArrayTooLarge:      http.StatusBadRequest,
	command.LimitExceeded:      http.StatusBadRequest,
	command.EnvTooLarge:        http.StatusRequestEntityTooLarge,
	command.NotFound:           http.StatusNotFound,
	command.NotJobOwner:        http.StatusForbidden,
	command.NotPlaced:          http.StatusConflict,
	command.NotCancellable:     http.StatusConflict,
	command.DeviceNotCleared:   http.StatusConflict,
	command.KeyReused:          http.StatusUnprocessableEntity,
	command.Overloaded:         http.StatusServiceUnavailable,
	command.QueueFull:          http.StatusTooManyRequests,
	command.TooManySelectors:   http.StatusTooManyRequests,
	command.UnknownSetting:     http.StatusBadRequest,
	command.SettingRefused:     http.StatusBadRequest,
	command.DeviceNotFound:     http.StatusNotFound,
	command.DeviceBusy:         http.StatusConflict,
	command.NoDevice:           http.StatusConflict,
	command.Unscheduled:        http.StatusServiceUnavailable,
	command.SheetTooLarge:      http.StatusRequestEntityTooLarge,
	command.NotExtendable:      http.StatusConflict,
	command.NotReleasable:      http.StatusConflict,
	command.FeatureRefused:     http.StatusConflict,
	command.StaleCheckpoint:    http.StatusConflict,
	command.HoldEnded:          http.StatusConflict,
	command.HoldWaiting:        http.StatusConflict,
	command.HoldFull:           http.StatusConflict,
}

// rejected turns the code of a result into a refusal, nil when it was
// accepted.
func rejected(result command.Result) *refusal {
	if result.Code == command.OK {
		return nil
	}
	code := string(result.Code)
	if result.Code == command.NotPlaced {
		code = wire.CodeNoDevice // the ancestor's word
	}
	status, ok := statusOf[result.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	message := result.Message
	if message == "" {
		message = "the lease table refused the request (" + code + ")"
	}
	return &refusal{status: status, code: code, message: message}
}

// retryable says of an error of the backend whether to ask again, and whether
// the command may have happened all the same.
func retryable(err error) (again, unknown bool) {
	var no *refusal
	switch {
	case errors.As(err, &no), errors.Is(err, raftnode.ErrOverloaded):
		return false, false
	case errors.Is(err, raftnode.ErrNotLeader), errors.Is(err, raftnode.ErrNoLeader), errors.Is(err, raftnode.ErrNotReady),
		errors.Is(err, errStaleEpoch), errors.Is(err, ErrNotSent):
		return true, false
	}
	return true, true
}

// errStaleEpoch is a result that the proposer must not hand on: nothing was
// changed, because its leadership had passed.
var errStaleEpoch = errors.New("proposed in an epoch that has passed")
