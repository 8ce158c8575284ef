package api

import (
	"cmp"
	"slices"
	"time"

	"rcd/model"
	"rcd/wire"
)

// lastHeard returns when a host was last heard, in the cluster's time: as the
// leader or this node heard it, or as its row says, whichever is later.
func (v *view) lastHeard(host string) time.Time {
	last := time.UnixMilli(0)
	if agent := v.Agent(host); agent != nil {
		last = time.UnixMilli(agent.LastHeardMS)
	}
	if ago, ok := v.info.Heard[host]; ok && v.now.Add(-ago).After(last) {
		last = v.now.Add(-ago)
	}
	return last
}

// seconds is how long ago t was, in whole seconds.
func (v *view) seconds(t time.Time) int64 { return int64(v.now.Sub(t) / time.Second) }

func (v *view) secondsSinceMS(ms int64) int64 { return v.seconds(time.UnixMilli(ms)) }

// wireLabels are the labels of both sources, by key, then source.
func wireLabels(d *model.Device) []wire.Label {
	labels := make([]wire.Label, 0, len(d.Declared)+len(d.Detected))
	add := func(from []model.Label, source model.Source) {
		for _, l := range from {
			labels = append(labels, wire.Label{Key: l.Key, Value: l.Value, Source: source.String(), UpdatedAt: wireTime(l.UpdatedAtMS)})
		}
	}
	add(d.Declared, model.Declared)
	add(d.Detected, model.Detected)
	slices.SortFunc(labels, func(a, b wire.Label) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Source, b.Source))
	})
	return labels
}

// quarantineReason is what a person reads: the detail when there is one, else
// the category.
func quarantineReason(d *model.Device) string {
	if d.State != model.DeviceUnhealthy {
		return ""
	}
	return cmp.Or(d.Detail, d.Reason.String())
}

// deviceFacts are a device and what a view of it shows beside: rows, which never
// change, and times.
type deviceFacts struct {
	device  *model.Device
	lease   *model.Lease // nil: free
	holder  uint64       // the job that holds it; while others work inside a hold, the hold
	command []string     // of that job
	heard   time.Time
	now     time.Time
}

func (v *view) factsOf(d *model.Device) deviceFacts {
	f := deviceFacts{device: d, heard: v.lastHeard(d.Host), now: v.now}
	if d.Lease != 0 {
		f.lease = v.Lease(d.Lease)
	}
	if f.lease != nil && len(f.lease.Jobs) > 0 {
		f.holder, f.command = v.holderOf(f.lease)
	}
	return f
}

// holderOf returns the job that a lease was given to, and its command. A hold
// may have ended while what ran inside it is still being ended: the device is
// the hold's until then.
func (v *view) holderOf(lease *model.Lease) (uint64, []string) {
	job := v.Job(lease.Jobs[0])
	if job != nil && job.Hold != 0 {
		if hold := v.Job(job.Hold); hold != nil {
			job = hold
		}
	}
	if job == nil {
		return lease.Jobs[0], nil
	}
	return job.Number, job.Command
}

// bytes is about what the facts keep from being freed.
func (f *deviceFacts) bytes() int {
	if f == nil {
		return 0
	}
	n := 256
	for _, labels := range [][]model.Label{f.device.Declared, f.device.Detected} {
		for _, l := range labels {
			n += 48 + len(l.Key) + len(l.Value)
		}
	}
	for _, word := range f.command {
		n += 16 + len(word)
	}
	return n
}

func (v *view) deviceView(d *model.Device) wire.DeviceView {
	facts := v.factsOf(d)
	return facts.view()
}

// view is the device as the API shows it.
func (f *deviceFacts) view() wire.DeviceView {
	d := f.device
	since := func(t time.Time) int64 { return int64(f.now.Sub(t) / time.Second) }
	out := wire.DeviceView{
		Device: wire.Device{
			ID:              d.ID,
			Host:            d.Host,
			Name:            d.Name,
			WorkerID:        workerID(d.Host),
			State:           d.State.String(),
			LastHeartbeatAt: f.heard.UTC().Truncate(time.Second),
			Labels:          wireLabels(d),
		},
		HeartbeatAgeSeconds: since(f.heard),
		QuarantineReason:    quarantineReason(d),
		NotDeclared:         d.Absent,
	}
	if d.State == model.DeviceUnhealthy {
		out.QuarantineCategory = d.Reason.String()
	}
	if oldest, ok := oldestLabelMS(d); ok {
		age := since(time.UnixMilli(oldest))
		out.OldestLabelAgeSeconds = &age
	}
	if f.lease == nil {
		return out
	}
	out.Holder, out.Kind, out.Reason = f.lease.Holder, f.lease.Kind.String(), f.lease.Note
	out.ElapsedSeconds = since(time.UnixMilli(f.lease.AcquiredAtMS))
	if f.holder != 0 {
		out.JobID = model.JobID(f.holder)
	}
	out.Command = f.command
	return out
}

func oldestLabelMS(d *model.Device) (int64, bool) {
	oldest, found := int64(0), false
	for _, labels := range [][]model.Label{d.Declared, d.Detected} {
		for _, l := range labels {
			if !found || l.UpdatedAtMS < oldest {
				oldest, found = l.UpdatedAtMS, true
			}
		}
	}
	return oldest, found
}

func (v *view) deviceViews() []wire.DeviceView {
	out := []wire.DeviceView{}
	for _, d := range v.Devices() {
		out = append(out, v.deviceView(d))
	}
	return out
}
