package scheduler

import (
	"math"
	"slices"

	"rcd/model"
	"rcd/model/selector"
)

// What the registered devices of a target allow, beside seconds. Every runtime
// is above NoDevice, none asked (0) included, and none is above Unlimited.
const (
	NoDevice  int64 = -1            // there is no device at all
	Unlimited int64 = math.MaxInt64 // one of them has no ceiling
)

// allowedBy returns the longest runtime that a device allows, whatever its
// state. One that its host no longer declares serves nobody.
func allowedBy(d *model.Device) int64 {
	switch {
	case d.Absent:
		return NoDevice
	case d.MaxRuntimeS <= 0:
		return Unlimited
	}
	return d.MaxRuntimeS
}

// Serves reports whether any registered device matches a selector, and whether
// any of those tolerates the runtime (seconds, 0: none asked), leaving aside
// what is free now: the state of devices and their volatile labels. A device
// that its host no longer declares is left out. text must be what sel was
// parsed from.
func (s *Scheduler) Serves(text string, sel selector.Selector, runtimeS int64) (matched, tolerated bool) {
	key := selectorPrefix + text
	c, ok := s.classes.Get(key)
	if !ok {
		c = s.newClass(key, sel)
		s.retireClass(c) // kept for the job that comes next, or for the next such question
	}
	allows := s.allows(c)
	return allows > NoDevice, allows > NoDevice && runtimeS <= allows
}

// Allows returns the longest runtime, in seconds, that a registered device
// allows the queued jobs of a target, leaving aside what is free now; NoDevice
// when no device matches (or no job is queued), Unlimited when one without a
// ceiling does.
func (s *Scheduler) Allows(target string) int64 {
	c, ok := s.classes.Get(target)
	if !ok {
		return NoDevice
	}
	return s.allows(c)
}

func (s *Scheduler) allows(c *class) int64 {
	if c.pinned != "" {
		if slot, ok := s.fleet.slot(c.pinned); ok {
			return s.fleet.allows[slot]
		}
		return NoDevice
	}
	if c.stale {
		c.allows, c.stale = s.fleet.most(c.stable), false
	}
	return c.allows
}

// reconsider takes up that one device matches a class or stops doing so, or
// allows it something else. What the class is allowed is computed again only
// when it may have fallen, and only when somebody asks.
func (s *Scheduler) reconsider(c *class, was bool, before int64, is bool, after int64) {
	if !was {
		before = NoDevice
	}
	if !is {
		after = NoDevice
	}
	switch {
	case before == after:
		return
	case c.stale:
	case after > c.allows:
		c.allows = after
	case after == c.allows || before < c.allows:
		return
	default:
		c.stale = true
	}
	s.moved = s.moved || c.jobs > 0
	s.touch(c)
}

func (s *Scheduler) touchPinned(device string) {
	if c, ok := s.classes.Get(pinnedPrefix + device); ok {
		s.moved = true
		s.touch(c)
	}
}

// Touch adds a target to those of TakeTouched, also one without a queued job.
func (s *Scheduler) Touch(target string) {
	if c, ok := s.classes.Get(target); ok && c.jobs > 0 {
		s.touch(c)
		return
	}
	s.touched = append(s.touched, target)
	s.moved = true // what devices do to it from here on touches nothing
}

func (s *Scheduler) touch(c *class) {
	if c.jobs > 0 && !c.touched {
		c.touched = true
		s.touched = append(s.touched, c.key)
	}
}

// Moved reports whether, since TakeTouched, a device has touched a target or
// one without a queued job was touched: a job that is added now must not be
// taken for one that was there before.
func (s *Scheduler) Moved() bool { return s.moved }

// Touched reports whether TakeTouched would return anything.
func (s *Scheduler) Touched() bool { return len(s.touched) > 0 }

// TakeTouched returns the targets with queued jobs to which devices may have
// come to allow something else since the last call, and those of Touch. One may
// come more than once. The caller owns the slice.
func (s *Scheduler) TakeTouched() []string {
	list := s.touched
	for _, key := range list {
		if c, ok := s.classes.Get(key); ok {
			c.touched = false
		}
	}
	s.touched, s.moved = nil, false
	return list
}

// KeepEdge makes a ceiling that no device need have any more a bound that
// Waits and Waiting know exactly. Those of devices are known for good.
func (s *Scheduler) KeepEdge(ceilingS int64) { s.addCeiling(ceilingS) }

// Waits reports whether a job of a target is queued whose runtime is above one
// bound and at most at the other. Both are NoDevice, Unlimited, or ceilings
// that a device has had or KeepEdge was told. It costs the same at every
// length of the queue.
func (s *Scheduler) Waits(target string, above, upTo int64) bool {
	c, ok := s.classes.Get(target)
	return ok && len(c.between(above, upTo)) > 0
}

// Waiting returns the numbers of those jobs in queue order, the first limit of
// them. The caller owns the slice.
func (s *Scheduler) Waiting(target string, above, upTo int64, limit int) []uint64 {
	c, ok := s.classes.Get(target)
	if !ok {
		return nil
	}
	var orders []Order
	for _, b := range c.between(above, upTo) {
		left := limit // of each band: which bands there are must not show
		b.jobs.Scan(func(p place) bool {
			if left == 0 {
				return false
			}
			left--
			orders = append(orders, p.order)
			return true
		})
	}
	slices.SortFunc(orders, func(a, b Order) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	numbers := make([]uint64, min(limit, len(orders)))
	for i := range numbers {
		numbers[i] = orders[i].Number
	}
	return numbers
}

// between returns the bands above one edge and up to another.
func (c *class) between(above, upTo int64) []*band {
	low, isEdge := c.find(above)
	if isEdge {
		low++
	}
	high, isEdge := c.find(upTo)
	if isEdge {
		high++
	}
	return c.bands[low:max(low, high)]
}
