package controller

import (
	"sync"
	"time"

	"rcd/fsm"
)

// heardEvery is how old a follower lets its knowledge of the hosts grow before
// it asks the leader for it with its next report: 10,000 hosts are a quarter of
// a megabyte.
const heardEvery = 3 * time.Second

// told is what this node knows beyond its lease table, for people: when each
// host was heard last, and what time it is in the cluster. A leader keeps the
// first for its verdicts too, but elsewhere (session.Liveness): no verdict is
// ever drawn from here.
type told struct {
	mu sync.Mutex // guards what follows
	// ages is how long before at each host was heard, by host; nil: no leader
	// has told this process yet. The map is never written again.
	ages map[string]time.Duration
	at   time.Time
	// now is the cluster's now at nowAt, which has a monotonic reading.
	now, nowAt time.Time
	// led: a leader has told this process the time, or it has led itself.
	led bool
}

// take merges what a leader said about the hosts of the lease table, true at a
// moment, with what was known before: a leader that was just started has heard
// of fewer.
func (t *told) take(view *fsm.View, ages map[string]time.Duration, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.Before(t.at) {
		return // the answer of a leader that is none any more came late
	}
	merged := map[string]time.Duration{}
	for _, a := range view.Agents() {
		if age, known := t.ages[a.Host]; known {
			merged[a.Host] = age + at.Sub(t.at)
		}
		if age, known := ages[a.Host]; known {
			younger(merged, a.Host, age)
		}
	}
	t.ages, t.at = merged, at
}

// younger notes that a host was heard so long ago, or later.
func younger(ages map[string]time.Duration, host string, age time.Duration) {
	if old, known := ages[host]; !known || age < old {
		ages[host] = max(age, 0)
	}
}

// hosts returns what a leader said last, brought to a moment, and how old that
// is: negative when none has said anything yet. The caller owns the map.
func (t *told) hosts(at time.Time) (map[string]time.Duration, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ages := make(map[string]time.Duration, len(t.ages))
	if t.ages == nil {
		return ages, -1
	}
	since := max(at.Sub(t.at), 0)
	for host, age := range t.ages {
		ages[host] = age + since
	}
	return ages, since
}

// old reports whether what a leader said about the hosts should be asked for
// again.
func (t *told) old(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ages == nil || at.Sub(t.at) >= heardEvery
}

// leads notes that this node has begun an epoch: what its state says of the
// time is the cluster's.
func (t *told) leads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.led = true
}

// leaderSays takes the cluster's now from the leader.
func (t *told) leaderSays(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.nowAt, t.led = now, time.Now(), true
}

// entrySays takes the cluster's now from an entry or a snapshot. While a log is
// read again it is long past.
func (t *told) entrySays(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := time.Now(); t.nowAt.IsZero() || now.After(t.now.Add(at.Sub(t.nowAt))) {
		t.now, t.nowAt = now, at
	}
}

// clock returns the cluster's now as far as this node can tell, and at least
// what its state says: run on from the latest word by this process's monotonic
// clock, because an idle log's stands still. A node that no leader has told
// anything since it was started does not know for how long it was away, and
// goes by its own wall clock if that is ahead: what it shows would else look
// fresh.
func (t *told) clock(state time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := state
	later := func(other time.Time) {
		if other.After(now) {
			now = other
		}
	}
	if !t.nowAt.IsZero() {
		later(t.now.Add(time.Since(t.nowAt)))
	}
	if !t.led {
		later(time.UnixMilli(time.Now().UnixMilli()))
	}
	return now
}

// now returns the cluster's now at the time of a read.
func (c *Controller) now(view *fsm.View) time.Time {
	return c.told.clock(time.UnixMilli(view.NowMS()))
}

// heard tells how long ago each host was heard as far as this node knows, and
// how old the leader's word in it is: 0 on the leader, negative when none has
// given its word yet. Contact with this node counts too, wherever it is later:
// agents look for a leader everywhere. A host that is not in it was heard by
// nobody that this node knows of; its row has the last known.
func (c *Controller) heard(view *fsm.View) (map[string]time.Duration, time.Duration) {
	now := time.Now()
	ages, old := c.told.hosts(now)
	agents := view.Agents()
	if c.Leader().Self {
		c.live.Attend(c.hub.Contacts())
		for host, age := range c.live.Ages(now, agents) {
			younger(ages, host, age)
		}
		return ages, 0
	}
	instances := make(map[string]string, len(agents))
	for _, a := range agents {
		instances[a.Host] = a.Instance
	}
	for _, h := range c.hub.Contacts() {
		// Another process under the name of the host is no contact with it.
		if instance, known := instances[h.Host]; known && instance == h.Instance && !h.LastHeard.IsZero() {
			younger(ages, h.Host, now.Sub(h.LastHeard))
		}
	}
	return ages, old
}

// keepHeard keeps what this leader has heard of the hosts for when it leads no
// more, or forgets it for its verdicts.
func (c *Controller) keepHeard() {
	view, now := c.machine.View(), time.Now()
	c.live.Attend(c.hub.Contacts())
	c.told.take(view, c.live.Ages(now, view.Agents()), now)
}
