package scheduler

import (
	"slices"
	"strings"

	"rcd/model"
	"rcd/model/selector"
)

// Devices answers for one set of devices what targets of queued jobs they match
// now. It reads a label when a selector first asks for it, and then each of its
// values once, however many selectors there are.
type Devices struct {
	devices []*model.Device // by ID; the number of one is its place
	known   labels
	read    map[string]bool // keys; only looked up
}

// DevicesOf returns the set of these devices, which are sorted by ID.
func DevicesOf(devices []*model.Device) *Devices {
	x := &Devices{devices: devices, read: map[string]bool{}}
	for i := range devices {
		x.known.live.set(i, true)
	}
	return x
}

// Have reports whether the device with this ID is one of them.
func (x *Devices) Have(id string) bool {
	_, ok := slices.BinarySearchFunc(x.devices, id, func(d *model.Device, id string) int { return strings.Compare(d.ID, id) })
	return ok
}

// AnyMatch reports whether one of them matches, volatile labels included.
func (x *Devices) AnyMatch(sel selector.Selector) bool {
	matched := slices.Clone(x.known.live)
	terms := sel.Terms()
	for i := range terms {
		x.learn(terms[i].Key())
		matched.keep(x.known.holding(&terms[i]))
	}
	return slices.ContainsFunc(matched, func(word uint64) bool { return word != 0 })
}

func (x *Devices) learn(key string) {
	if x.read[key] {
		return
	}
	x.read[key] = true
	for i, d := range x.devices {
		if text, ok := d.Label(key); ok {
			x.known.add(int32(i), &model.Label{Key: key, Value: text})
		}
	}
}
