package fsm

import (
	"iter"
	"math"

	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// firstOrder comes before every place in the queue.
var firstOrder = scheduler.Order{At: math.MinInt64}

// Queued yields the queued jobs in scheduling order.
func (v *View) Queued() iter.Seq[*model.Job] {
	return func(yield func(*model.Job) bool) {
		v.queue.tree.Scan(func(o scheduler.Order) bool { return yield(v.jobs.get(o.Number)) })
	}
}

// Active returns the assigned and running jobs, newest first. The caller owns
// the slice.
func (v *View) Active() []*model.Job {
	rows := make([]*model.Job, 0, v.active.len())
	v.active.tree.Reverse(func(number uint64) bool {
		rows = append(rows, v.jobs.get(number))
		return true
	})
	return rows
}

// QueuePosition returns the 1-based place of a job, 0 when it is not queued. A
// pinned job counts those ahead that are pinned to its device, a selector job
// everything ahead in the fleet. It costs the same at every queue length.
func (v *View) QueuePosition(number uint64) int {
	j := v.jobs.get(number)
	if j == nil {
		return 0
	}
	return v.position(j)
}

// QueueDepth returns how many queued jobs could run on a device that matches
// the selector now: pinned to one, or with a selector that matches one. The
// error is a *selector.Error.
func (v *View) QueueDepth(text string) (int, error) {
	all, _, err := v.Matching(text)
	if err != nil {
		return 0, err
	}
	devices := make([]*model.Device, len(all))
	for i, id := range all {
		devices[i] = v.devices.get(id)
	}
	return v.depthOn(devices), nil
}

// depthOn counts the queued jobs that could run on one of the devices now, which
// are sorted by ID.
func (v *View) depthOn(devices []*model.Device) int {
	depth, of := 0, scheduler.DevicesOf(devices)
	v.targets.tree.Scan(func(target string, jobs int) bool {
		if overlaps(target, of) {
			depth += jobs
		}
		return true
	})
	return depth
}

func overlaps(target string, devices *scheduler.Devices) bool {
	name := target[len(selectorTarget):]
	if target[:len(deviceTarget)] == deviceTarget {
		return devices.Have(name)
	}
	parsed, err := selector.Parse(name)
	return err == nil && devices.AnyMatch(parsed)
}
