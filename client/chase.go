package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// When the next node is asked as well, before the one asked last has failed.
// Asking two at once is safe: reads change nothing and changes carry a request
// ID.
const (
	// connectHedge: no connection so far. A dead first address (packets go
	// nowhere) must cost under 300 ms; most networks connect in a tenth.
	connectHedge = 200 * time.Millisecond
	// familyHedge: the same for one name with addresses of both IP versions,
	// the first of which goes nowhere. Go's own 300 ms are all there is.
	familyHedge = 100 * time.Millisecond
	// readHedge: connected and no answer so far. A stopped process still
	// accepts connections, and reads must not hang on it.
	readHedge = time.Second
	// writeHedge is longer, because a change waits for a leader, and asking
	// every node adds load just when one is being elected.
	writeHedge = 2 * time.Second
)

// Bounds of one attempt at one node.
const (
	connectTimeout = 3 * time.Second
	// answerTimeout: a node may look for a leader for 5 s before it answers.
	answerTimeout = 6 * time.Second
	// bodyTimeout: time without a byte of an answer that has begun.
	bodyTimeout = 5 * time.Second
)

// How long a node that failed is left alone, doubling from one to the other.
const (
	coolMin = 50 * time.Millisecond
	coolMax = time.Second
	// overloadedPause goes for all nodes, because they all ask the same leader.
	overloadedPause = 500 * time.Millisecond
)

// class says what to do about the failure of one attempt.
type class int

const (
	final      class = iota // the answer: nobody else would say otherwise
	nextNode                // this node cannot; the next one may
	overloaded              // no node can at present
)

// chase asks nodes until one answers. It owns every attempt it starts: when
// run returns, none is under way.
type chase[T any] struct {
	nodes    []*node
	hedge    time.Duration // until the next is asked, once connected
	patience time.Duration

	// try asks one node, and calls connected once it is connected. It ends
	// soon after its context. classify sorts its errors.
	try      func(ctx context.Context, n *node, connected func()) (T, error)
	classify func(error) class
	// discard lets go of an answer that came second.
	discard func(T)
	// waiting, if not nil, is called once when nobody has answered for
	// waitAfter.
	waiting   func(failures []Failure)
	waitAfter time.Duration

	// settle: when patience ends, attempts under way are waited for, because a
	// change that is cut off may or may not have happened. Each has its own
	// limit (answerTimeout).
	settle bool
	// enough, if not nil, is asked each time a node fails and every node has
	// failed at least once: whether that is all there is to learn.
	enough func(failures []Failure) bool
}

// outcome is how one attempt ended.
type outcome[T any] struct {
	at     int
	answer T
	err    error
}

// standing is what a chase knows of one node.
type standing struct {
	inFlight bool
	failed   int // attempts
	last     error
	coolTill time.Time
}

// run returns the first answer and who gave it; or the final error and who
// gave it; or, when patience or ctx ends, no node and the failures so far.
func (c *chase[T]) run(ctx context.Context) (answer T, by *node, failures []Failure, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var attempts sync.WaitGroup
	results := make(chan outcome[T], len(c.nodes)) // one per node: none ever blocks
	connected := make(chan int)
	defer func() {
		cancel()
		attempts.Wait()
		for range len(results) {
			if late := <-results; late.err == nil {
				c.discard(late.answer)
			}
		}
	}()
	giveUp := time.NewTimer(c.patience)
	defer giveUp.Stop()
	word := time.NewTimer(c.waitAfter)
	defer word.Stop()
	next := time.NewTimer(0) // when another node may be asked
	defer next.Stop()

	state := make([]standing, len(c.nodes))
	newest, ending := -1, false
	for {
		if ending && !anyInFlight(state) {
			return answer, nil, c.failures(state), ErrUnreachable
		}
		select {
		case <-ctx.Done():
			return answer, nil, c.failures(state), context.Cause(ctx)
		case <-giveUp.C:
			if !c.settle {
				return answer, nil, c.failures(state), ErrUnreachable
			}
			ending = true
		case <-word.C:
			if c.waiting != nil {
				c.waiting(c.failures(state))
			}
		case <-next.C:
			if ending {
				continue
			}
			now := time.Now()
			at := pick(state, now)
			if at < 0 {
				next.Reset(untilCool(state, now))
				continue
			}
			newest = at
			state[at].inFlight = true
			next.Reset(connectHedge)
			attempts.Go(func() {
				answer, err := c.try(ctx, c.nodes[at], func() {
					select {
					case connected <- at:
					case <-ctx.Done():
					}
				})
				results <- outcome[T]{at, answer, err}
			})
		case at := <-connected:
			if at == newest {
				next.Reset(c.hedge)
			}
		case r := <-results:
			if r.err == nil {
				return r.answer, c.nodes[r.at], c.failures(state), nil
			}
			s := &state[r.at]
			s.inFlight, s.last = false, r.err
			s.failed++
			s.coolTill = time.Now().Add(jitter(min(coolMin<<min(s.failed-1, 10), coolMax)))
			switch c.classify(r.err) {
			case final:
				return answer, c.nodes[r.at], c.failures(state), r.err
			case overloaded:
				pause := time.Now().Add(jitter(overloadedPause))
				for i := range state {
					state[i].coolTill = pause
				}
				next.Reset(time.Until(pause))
			default:
				if c.enough != nil && everyFailed(state) && c.enough(c.failures(state)) {
					return answer, nil, c.failures(state), ErrUnreachable
				}
				if r.at == newest || !anyInFlight(state) {
					next.Reset(0)
				}
			}
		}
	}
}

// pick returns which node to ask now, -1 for none: of those that are neither
// asked nor left alone, the one that failed least, the earlier in order first.
func pick(state []standing, now time.Time) int {
	best := -1
	for i, s := range state {
		if s.inFlight || now.Before(s.coolTill) {
			continue
		}
		if best < 0 || s.failed < state[best].failed {
			best = i
		}
	}
	return best
}

func anyInFlight(state []standing) bool {
	return slices.ContainsFunc(state, func(s standing) bool { return s.inFlight })
}

func everyFailed(state []standing) bool {
	return !slices.ContainsFunc(state, func(s standing) bool { return s.last == nil })
}

// untilCool returns how long until a node may be asked again. While all are
// being asked, their outcomes say when.
func untilCool(state []standing, now time.Time) time.Duration {
	wait := answerTimeout
	for _, s := range state {
		if !s.inFlight {
			wait = min(wait, s.coolTill.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// jitter spreads d over 75 to 125 %, so that the clients of a node that died
// do not come back at once.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}

// failures lists the nodes that failed or have been asked in vain so far.
func (c *chase[T]) failures(state []standing) []Failure {
	var list []Failure
	for i, s := range state {
		switch {
		case s.last != nil:
			list = append(list, Failure{c.nodes[i].base, s.last})
		case s.inFlight:
			list = append(list, Failure{c.nodes[i].base, errNotYet})
		}
	}
	return list
}
