package fsm

import (
	"cmp"
	"math/bits"
	"slices"

	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// Bounds of one look at the queue. A client that waits asks twice a second, so
// a look may cost a few milliseconds at the worst.
const (
	// maxAhead is how many jobs ahead are looked at.
	maxAhead = 10_000
	// maxWeighed is how many of the devices that a job could use are weighed,
	// those first that come free first: the bits of a word.
	maxWeighed = 64
)

// What a job may take beyond its limit in milliseconds, on one device.
const (
	// startAllowanceMS is from the placement to the start of the process:
	// milliseconds, and a failover in between.
	startAllowanceMS = 5 * secondMS
	// endAllowanceMS is from the limit to the free device: an agent's grace of
	// 10 s between SIGTERM and SIGKILL, and 5 s until nobody is left.
	endAllowanceMS = 15 * secondMS
)

// noEnd stands for a time that cannot be said.
const noEnd = int64(-1)

// Expected says when a job gets a device, as an interval in Unix milliseconds
// of the cluster's now.
//
// Earliest is the present whenever a device of the pool could become free for
// it: a job may end long before its limit.
//
// Latest holds for the queue as it is: the jobs on the devices and those ahead
// that could take them run to their limits, with the time that it takes to end
// them. The job cannot wait longer, because a device that it could use is never
// free while it waits, and is given to nobody behind it. What can pass it all
// the same: a job that comes later with a higher priority (one submitted less
// than the difference × aging_ms after it; any, when aging_ms is 0); a limit
// that is extended; what is started inside a hold later, which ends after it; a
// device that leaves the pool, or whose labels or ceiling change; a job put back
// into its place because its host died; a step of the cluster's clock. A device out of the pool gives no bound, nor does one that
// is held by, or could be given to, a job without a limit.
type Expected struct {
	EarliestMS int64  // 0: cannot be said
	LatestMS   int64  // 0: cannot be said
	Note       string // why Latest is not known, else what may still pass it
}

// claim is what decides when a job gets a device: a queued job, or one that is
// only thought of.
type claim struct {
	pinned   string
	selector selector.Selector // when not pinned
	runtimeS int64             // as scheduler.Runtime
	order    scheduler.Order
	queued   bool // a job has been submitted, and is not only thought of
}

func claimOf(j *model.Job) (claim, error) {
	c := claim{pinned: j.Pinned, runtimeS: scheduler.Runtime(j), order: scheduler.OrderOf(j), queued: true}
	if j.Pinned != "" {
		return c, nil
	}
	var err error
	c.selector, err = selector.Parse(j.Selector)
	return c, err
}

// candidate is a device that a claim could be given as things are, but for who
// holds it or why it is out of the pool.
type candidate struct {
	device *model.Device
	// freeMS is when the device is free at the latest, noEnd when that cannot
	// be said; a ready device is free now.
	freeMS int64
}

// survey is what the registered devices are to a claim.
type survey struct {
	matching  int   // match, volatile labels aside
	tolerated int   // of those, allow the runtime
	largestS  int64 // largest ceiling among the matching
	// usable are those of the tolerating that match now: free ones first, then
	// by when they come free, those without an end after them, those out of
	// the pool last; then by ID.
	usable []candidate
	inPool int      // of the usable, how many come first because they are in the pool
	unmet  []string // keys that keep all tolerating devices from matching now, of some
}

func (v *View) survey(c *claim, nowMS int64) survey {
	var s survey
	look := func(d *model.Device) {
		if c.pinned == "" && !c.selector.MatchStable(d.Label) {
			return
		}
		s.matching++
		s.largestS = max(s.largestS, d.MaxRuntimeS)
		if !scheduler.Tolerates(d.MaxRuntimeS, c.runtimeS) {
			return
		}
		s.tolerated++
		if c.pinned == "" && !c.selector.Match(d.Label) {
			s.unmet = append(s.unmet, c.selector.Unmet(d.Label)...)
			return
		}
		s.usable = append(s.usable, candidate{d, v.freeMS(d, nowMS)})
		if inPool(d) {
			s.inPool++
		}
	}
	if c.pinned != "" {
		if d := v.devices.get(c.pinned); d != nil {
			look(d)
		}
	} else {
		v.devices.scan(func(_ string, d *model.Device) bool {
			look(d)
			return true
		})
	}
	slices.Sort(s.unmet)
	s.unmet = slices.Compact(s.unmet)
	slices.SortFunc(s.usable, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(a.freeMS, b.freeMS), cmp.Compare(a.device.ID, b.device.ID))
	})
	return s
}

