package fsm

import (
	"cmp"
	"slices"
	"strings"

	"rcd/internal/codec"
	"rcd/model"
	"rcd/scheduler"
)

// indexes builds every index again from the rows and compares.
func (c *checker) indexes() {
	v := c.v
	var queue []scheduler.Order
	var pinned []pinnedKey
	var active []uint64
	var ended []agedKey
	var byEnd []endKey
	var byDevice, bySubmitter []namedKey
	var targets []string
	var byHold []holdKey
	var sessions []uint64
	var bytes, endedBytes int64
	v.jobs.scan(func(number uint64, j *model.Job) bool {
		bySubmitter = append(bySubmitter, namedKey{j.Submitter, number})
		for _, d := range historyDevices(j) {
			byDevice = append(byDevice, namedKey{d, number})
		}
		if j.Hold != 0 {
			byHold = append(byHold, holdKey{j.Hold, number})
		}
		if j.SessionS > 0 && !j.State.Terminal() {
			sessions = append(sessions, number)
		}
		switch {
		case j.State == model.JobQueued:
			o := scheduler.Order{At: j.QueueAtMS, Number: number}
			queue = append(queue, o)
			targets = append(targets, targetOf(j))
			bytes += jobBytes(j)
			if j.Pinned != "" {
				pinned = append(pinned, pinnedKey{j.Pinned, o})
			}
		case j.State.Terminal():
			ended = append(ended, agedKey{j.EndUptimeMS, number})
			endedBytes += jobBytes(j)
			byEnd = append(byEnd, endKey{j.State, number})
		default:
			active = append(active, number)
		}
		return true
	})
	var ages []requestKey
	v.requests.scan(func(key string, q *model.Request) bool {
		ages = append(ages, requestKey{q.UptimeMS, key})
		return true
	})
	compareIndex(c, "queue", &v.queue, queue)
	compareIndex(c, "pinned", &v.pinned, pinned)
	compareIndex(c, "active", &v.active, active)
	compareIndex(c, "ended", &v.ended, ended)
	compareIndex(c, "by end", &v.byEnd, byEnd)
	compareIndex(c, "by device", &v.byDevice, byDevice)
	compareIndex(c, "by submitter", &v.bySubmitter, bySubmitter)
	compareIndex(c, "request age", &v.requestAge, ages)
	compareIndex(c, "by hold", &v.byHold, byHold)
	compareIndex(c, "sessions", &v.sessions, sessions)
	if bytes != v.queuedBytes {
		c.found("the queue takes %d bytes, the count says %d", bytes, v.queuedBytes)
	}
	if endedBytes != v.finishedBytes {
		c.found("the finished jobs take %d bytes, the count says %d", endedBytes, v.finishedBytes)
	}
	c.tally(targets)
}

func compareIndex[K comparable](c *checker, name string, x *index[K], want []K) {
	less := x.tree.Less
	slices.SortFunc(want, func(a, b K) int {
		switch {
		case less(a, b):
			return -1
		case less(b, a):
			return 1
		}
		return 0
	})
	if got := x.tree.Items(); !slices.Equal(got, want) {
		c.found("index %s: %d keys, the rows ask for %d, or others", name, len(got), len(want))
	}
}

func (c *checker) tally(targets []string) {
	slices.Sort(targets)
	names, counts := c.v.targets.tree.KeyValues()
	i := 0
	for at := 0; at < len(targets); i++ {
		end := at
		for end < len(targets) && targets[end] == targets[at] {
			end++
		}
		if i >= len(names) || names[i] != targets[at] || counts[i] != end-at {
			c.found("the tally of targets is wrong at %q", targets[at])
			return
		}
		at = end
	}
	if i != len(names) {
		c.found("the tally of targets has %d names too many", len(names)-i)
	}
}

// digest computes the digest again from the encoding of every row.
func (c *checker) digest() {
	var sum Digest
	sum.add(rowSum(tableMeta, nil, codec.MustMarshal(&c.v.meta)))
	sum.add(rowSum(tableSettings, nil, codec.MustMarshal(&c.v.settings)))
	addTable(c, &sum, &c.v.jobs)
	addTable(c, &sum, &c.v.leases)
	addTable(c, &sum, &c.v.devices)
	addTable(c, &sum, &c.v.agents)
	addTable(c, &sum, &c.v.requests)
	addTable(c, &sum, &c.v.sheets)
	addTable(c, &sum, &c.v.members)
	addTable(c, &sum, &c.v.unserved)
	if sum != c.v.digest {
		c.found("digest %s, the rows give %s", c.v.digest, sum)
	}
}

func addTable[K cmp.Ordered, V any](c *checker, sum *Digest, t *table[K, V]) {
	t.tree.Scan(func(key K, row *cell[V]) bool {
		s := rowSum(t.id, keyBytes(key), codec.MustMarshal(&row.row))
		if s != row.sum {
			c.found("table %d, key %v: the row was written in place", t.id, key)
		}
		sum.add(s)
		return true
	})
}

// published compares the published view with the state being changed.
func (c *checker) published(view *View) {
	v := c.v
	same := view.index == v.index && view.digest == v.digest && view.meta == v.meta &&
		view.settings == v.settings && view.queuedBytes == v.queuedBytes && view.finishedBytes == v.finishedBytes
	counts := []struct{ a, b int }{
		{view.jobs.len(), v.jobs.len()},
		{view.leases.len(), v.leases.len()},
		{view.devices.len(), v.devices.len()},
		{view.agents.len(), v.agents.len()},
		{view.requests.len(), v.requests.len()},
		{view.sheets.len(), v.sheets.len()},
		{view.members.len(), v.members.len()},
		{view.unserved.len(), v.unserved.len()},
		{view.queue.len(), v.queue.len()},
		{view.active.len(), v.active.len()},
		{view.ended.len(), v.ended.len()},
		{view.byEnd.len(), v.byEnd.len()},
		{view.byHold.len(), v.byHold.len()},
		{view.sessions.len(), v.sessions.len()},
	}
	for _, n := range counts {
		same = same && n.a == n.b
	}
	if !same || strings.Join(view.targets.tree.Keys(), "\n") != strings.Join(v.targets.tree.Keys(), "\n") {
		c.found("the published view differs from the state")
	}
}
