package fsm

import (
	"slices"

	"rcd/model"
	"rcd/scheduler"
)

// MaxListed bounds JobFilter.Limit.
const MaxListed = 200

// JobFilter selects jobs by exact matches; empty fields match all.
type JobFilter struct {
	Limit     int // 1 to MaxListed; others are brought into that range
	Device    string
	Submitter string
	State     *model.JobState
	Hold      uint64 // only jobs inside this hold; 0: all
	Before    uint64 // only jobs with a smaller number, to list on from there; 0: all
}

// Jobs returns the matching jobs, newest first. The device of a job is the one
// it was placed on, else the one it is pinned to. The caller owns the slice.
//
// Each condition has an index by number, and what they have in common is found
// by leaps: the cost grows with the rarest condition, not with the table. Only
// a filter for queued jobs costs with the queue.
func (v *View) Jobs(f JobFilter) []*model.Job {
	limit := min(max(f.Limit, 1), MaxListed)
	at := f.Before - 1 // of 0 the largest there is
	lists := v.lists(&f)
	var rows []*model.Job
	for len(rows) < limit {
		number, ok := common(lists, at)
		if !ok {
			break
		}
		rows = append(rows, v.jobs.get(number))
		at = number - 1
	}
	return rows
}

// list finds the largest of its job numbers that is at most a bound.
type list func(atMost uint64) (uint64, bool)

// common returns the largest number at or below at that all lists hold.
func common(lists []list, at uint64) (uint64, bool) {
	for {
		top := at
		for _, next := range lists {
			number, ok := next(at)
			if !ok {
				return 0, false
			}
			at = number
		}
		if at == top {
			return at, true
		}
	}
}

// lists returns one list for each condition of a filter, or that of all jobs.
func (v *View) lists(f *JobFilter) []list {
	var lists []list
	if f.State != nil {
		lists = append(lists, v.inState(*f.State))
	}
	if f.Device != "" {
		lists = append(lists, named(&v.byDevice, f.Device))
	}
	if f.Submitter != "" {
		lists = append(lists, named(&v.bySubmitter, f.Submitter))
	}
	if f.Hold != 0 {
		lists = append(lists, v.inside(f.Hold))
	}
	if lists == nil {
		lists = append(lists, v.allJobs)
	}
	return lists
}

func (v *View) allJobs(atMost uint64) (number uint64, ok bool) {
	v.jobs.tree.Descend(atMost, func(n uint64, _ *cell[model.Job]) bool {
		number, ok = n, true
		return false
	})
	return number, ok
}

func named(x *index[namedKey], name string) list {
	return func(atMost uint64) (number uint64, ok bool) {
		x.tree.Descend(namedKey{name, atMost}, func(k namedKey) bool {
			number, ok = k.number, k.name == name
			return false
		})
		return number, ok
	}
}

func (v *View) inside(hold uint64) list {
	return func(atMost uint64) (number uint64, ok bool) {
		v.byHold.tree.Descend(holdKey{hold, atMost}, func(k holdKey) bool {
			number, ok = k.number, k.hold == hold
			return false
		})
		return number, ok
	}
}

func (v *View) inState(state model.JobState) list {
	switch {
	case state == model.JobQueued:
		return v.queuedNumbers()
	case state.Active():
		return v.activeIn(state)
	}
	return func(atMost uint64) (number uint64, ok bool) {
		v.byEnd.tree.Descend(endKey{state, atMost}, func(k endKey) bool {
			number, ok = k.number, k.state == state
			return false
		})
		return number, ok
	}
}

// queuedNumbers is the queue by number.
func (v *View) queuedNumbers() list {
	numbers := make([]uint64, 0, v.queue.len())
	v.queue.tree.Scan(func(o scheduler.Order) bool {
		numbers = append(numbers, o.Number)
		return true
	})
	slices.Sort(numbers)
	return func(atMost uint64) (uint64, bool) {
		i, found := slices.BinarySearch(numbers, atMost)
		switch {
		case found:
			return atMost, true
		case i == 0:
			return 0, false
		}
		return numbers[i-1], true
	}
}

// activeIn is those of the active jobs that are assigned, or running. There
// are never more of them than devices and what runs inside holds on them.
func (v *View) activeIn(state model.JobState) list {
	return func(atMost uint64) (number uint64, ok bool) {
		v.active.tree.Descend(atMost, func(n uint64) bool {
			number, ok = n, v.jobs.get(n).State == state
			return !ok
		})
		return number, ok
	}
}

// endKey orders ended jobs by state, then by number.
type endKey struct {
	state  model.JobState
	number uint64
}

func (k endKey) less(l endKey) bool {
	if k.state != l.state {
		return k.state < l.state
	}
	return k.number < l.number
}

// ActiveJobOn returns the job that holds a device, the newest if several work
// under its lease, or nil when nobody holds it.
func (v *View) ActiveJobOn(device string) *model.Job {
	d := v.devices.get(device)
	if d == nil || d.Lease == 0 {
		return nil
	}
	return v.jobs.get(slices.Max(v.leases.get(d.Lease).Jobs))
}
