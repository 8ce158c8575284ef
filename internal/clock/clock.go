// Package clock is the way code above the replicated state reads time, so that
// a test can give a node a clock that is wrong. It must never be imported by
// the state machine, which knows only the stamps in its entries.
//
// Waiting under test needs nothing from here: a testing/synctest bubble makes
// the time package virtual. What the interface adds is a wall clock that
// differs from node to node.
package clock

import "time"

// Clock tells time and waits. Every method may be called concurrently.
type Clock interface {
	// Now returns the wall clock, with a monotonic reading: the difference of
	// two of its results is elapsed time even when the wall clock was set.
	Now() time.Time

	// NewTimer returns a timer that sends the time on C once d has passed.
	NewTimer(d time.Duration) Timer
}

// Timer is a time.Timer behind a channel getter. Stop and Reset have the
// meaning of the time package since Go 1.23: after either returns, no stale
// value is received from C.
type Timer interface {
	C() <-chan time.Time
	Stop() bool
	Reset(d time.Duration) bool
}

// Real returns the clock of this machine.
func Real() Clock { return realClock{} }

type realClock struct{}

func (realClock) Now() time.Time                 { return time.Now() }
func (realClock) NewTimer(d time.Duration) Timer { return realTimer{time.NewTimer(d)} }

type realTimer struct{ *time.Timer }

func (t realTimer) C() <-chan time.Time { return t.Timer.C }

// Skewed returns a clock whose wall clock is wrong by offset, always the same,
// for tests of nodes that disagree about the time. Differences and timers are
// true.
func Skewed(offset time.Duration) Clock { return skewedClock{offset: offset} }

type skewedClock struct {
	realClock
	offset time.Duration
}

func (c skewedClock) Now() time.Time { return time.Now().Add(c.offset) }
