package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"rcd/wire"
)

// What callers tell apart. An APIError is each of them when its code is theirs.
var (
	// ErrNoDevice: nothing is free right now. Only a Submit with NoWait gets
	// it; any other queues.
	ErrNoDevice = errors.New("no device available")

	// ErrNotCancellable: the job has moved on between the caller's last look
	// and this kill. It may be running with nobody watching, so it is not an
	// ordinary failure to kill.
	ErrNotCancellable = errors.New("job not cancellable")

	// ErrJobEnded: the hold whose session was to be kept alive has ended.
	ErrJobEnded = errors.New("job has ended")

	// ErrNotFound: there is no such job, device or node.
	ErrNotFound = errors.New("not found")

	// ErrForbidden: the token does not allow it, or there is none.
	ErrForbidden = errors.New("not allowed")

	// ErrUnreachable: no controller gave an answer. See OutageError for
	// whether a change may have happened all the same.
	ErrUnreachable = errors.New("no controller answers")

	// ErrHoldEnded: the hold that a job was to run inside has ended, or is being
	// ended. ErrHoldWaiting: it is still queued, and has no device yet.
	ErrHoldEnded   = errors.New("hold has ended")
	ErrHoldWaiting = errors.New("hold is still queued")
)

// APIError is a controller's refusal: nothing was changed.
type APIError struct {
	Status  int    // HTTP; 0 if it came inside a stream
	Code    string // for programs, never empty
	Message string // for people
	Node    string // who refused
	// RetryAfter is when to ask again, as the controller advises; zero when it
	// says nothing of it.
	RetryAfter time.Duration
	// RequestID is the ID of the request that was refused, "" for those that
	// change nothing.
	RequestID string
}

// Error returns "code: message".
func (e *APIError) Error() string {
	if e.Message == "" {
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Is makes errors.Is work with the sentinels of this package.
func (e *APIError) Is(target error) bool {
	switch target {
	case ErrNoDevice:
		return e.Code == wire.CodeNoDevice
	case ErrNotCancellable:
		return e.Code == codeNotCancellable
	case ErrJobEnded:
		return e.Code == wire.CodeJobEnded
	case ErrNotFound:
		return e.Status == http.StatusNotFound && e.Code != codeUnknownRoute || e.Code == wire.CodeNotFound
	case ErrForbidden:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrHoldEnded:
		return e.Code == codeHoldEnded
	case ErrHoldWaiting:
		return e.Code == codeHoldWaiting
	}
	return false
}

// Codes of the state machine, whose package is none of a client's business.
const (
	codeNotCancellable = "not_cancellable"
	codeHoldEnded      = "hold_ended"
	codeHoldWaiting    = "hold_waiting"
)

// codeUnknownRoute is for a controller that does not know a request at all: it
// says nothing about what the request named.
const codeUnknownRoute = "http_404"

// Failure is why one node gave no answer.
type Failure struct {
	Address string // as configured
	Err     error  // an *APIError when it answered that it cannot serve
}

// OutageError says that no controller answered for as long as the client was
// willing to look. It is ErrUnreachable.
type OutageError struct {
	Waited time.Duration
	// Failures holds the last failure of each node asked, in the order of the
	// configuration.
	Failures []Failure
	// Unknown is true if a change was asked for and may have happened: a node
	// took the request and gave no answer.
	Unknown bool
	// RequestID is what to ask again under, "" for calls that change nothing.
	RequestID string
	// cause is the caller's context error if that ended the search.
	cause error
}

// codeUnreachable is for nodes that could not even be spoken to.
const codeUnreachable = "unreachable"

// Code returns outcome_unknown if the change may have happened, else what the
// nodes that answered said (of halted ones only if there are no others), else
// "unreachable".
func (e *OutageError) Code() string {
	if e.Unknown {
		return wire.CodeOutcomeUnknown
	}
	code := codeUnreachable
	for _, f := range e.Failures {
		var refusal *APIError
		if errors.As(f.Err, &refusal) {
			if code = refusal.Code; code != wire.CodeHalted {
				break
			}
		}
	}
	return code
}

// Error returns several lines: what is the matter, each address with its
// failure, and what to do next.
func (e *OutageError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", e.Code(), e.what())
	for _, f := range e.Failures {
		fmt.Fprintf(&b, "  %s: %s\n", f.Address, Why(f.Err))
	}
	return b.String() + e.Hint()
}

// Message returns one line: what is the matter, and each address with its
// failure.
func (e *OutageError) Message() string {
	var nodes []string
	for _, f := range e.Failures {
		nodes = append(nodes, f.Address+": "+Why(f.Err))
	}
	if len(nodes) == 0 {
		return e.what()
	}
	return e.what() + " (" + strings.Join(nodes, "; ") + ")"
}

func (e *OutageError) what() string {
	switch e.Code() {
	case wire.CodeNotInCluster:
		return "no controller that answers is in a cluster"
	case wire.CodeHalted:
		return "every controller that answers has halted"
	case wire.CodeNoLeader:
		return "no controller that answers knows a leader; asked for " + short(e.Waited)
	}
	return "no controller answered within " + short(e.Waited)
}

// Hint returns what to do next, in one line.
func (e *OutageError) Hint() string {
	switch e.Code() {
	case wire.CodeOutcomeUnknown:
		again := ""
		if e.RequestID != "" {
			again = ", or repeat it under the same request ID " + e.RequestID
		}
		return "The request may have been carried out. Look before you repeat it" + again + "."
	case codeUnreachable:
		return "Check that the controllers run (rcd serve) and that RC_CONTROLLER lists their --http addresses."
	case wire.CodeOverloaded:
		return "The controllers have more to do than they can take. Try again later."
	case wire.CodeNotInCluster:
		return "Start what each of them waits for, and look again. One controller's own view: rc raft status --node ID"
	case wire.CodeHalted:
		return "List the other controllers in RC_CONTROLLER as well. What is left of the cluster: rc raft peers"
	}
	return "Most controllers have to be up and see each other. Look with: rc raft peers"
}

// RetryAfter returns the longest time that a node advised to wait, zero when
// none did.
func (e *OutageError) RetryAfter() time.Duration {
	var longest time.Duration
	for _, f := range e.Failures {
		var refusal *APIError
		if errors.As(f.Err, &refusal) {
			longest = max(longest, refusal.RetryAfter)
		}
	}
	return longest
}

// Is makes every OutageError an ErrUnreachable.
func (e *OutageError) Is(target error) bool { return target == ErrUnreachable }

// Unwrap returns the caller's context error if that ended the search.
func (e *OutageError) Unwrap() error { return e.cause }

// noAnswerError ends an attempt that took too long.
type noAnswerError struct{ after time.Duration }

func (e *noAnswerError) Error() string { return "no answer within " + short(e.after) }

// brokenAnswerError is an answer that is none: cut off, or not from a
// controller at all.
type brokenAnswerError struct{ what string }

func (e *brokenAnswerError) Error() string { return e.what }

// Why says in a few words why a node could not be asked, without the
// addresses and layers that Go's network errors repeat.
func Why(err error) string {
	var (
		dns     *net.DNSError
		network net.Error
	)
	switch {
	case err == nil:
		return "not asked"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed before the answer"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " cannot be resolved"
	case errors.Is(err, context.Canceled):
		return "not waited for"
	case errors.As(err, &network) && network.Timeout():
		return "no connection within " + short(connectTimeout)
	}
	text := err.Error()
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// short prints a duration for people: 300ms, 1.2s, 5m0s.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
