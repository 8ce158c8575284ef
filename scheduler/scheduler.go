package scheduler

import (
	"fmt"

	"github.com/tidwall/btree"

	"rcd/model"
	"rcd/model/selector"
)

// Order is a job's place in the queue: smaller is first. Number breaks ties,
// so no two jobs have the same place.
type Order struct {
	At     int64
	Number uint64
}

// Less reports whether o comes before p.
func (o Order) Less(p Order) bool {
	if o.At != p.At {
		return o.At < p.At
	}
	return o.Number < p.Number
}

// OrderOf returns the place of a queued job.
func OrderOf(j *model.Job) Order { return Order{At: j.QueueAtMS, Number: j.Number} }

// KeyAt returns the first part of the queue key of a job with this priority
// that was queued at this uptime. With aging, a level of priority is a head
// start of agingMS; with aging 0 it is strict.
func KeyAt(queuedUptimeMS int64, priority int8, agingMS int64) int64 {
	if agingMS == 0 {
		return -int64(priority)
	}
	return queuedUptimeMS - int64(priority)*agingMS
}

// Runtime returns the seconds of wall clock that a device must tolerate to run
// the job; 0 when the submitter asked for none and the device's ceiling will
// be inherited.
func Runtime(j *model.Job) int64 {
	if !j.CeilingAsked {
		return 0
	}
	return j.MaxRuntimeS
}

// Tolerates reports whether a device with this ceiling (0: none) may run a job
// that needs this runtime, both in seconds.
func Tolerates(ceilingS, runtimeS int64) bool {
	return ceilingS == 0 || runtimeS <= ceilingS
}

// Scheduler holds the queue and the free devices, grouped. It is not safe for
// concurrent use. The zero value is not usable; see New.
type Scheduler struct {
	fleet   fleet
	classes btree.Map[string, *class] // by class key
	queued  int
	ceiling []int64 // distinct ceilings seen, ascending; the edges of bands

	idle      []*class        // selector classes without jobs, oldest first, kept for the next arrival
	dirty     []*class        // classes with a job that arrived since the last pass
	freed     map[string]bool // devices that became or stayed ready and changed since; only looked up
	freedList []string
	touched   []string // keys of classes for TakeTouched, maybe twice
	moved     bool     // see Moved
}

// New returns an empty scheduler.
func New() *Scheduler {
	return &Scheduler{freed: map[string]bool{}}
}

// Queued returns the number of queued jobs.
func (s *Scheduler) Queued() int { return s.queued }

// Pinned and selector classes have keys in separate ranges. A key is what fsm
// calls the target of a job.
const (
	pinnedPrefix   = "d "
	selectorPrefix = "s "
)

// Add queues a job. Its selector must parse: fsm has refused those that do
// not. Adding a job twice breaks an invariant and panics.
func (s *Scheduler) Add(j *model.Job) {
	c := s.classFor(j)
	if !c.add(OrderOf(j), s.bandEdge(Runtime(j)), Runtime(j)) {
		panic(fmt.Sprintf("scheduler: job %d is queued twice", j.Number))
	}
	s.queued++
	if !c.dirty {
		c.dirty = true
		s.dirty = append(s.dirty, c)
	}
}

// Remove takes a job out of the queue; j must be the row it was added with. It
// panics when the job is not queued.
func (s *Scheduler) Remove(j *model.Job) {
	key := classKey(j)
	c, ok := s.classes.Get(key)
	if !ok || !c.remove(OrderOf(j), s.bandEdge(Runtime(j))) {
		panic(fmt.Sprintf("scheduler: job %d is not queued", j.Number))
	}
	s.queued--
	if c.jobs == 0 {
		s.retireClass(c)
	}
}

// PutDevice tells the scheduler about a new device or about anything that
// changed in one. Only a ready device is free.
func (s *Scheduler) PutDevice(d *model.Device) {
	s.addCeiling(d.MaxRuntimeS)
	what := s.fleet.put(d)
	slot, before, after := what.slot, what.before, s.fleet.allows[what.slot]
	s.classes.Ascend(selectorPrefix, func(_ string, c *class) bool {
		if what.isNew {
			c.matched.insert(slot)
			c.stable.insert(slot)
		}
		was := c.stable.has(slot)
		is := was
		if what.concerns(c.selector) {
			var matches bool
			matches, is = s.fleet.matches(slot, c.selector)
			c.matched.set(slot, matches)
			c.stable.set(slot, is)
		}
		if was != is || (is && before != after) {
			s.reconsider(c, was, before, is, after)
		}
		return true
	})
	if before != after {
		s.touchPinned(d.ID)
	}
	s.noteFree(d)
}

