package controller

import (
	"slices"
	"sync"
	"time"
)

// clocks remembers how far the other controllers' wall clocks are from ours,
// so that whoever acquires leadership knows a median without asking anybody.
type clocks struct {
	self string

	mu    sync.Mutex
	peers map[string]clockReport
}

type clockReport struct {
	offset time.Duration // peer's wall clock minus ours
	at     time.Time     // monotonic
}

func newClocks(self string) *clocks {
	return &clocks{self: self, peers: map[string]clockReport{}}
}

// report takes a peer's wall clock, as an offset from ours that was true ago.
func (c *clocks) report(node string, offset, ago time.Duration) {
	if node == "" || node == c.self {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers[node] = clockReport{offset: offset, at: time.Now().Add(-ago)}
}

// known lists the fresh offsets, ours (0) not among them.
func (c *clocks) known() map[string]clockReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := map[string]clockReport{}
	for node, r := range c.peers {
		if time.Since(r.at) <= clockFresh {
			fresh[node] = r
		}
	}
	return fresh
}

// median returns the median offset from our own clock over ours and every
// fresh peer's, and whether that covers a majority of voters. With an even
// number the smaller of the middle two is taken, so that no clock that nobody
// has is made up.
func (c *clocks) median(voters int) (time.Duration, bool) {
	offsets := []time.Duration{0}
	for _, r := range c.known() {
		offsets = append(offsets, r.offset)
	}
	if len(offsets) < voters/2+1 || voters < 2 {
		return 0, false
	}
	slices.Sort(offsets)
	return offsets[(len(offsets)-1)/2], true
}
