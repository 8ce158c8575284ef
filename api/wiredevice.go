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

func (v *view) wireDevice(d *model.Device) wire.Device {
	return wire.Device{
		ID:              d.ID,
		Host:            d.Host,
		Name:            d.Name,
		WorkerID:        workerID(d.Host),
		State:           d.State.String(),
		LastHeartbeatAt: v.lastHeard(d.Host).UTC().Truncate(time.Second),
		Labels:          wireLabels(d),
	}
}

// quarantineReason is what a person reads: the detail when there is one, else
// the category.
func quarantineReason(d *model.Device) string {
	if d.State != model.DeviceUnhealthy {
		return ""
	}
	return cmp.Or(d.Detail, d.Reason.String())
}

func (v *view) deviceView(d *model.Device) wire.DeviceView {
	out := wire.DeviceView{
		Device:              v.wireDevice(d),
		HeartbeatAgeSeconds: v.seconds(v.lastHeard(d.Host)),
		QuarantineReason:    quarantineReason(d),
		NotDeclared:         d.Absent,
	}
	if d.State == model.DeviceUnhealthy {
		out.QuarantineCategory = d.Reason.String()
	}
	if oldest, ok := oldestLabelMS(d); ok {
		age := v.secondsSinceMS(oldest)
		out.OldestLabelAgeSeconds = &age
	}
	lease := v.Lease(d.Lease)
	if d.Lease == 0 || lease == nil {
		return out
	}
	out.Holder, out.Kind, out.Reason = lease.Holder, lease.Kind.String(), lease.Note
	out.ElapsedSeconds = v.secondsSinceMS(lease.AcquiredAtMS)
	if len(lease.Jobs) > 0 {
		out.JobID = model.JobID(lease.Jobs[0])
		if job := v.Job(lease.Jobs[0]); job != nil {
			out.Command = job.Command
		}
	}
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