// SetDeviceState is PutDevice for a device whose labels and ceiling did not
// change since, nor whether its host declares it.
func (s *Scheduler) SetDeviceState(d *model.Device) {
	s.fleet.setState(d)
	s.noteFree(d)
}

func (s *Scheduler) noteFree(d *model.Device) {
	if d.State != model.DeviceReady || s.freed[d.ID] {
		return
	}
	s.freed[d.ID] = true
	s.freedList = append(s.freedList, d.ID)
}

// Recheck makes the next pass look at every job and every free device.
func (s *Scheduler) Recheck() {
	s.classes.Scan(func(_ string, c *class) bool {
		if c.jobs > 0 && !c.dirty {
			c.dirty = true
			s.dirty = append(s.dirty, c)
		}
		return true
	})
	for _, d := range s.fleet.devices {
		s.noteFree(d)
	}
}

// Placeable reports whether a device that is free now could take a job, whose
// target Serves has been asked about just before.
func (s *Scheduler) Placeable(j *model.Job) bool {
	b := &band{edge: s.bandEdge(Runtime(j))}
	if j.Pinned != "" {
		_, ok := s.best(&class{pinned: j.Pinned}, b)
		return ok
	}
	c, ok := s.classes.Get(classKey(j))
	if ok {
		_, ok = s.best(c, b)
	}
	return ok
}

// Free reports whether a device is registered and ready.
func (s *Scheduler) Free(id string) bool {
	slot, ok := s.fleet.slot(id)
	return ok && s.fleet.free.has(slot)
}

// RemoveDevice forgets a device. Jobs pinned to it stay queued.
func (s *Scheduler) RemoveDevice(id string) {
	slot, before, ok := s.fleet.remove(id)
	if !ok {
		return
	}
	s.classes.Ascend(selectorPrefix, func(_ string, c *class) bool {
		if c.stable.has(slot) {
			s.reconsider(c, true, before, false, NoDevice)
		}
		c.matched.remove(slot)
		c.stable.remove(slot)
		return true
	})
	s.touchPinned(id)
}

// classFor returns the class of a job, made when there is none yet.
func (s *Scheduler) classFor(j *model.Job) *class {
	key := classKey(j)
	if c, ok := s.classes.Get(key); ok {
		if c.jobs == 0 {
			s.unidle(c)
		}
		return c
	}
	if j.Pinned == "" {
		return s.newClass(key, mustParse(j.Selector))
	}
	c := &class{key: key, pinned: j.Pinned}
	s.classes.Set(key, c)
	return c
}

func (s *Scheduler) newClass(key string, sel selector.Selector) *class {
	c := &class{key: key, selector: sel}
	c.matched, c.stable = s.fleet.matching(sel)
	c.allows = s.fleet.most(c.stable)
	s.classes.Set(key, c)
	return c
}

// classKey groups by the text as written. Two spellings of one selector make
// two classes, which costs a little and decides nothing.
func classKey(j *model.Job) string {
	if j.Pinned != "" {
		return pinnedPrefix + j.Pinned
	}
	return selectorPrefix + j.Selector
}

func mustParse(text string) selector.Selector {
	parsed, err := selector.Parse(text)
	if err != nil {
		panic(fmt.Sprintf("scheduler: a queued selector does not parse: %v", err))
	}
	return parsed
}

// maxIdleClasses bounds the selector classes kept without a queued job, so
// that the next job with a common selector need not look at every device.
const maxIdleClasses = 64

func (s *Scheduler) retireClass(c *class) {
	if c.pinned != "" {
		s.classes.Delete(c.key)
		return
	}
	s.idle = append(s.idle, c)
	if len(s.idle) > maxIdleClasses {
		s.classes.Delete(s.idle[0].key)
		s.idle = append(s.idle[:0], s.idle[1:]...)
	}
}

func (s *Scheduler) unidle(c *class) {
	for i, other := range s.idle {
		if other == c {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return
		}
	}
}
