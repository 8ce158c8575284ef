package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Labels are detected facts: by device, then by key. The device "" stands for
// every device of the host.
type Labels map[string]map[string]string

// Source detects facts about the host's devices.
type Source struct {
	Name string // for the log
	// Every is the time from the end of a call to the next, Timeout the most that
	// a call may take.
	Every, Timeout time.Duration
	// Last stands until the first answer: what it said before a restart.
	Last Labels
	// Detect returns all that the source knows now: what it no longer says is
	// gone. After an error, and when it takes too long, its last word stands. It
	// should end with ctx; if it does not, only this source waits for it.
	Detect func(ctx context.Context) (Labels, error)
}

// errHung says that a call has outlived its deadline and is still under way.
var errHung = errors.New("it does not end")

// repeat calls f until ctx ends: one call at a time, each with a deadline, the
// next one every after the last has ended. done gets what came of each call, and
// once errHung when it does not end in time; what such a call brings in the end
// is as old as the deadline and goes nowhere. A call that hangs is left behind
// when ctx ends.
func repeat[T any](ctx context.Context, every, timeout time.Duration, f func(context.Context) (T, error), done func(T, error)) {
	type result struct {
		value T
		err   error
	}
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, timeout)
		back := make(chan result, 1)
		go func() {
			v, err := f(callCtx)
			back <- result{v, err}
		}()
		select {
		case r := <-back:
			if ctx.Err() == nil {
				done(r.value, r.err)
			}
		case <-callCtx.Done():
			if ctx.Err() == nil {
				var none T
				done(none, fmt.Errorf("%w within %v", errHung, timeout))
			}
			select {
			case <-back:
			case <-ctx.Done():
			}
		}
		cancel()
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}