// rankOf puts devices that a job can count on first.
func rankOf(c candidate) int {
	switch {
	case !inPool(c.device):
		return 2
	case c.freeMS == noEnd:
		return 1
	}
	return 0
}

// inPool reports whether a device is given to the next job when it is free. One
// that its host no longer declares is not, whoever still runs on it.
func inPool(d *model.Device) bool {
	return (d.State == model.DeviceReady || d.State == model.DeviceBusy) && !d.Absent
}

// freeMS returns when a device comes free at the latest, noEnd when that cannot
// be said.
func (v *View) freeMS(d *model.Device, nowMS int64) int64 {
	if !inPool(d) {
		return noEnd
	}
	if d.Lease == 0 {
		return nowMS
	}
	free, _ := v.leaseEndMS(v.leases.get(d.Lease), nowMS)
	return free
}

// leaseEndMS returns when a lease has ended at the latest, noEnd when that cannot
// be said, and whether that is because its limit has passed: its host does not do
// as it is told. A hold's limit stands for what runs inside, which is ended after
// it.
func (v *View) leaseEndMS(l *model.Lease, nowMS int64) (free int64, past bool) {
	j := v.jobs.get(l.Jobs[0])
	switch h := v.jobs.get(j.Hold); {
	case j.Hold == 0:
		free = endMS(j, nowMS)
	case h == nil:
		return noEnd, true // its end is long forgotten
	default:
		free = h.FinishedAtMS + endAllowanceMS
	}
	if free != noEnd && len(l.Jobs) > 1 && j.Hold == 0 {
		free += endAllowanceMS
	}
	if past = free != noEnd && free <= nowMS; past {
		free = noEnd
	}
	return free, past
}

// endMS returns when an active job has left its device at the latest, noEnd
// when it has no limit. One that has not started starts now.
func endMS(j *model.Job, nowMS int64) int64 {
	switch {
	case j.MaxRuntimeS == 0:
		return noEnd
	case j.State == model.JobRunning:
		return j.StartedAtMS + j.MaxRuntimeS*secondMS + endAllowanceMS
	}
	return nowMS + occupationMS(j.MaxRuntimeS)
}

// occupationMS is how long a job with this limit keeps a device at the most.
func occupationMS(limitS int64) int64 { return startAllowanceMS + limitS*secondMS + endAllowanceMS }

// contest is what the jobs ahead of a claim mean to the devices it could use.
type contest struct {
	ahead int // jobs ahead that could take one of the weighed devices
	// tooMany: there are more jobs ahead in the fleet than are looked at, and
	// ahead is the number of all of them.
	tooMany  bool
	latestMS int64 // see Expected; noEnd when there is no bound
}

// contest weighs the jobs ahead of a claim.
//
// One device d alone bounds the wait: until the claim is served, d is held by
// its holder and then by jobs ahead that could take it, each once. So do any k
// devices together: all of them are held all the while, so k times the wait is
// at most what their holders have left and what the jobs ahead that could take
// one of the k ever occupy. The least of these bounds is taken, over each
// device alone and over the k that come free first, for each k.
func (v *View) contest(c *claim, s *survey, nowMS int64) contest {
	rank := v.queue.rank(c.order)
	if rank > maxAhead {
		return contest{ahead: rank, tooMany: true, latestMS: noEnd}
	}
	w := newWeights(s, nowMS)
	v.queue.tree.Scan(func(o scheduler.Order) bool {
		if !o.Less(c.order) {
			return false
		}
		w.add(v.jobs.get(o.Number))
		return true
	})
	return contest{ahead: w.ahead, latestMS: w.latestMS(nowMS)}
}

