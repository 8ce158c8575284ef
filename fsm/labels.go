package fsm

import (
	"slices"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
)

// labelsReplace makes the labels of one source exactly what the host says now.
// A key that it no longer tells is gone: a stale fact is worse than a missing
// one. The other source's labels stay, with their age.
func (t *txn) labelsReplace(b *command.LabelsReplace) answer {
	if a := t.reporter(b.Host, b.Instance); a.Code != command.OK {
		return a
	}
	if b.Source > model.Detected {
		return refuse(command.BadRequest, "This source of labels is not known; use declared or detected.")
	}
	names := make([]string, 0, len(b.Sets))
	for i := range b.Sets {
		set := &b.Sets[i]
		if t.deviceOf(b.Host, set.Name) == nil {
			return refuse(command.DeviceNotFound, "The host %q has not registered a device %q; register it first.", b.Host, short(set.Name))
		}
		if a := t.checkLabels(set.Name, set.Labels); a.Code != command.OK {
			return a
		}
		names = append(names, set.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(b.Sets) {
		return refuse(command.BadRequest, "A device is named twice; send one set for each.")
	}
	t.hear(b.Host)
	for i := range b.Sets {
		row := *t.mustDevice(model.DeviceID(b.Host, b.Sets[i].Name))
		if b.Source == model.Detected {
			row.Detected = t.labels(b.Sets[i].Labels)
		} else {
			row.Declared = t.labels(b.Sets[i].Labels)
		}
		t.putDevice(row)
	}
	return answer{}
}

// deviceOf returns a host's own device by its name there, or nil. A name with a
// colon could otherwise reach into a host whose name begins alike.
func (t *txn) deviceOf(host, name string) *model.Device {
	if d := t.devices.get(model.DeviceID(host, name)); d != nil && d.Host == host {
		return d
	}
	return nil
}

// checkLabels refuses a set of labels of one source.
func (t *txn) checkLabels(device string, labels []command.KV) answer {
	if int64(len(labels)) > t.settings.MaxLabels {
		return refuse(command.LimitExceeded, "A device has at most %d labels of one source; %q has %d.", t.settings.MaxLabels, device, len(labels))
	}
	keys := make([]string, 0, len(labels))
	for _, l := range labels {
		keys = append(keys, l.Key)
		if len(l.Key) > maxLabel || len(l.Value) > maxLabel {
			return refuse(command.LimitExceeded, "A label of %q is longer than %d bytes; shorten it.", device, maxLabel)
		}
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) != len(labels) || slices.Contains(keys, "") {
		return refuse(command.BadRequest, "Two labels of %q have one key, or a key is empty.", device)
	}
	return answer{}
}

// maxLabel bounds a key and a value, in bytes.
const maxLabel = 1024

// labels returns the rows of a set, sorted.
func (t *txn) labels(set []command.KV) []model.Label {
	if len(set) == 0 {
		return nil
	}
	labels := make([]model.Label, len(set))
	for i, kv := range set {
		labels[i] = model.Label{Key: kv.Key, Value: kv.Value, UpdatedAtMS: t.nowMS()}
	}
	slices.SortFunc(labels, func(a, b model.Label) int { return strings.Compare(a.Key, b.Key) })
	return labels
}
