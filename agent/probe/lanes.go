package probe

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// patience is how long a call to a driver may take. Bringing up a GPU that
// nothing holds open takes a second or two.
const patience = 5 * time.Second

// lanes keeps calls that may never return apart: in each lane at most one is
// under way. A call into a wedged driver cannot be ended, so it is left behind
// with its thread: one for a lane at most, until it comes back or the process
// ends. The zero value is good.
type lanes struct {
	mu    sync.Mutex // guards taken
	taken map[string]turn
}

// turn is a call under way.
type turn struct {
	since time.Time
	over  chan struct{} // closed when it has come back
}

// in runs f in a lane, and waits for it until ctx ends. The error wraps ErrHung
// when f is still under way then, or what was in the lane before it: that is
// waited for only while it may still be one that ends. What a call brings that
// was left behind goes nowhere.
func in[T any](ctx context.Context, l *lanes, lane string, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	leave, err := l.enter(ctx, lane)
	if err != nil {
		return none, err
	}
	back := make(chan result, 1)
	go func() {
		defer leave()
		v, err := f()
		back <- result{v, err}
	}()
	select {
	case r := <-back:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", lane, ErrHung)
	}
}

// enter takes a lane, and returns how to leave it.
func (l *lanes) enter(ctx context.Context, lane string) (leave func(), err error) {
	for {
		l.mu.Lock()
		now, taken := l.taken[lane]
		if !taken {
			if l.taken == nil {
				l.taken = map[string]turn{}
			}
			over := make(chan struct{})
			l.taken[lane] = turn{time.Now(), over}
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.taken, lane)
				l.mu.Unlock()
				close(over)
			}, nil
		}
		l.mu.Unlock()
		timer := time.NewTimer(patience - time.Since(now.since))
		select {
		case <-now.over:
		case <-timer.C:
			err = fmt.Errorf("%s: %w for %v", lane, ErrHung, time.Since(now.since).Round(time.Second))
		case <-ctx.Done():
			err = fmt.Errorf("%s: %w", lane, ErrHung)
		}
		if timer.Stop(); err != nil {
			return nil, err
		}
	}
}