// weights sums up what jobs ahead can occupy of the weighed devices. The first
// bounded of these have an end.
type weights struct {
	devices []candidate // at most maxWeighed
	bounded int
	slots   map[string]int    // by device ID; only looked up
	masks   map[string]uint64 // by selector, of the devices that match; only looked up
	ahead   int

	alone  [maxWeighed]int64 // ms on this device, noEnd when a job has no limit there
	joint  [maxWeighed]int64 // ms that count from the set of this many devices and one on
	noEnds int               // from the set of this many devices and one on there is no bound
}

func newWeights(s *survey, nowMS int64) *weights {
	w := &weights{devices: s.usable[:min(len(s.usable), maxWeighed)], slots: map[string]int{}, masks: map[string]uint64{}, noEnds: maxWeighed}
	for i, c := range w.devices {
		w.slots[c.device.ID] = i
		if rankOf(c) == 0 {
			w.bounded = i + 1
			w.alone[i], w.joint[i] = c.freeMS-nowMS, c.freeMS-nowMS
		}
	}
	return w
}

// mask returns the weighed devices that a queued job could be given, those
// included that do not allow its runtime.
func (w *weights) mask(j *model.Job) uint64 {
	if j.Pinned != "" {
		if i, ok := w.slots[j.Pinned]; ok {
			return 1 << i
		}
		return 0
	}
	mask, known := w.masks[j.Selector]
	if known {
		return mask
	}
	if parsed, err := selector.Parse(j.Selector); err == nil {
		for i, c := range w.devices {
			if parsed.Match(c.device.Label) {
				mask |= 1 << i
			}
		}
	}
	w.masks[j.Selector] = mask
	return mask
}

// add counts a job ahead.
func (w *weights) add(j *model.Job) {
	runtimeS, competes := scheduler.Runtime(j), false
	most := int64(0) // ms that it occupies at the most, of the devices so far
	for mask := w.mask(j); mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		ceilingS := w.devices[i].device.MaxRuntimeS
		if !scheduler.Tolerates(ceilingS, runtimeS) {
			continue
		}
		competes = true
		if i >= w.bounded {
			break // the rest have no end to add to
		}
		limitS := cmp.Or(runtimeS, ceilingS) // who asks for nothing gets the ceiling
		if limitS == 0 {
			w.alone[i], w.noEnds = noEnd, min(w.noEnds, i)
			continue
		}
		ms := occupationMS(limitS)
		if w.alone[i] != noEnd {
			w.alone[i] += ms
		}
		if ms > most {
			w.joint[i] += ms - most
			most = ms
		}
	}
	if competes {
		w.ahead++
	}
}

// latestMS returns the least bound, noEnd when there is none.
func (w *weights) latestMS(nowMS int64) int64 {
	best, sum := noEnd, int64(0)
	for i := range w.bounded {
		if w.alone[i] != noEnd && (best == noEnd || w.alone[i] < best) {
			best = w.alone[i]
		}
		if i >= w.noEnds {
			continue
		}
		sum += w.joint[i]
		k := int64(i + 1)
		if all := (sum + k - 1) / k; best == noEnd || all < best {
			best = all
		}
	}
	if best == noEnd {
		return noEnd
	}
	return nowMS + best
}

// expect says when a claim is served, from what its devices and the jobs ahead
// are to it.
func expect(s *survey, k contest, nowMS int64) Expected {
	const mayPass = "Later jobs of higher priority, an extended limit or a device that leaves the pool can make it later."
	switch {
	case s.matching == 0:
		return Expected{Note: "No device matches."}
	case s.tolerated == 0:
		return Expected{Note: "No device that matches allows its runtime."}
	case len(s.usable) == 0:
		return Expected{Note: "No device matches just now."}
	case s.inPool == 0:
		return Expected{Note: "No device that it could use is in the pool."}
	case s.usable[0].device.State == model.DeviceReady:
		return Expected{EarliestMS: nowMS, LatestMS: nowMS}
	case k.tooMany:
		return Expected{EarliestMS: nowMS, Note: "Too many jobs are ahead of it to say until when it waits at most."}
	case k.latestMS == noEnd:
		return Expected{EarliestMS: nowMS, Note: "Each device that it could use is held, or may be taken first, by a job that has no limit or is past it."}
	}
	return Expected{EarliestMS: nowMS, LatestMS: k.latestMS, Note: mayPass}
}
