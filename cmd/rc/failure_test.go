package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"rcd/client"
	"rcd/wire"
)

// A program gets the code that goes with the exit code, one line, and a hint
// only where it helps with this refusal.
func TestWhatProgramsAreToldOfAnErrorFitsIt(t *testing.T) {
	node := func(no client.APIError) error { no.Node = "c1"; return &no }
	for _, c := range []struct {
		err            error
		code, hint     string
		retry          int64
		request, begin string
	}{
		{err: fmt.Errorf("copy: %w", client.ErrNotFound), code: wire.CodeNotFound},
		{err: node(client.APIError{Status: 404, Code: wire.CodeNotFound}), code: wire.CodeNotFound, hint: hints[exitNotFound]},
		// That of a node, which rc jobs and rc devices do not list.
		{err: &client.APIError{Status: 404, Code: wire.CodeNotFound}, code: wire.CodeNotFound},
		// --no-wait would have it queued, and there is no room to.
		{err: node(client.APIError{Status: 429, Code: "queue_full", RetryAfter: time.Second, RequestID: "r"}), code: "queue_full", hint: "ask again later", retry: 1, request: "r"},
		{err: &client.OutageError{RequestID: "r", Unknown: true}, code: wire.CodeOutcomeUnknown, hint: "The request may have been carried out. Look before you repeat it, or repeat it under the same request ID r.", request: "r"},
		{err: lateError{lateJob{how: "no word", err: &client.OutageError{Failures: []client.Failure{{Address: "a", Err: errors.New("gone")}}}}},
			code: codeDeadline, hint: (&client.OutageError{}).Hint(), begin: "no word: no controller answered within "},
		{err: lateError{lateJob{how: "still queued", next: "Go on"}}, code: codeDeadline, hint: "Go on", begin: "still queued"},
	} {
		f := failureOf(c.err)
		var late lateError
		if errors.As(c.err, &late) {
			f = late.failure()
		}
		if f.Code != c.code || f.Hint != c.hint || f.RetryAfter != c.retry || f.RequestID != c.request ||
			!strings.HasPrefix(f.Message, c.begin) || strings.Contains(f.Message, "\n") {
			t.Errorf("%v: %+v", c.err, f)
		}
	}
}

// lateError lets a job that is late stand in the table above.
type lateError struct{ lateJob }

func (lateError) Error() string { return "late" }
