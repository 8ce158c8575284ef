package scheduler

import "fmt"

// candidate is a band whose head may be placeable in this pass.
type candidate struct {
	class *class
	edge  int64
	head  Order
}

// Place makes one pass over what changed since the last one. For every
// placement it calls place, which must take the job out of the queue (Remove)
// and make the device not ready (SetDeviceState) before it returns; anything
// else breaks an invariant and panics. Afterwards no free device matches a
// queued job that it tolerates.
func (s *Scheduler) Place(place func(job uint64, device string)) {
	heap := s.candidates()
	for len(heap) > 0 {
		c := heap[0]
		i, ok := c.class.find(c.edge)
		if !ok {
			heap = pop(heap)
			continue
		}
		slot, ok := s.best(c.class, c.class.bands[i])
		if !ok {
			heap = pop(heap) // free devices only get fewer in a pass
			continue
		}
		device := s.fleet.devices[slot].ID
		before := s.queued
		place(c.head.Number, device)
		if s.queued != before-1 || s.fleet.free.has(slot) {
			panic(fmt.Sprintf("scheduler: placement of job %d on %s was not carried out", c.head.Number, device))
		}
		if i, ok = c.class.find(c.edge); !ok {
			heap = pop(heap)
			continue
		}
		heap[0].head = c.class.bands[i].head()
		sink(heap, 0)
	}
	s.settle()
}

// Pending reports whether something changed since the last pass.
func (s *Scheduler) Pending() bool { return len(s.dirty) > 0 || len(s.freedList) > 0 }

// settle forgets what changed.
func (s *Scheduler) settle() {
	for _, c := range s.dirty {
		c.dirty = false
	}
	s.dirty = s.dirty[:0]
	clear(s.freed)
	s.freedList = s.freedList[:0]
}

func (s *Scheduler) best(c *class, b *band) (int, bool) {
	if c.pinned == "" {
		return s.fleet.best(c.matched, b)
	}
	slot, ok := s.fleet.slot(c.pinned)
	if !ok || !s.fleet.free.has(slot) || !b.toleratedBy(s.fleet.ceiling[slot]) {
		return 0, false
	}
	return slot, true
}

// candidates returns, as a heap, the bands that may have become placeable:
// those of classes with a new job, and those that match a device that became
// free or changed. Before the entry no free device matched any queued job, so
// nothing else can.
func (s *Scheduler) candidates() []candidate {
	var heap []candidate
	for _, c := range s.dirty {
		heap = appendBands(heap, c)
	}
	var freed []int
	for _, id := range s.freedList {
		slot, ok := s.fleet.slot(id)
		if !ok || !s.fleet.free.has(slot) {
			continue
		}
		freed = append(freed, slot)
		if c, ok := s.classes.Get(pinnedPrefix + id); ok && !c.dirty {
			heap = appendBands(heap, c)
		}
	}
	if len(freed) > 0 {
		s.classes.Ascend(selectorPrefix, func(_ string, c *class) bool {
			if c.jobs > 0 && !c.dirty && c.matched.hasAny(freed) {
				heap = appendBands(heap, c)
			}
			return true
		})
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sink(heap, i)
	}
	return heap
}

func appendBands(heap []candidate, c *class) []candidate {
	for _, b := range c.bands {
		heap = append(heap, candidate{class: c, edge: b.edge, head: b.head()})
	}
	return heap
}

func sink(heap []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child+1].head.Less(heap[child].head) {
			child++
		}
		if !heap[child].head.Less(heap[i].head) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

func pop(heap []candidate) []candidate {
	last := len(heap) - 1
	heap[0] = heap[last]
	heap = heap[:last]
	sink(heap, 0)
	return heap
}
