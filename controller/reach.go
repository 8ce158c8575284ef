package controller

import (
	"sync"
	"time"
)

// reach is what a leader knows of whether others can reach it: each other
// controller reports once a second.
type reach struct {
	mu      sync.Mutex
	since   time.Time
	reports map[string]time.Time // controller → its last report
}

func newReach(now time.Time) *reach {
	r := &reach{}
	r.reset(now)
	return r
}

// reset begins anew, at the start of an epoch or when this process was stopped
// for a while.
func (r *reach) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.reports = now, map[string]time.Time{}
}

// reported takes that another controller has reached this one.
func (r *reach) reported(node string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports[node] = now
}

// reachable reports whether so many other controllers as are wanted have
// reached this one within a time, or whether it is too early to say.
func (r *reach) reachable(now time.Time, wanted int, within time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) < within {
		return true
	}
	for _, at := range r.reports {
		if now.Sub(at) < within {
			wanted--
		}
	}
	return wanted <= 0
}
