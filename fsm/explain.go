package fsm

import (
	"math"

	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// maxExplained is how many devices an explanation describes.
const maxExplained = 256

// Explanation says what would become of a job, or becomes of a queued one. The
// slices are the caller's.
type Explanation struct {
	Matching   []string // devices that match now, sorted
	Free       []string // of those, the ready ones
	Tolerating []string // of those, the ones that allow the runtime
	// Devices are the matching ones, those first that the job could use, in
	// the order in which they come free: the first 256. More is how many there
	// are beyond them.
	Devices []ExplainedDevice
	More    int
	// QueueDepth is how many queued jobs could run on one that matches.
	QueueDepth int
	// Waiting: without a reason the job would start at once.
	Waiting Waiting
}

// ExplainedDevice is a device as a job would find it.
type ExplainedDevice struct {
	WaitDevice
	CeilingS  int64 // 0: none
	Tolerates bool  // it allows the runtime
}

// Explain says what would become of a job with this selector and runtime
// (seconds, 0: none asked) that came at nowMS with priority 0. The error is a
// *selector.Error.
func (v *View) Explain(text string, runtimeS, nowMS int64) (Explanation, error) {
	parsed, err := selector.Parse(text)
	if err != nil {
		return Explanation{}, err
	}
	arrives := v.uptimeMS() + max(nowMS-v.nowMS(), 0)
	c := claim{selector: parsed, runtimeS: max(runtimeS, 0), order: scheduler.Order{
		At: scheduler.KeyAt(arrives, 0, v.settings.AgingMS), Number: math.MaxUint64,
	}}
	return v.explain(&c, text, nowMS)
}

// ExplainJob is Explain for a queued job: with its own device or selector, its
// runtime and its place. ErrNotFound means that it is not queued.
func (v *View) ExplainJob(number uint64, nowMS int64) (Explanation, error) {
	j := v.jobs.get(number)
	if j == nil || j.State != model.JobQueued {
		return Explanation{}, ErrNotFound
	}
	c, err := claimOf(j)
	if err != nil {
		return Explanation{}, err
	}
	e, err := v.explain(&c, j.Selector, nowMS)
	if err == nil {
		v.date(e.Waiting.Reasons, j)
	}
	return e, err
}

func (v *View) explain(c *claim, text string, nowMS int64) (Explanation, error) {
	var e Explanation
	s := v.survey(c, nowMS)
	e.Waiting = v.waiting(c, &s, nowMS)
	all, err := v.matched(c, text, &e)
	if err != nil {
		return e, err
	}
	described := make([]candidate, 0, len(all))
	described = append(described, s.usable...)
	for _, d := range all {
		if scheduler.Tolerates(d.MaxRuntimeS, c.runtimeS) {
			e.Tolerating = append(e.Tolerating, d.ID)
		} else {
			described = append(described, candidate{d, v.freeMS(d, nowMS)})
		}
	}
	n := min(len(described), maxExplained)
	e.More = len(described) - n
	for _, d := range described[:n] {
		e.Devices = append(e.Devices, ExplainedDevice{
			WaitDevice: v.waitDevice(d, nowMS), CeilingS: d.device.MaxRuntimeS,
			Tolerates: scheduler.Tolerates(d.device.MaxRuntimeS, c.runtimeS),
		})
	}
	return e, nil
}

// matched fills in what matches now, whatever the runtime, and returns it.
func (v *View) matched(c *claim, text string, e *Explanation) ([]*model.Device, error) {
	if c.pinned == "" {
		var err error
		if e.Matching, e.Free, err = v.Matching(text); err == nil {
			e.QueueDepth, err = v.QueueDepth(text)
		}
		if err != nil {
			return nil, err
		}
	} else if d := v.devices.get(c.pinned); d != nil {
		e.Matching = []string{d.ID}
		if d.State == model.DeviceReady {
			e.Free = []string{d.ID}
		}
		e.QueueDepth = v.depthOn([]*model.Device{d})
	}
	rows := make([]*model.Device, len(e.Matching))
	for i, id := range e.Matching {
		rows[i] = v.devices.get(id)
	}
	return rows, nil
}
