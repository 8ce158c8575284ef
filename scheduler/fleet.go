package scheduler

import (
	"math/bits"
	"slices"
	"strings"

	"rcd/model"
	"rcd/model/selector"
)

// fleet holds what placement needs of every registered device, in slots that
// follow the order of device IDs, so that the lowest slot is the smallest ID.
type fleet struct {
	devices []*model.Device // by ID; rows are shared and never written
	ceiling []int64         // seconds, by slot; dense for the scan in best
	allows  []int64         // see allowedBy, by slot
	labels  []int32         // distinct effective label keys, by slot; dense likewise
	free    bitset          // slots of ready devices

	known   labels
	values  [][]*labelValue // effective labels by key, by slot
	numbers []int32         // what known calls a device, by slot
	slots   []int32         // by number; of one in use
	unused  []int32         // numbers of devices that are gone
}

func (f *fleet) slot(id string) (int, bool) {
	return slices.BinarySearchFunc(f.devices, id, func(d *model.Device, id string) int {
		return strings.Compare(d.ID, id)
	})
}

// change is what became of a device: its slot, whether it is new, what it
// allowed before, and the labels that it has another value of, or no value.
type change struct {
	slot   int
	isNew  bool
	before int64
	keys   []string // sorted
}

// concerns reports whether a selector may match the device otherwise now.
func (c *change) concerns(sel selector.Selector) bool {
	return c.isNew || slices.ContainsFunc(sel.Keys(), func(key string) bool {
		_, changed := slices.BinarySearch(c.keys, key)
		return changed
	})
}

// put stores a row.
func (f *fleet) put(d *model.Device) change {
	slot, ok := f.slot(d.ID)
	if !ok {
		f.devices = slices.Insert(f.devices, slot, d)
		f.ceiling = slices.Insert(f.ceiling, slot, 0)
		f.allows = slices.Insert(f.allows, slot, NoDevice)
		f.labels = slices.Insert(f.labels, slot, 0)
		f.free.insert(slot)
		f.number(slot)
	}
	c := change{slot: slot, isNew: !ok, before: f.allows[slot]}
	f.devices[slot] = d
	f.ceiling[slot] = d.MaxRuntimeS
	f.allows[slot] = allowedBy(d)
	f.values[slot], c.keys = f.known.replace(f.numbers[slot], f.values[slot], d)
	f.labels[slot] = int32(len(f.values[slot]))
	f.free.set(slot, d.State == model.DeviceReady)
	return c
}

func (f *fleet) setState(d *model.Device) {
	slot, ok := f.slot(d.ID)
	if !ok {
		panic("scheduler: state of a device that was never put: " + d.ID)
	}
	f.devices[slot] = d
	f.free.set(slot, d.State == model.DeviceReady)
}

func (f *fleet) remove(id string) (slot int, before int64, ok bool) {
	slot, ok = f.slot(id)
	if !ok {
		return 0, NoDevice, false
	}
	before = f.allows[slot]
	f.devices = slices.Delete(f.devices, slot, slot+1)
	f.ceiling = slices.Delete(f.ceiling, slot, slot+1)
	f.allows = slices.Delete(f.allows, slot, slot+1)
	f.labels = slices.Delete(f.labels, slot, slot+1)
	f.free.remove(slot)
	f.unnumber(slot)
	return slot, before, true
}

// most returns the longest runtime that a device of the set allows.
func (f *fleet) most(set bitset) int64 {
	most := NoDevice
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			most = max(most, f.allows[w*64+bits.TrailingZeros64(word)])
			if most == Unlimited {
				return most
			}
		}
	}
	return most
}

// best returns the slot of the free matching device that tolerates a band, by
// the fewest spare labels, then the smallest ID. A matching device has every
// key that the selector reads (but those it wants absent), so within one
// selector fewest spare labels means fewest labels.
func (f *fleet) best(matched bitset, b *band) (int, bool) {
	found := -1
	for w := range min(len(matched), len(f.free)) {
		for word := matched[w] & f.free[w]; word != 0; word &= word - 1 {
			slot := w*64 + bits.TrailingZeros64(word)
			if b.toleratedBy(f.ceiling[slot]) && (found < 0 || f.labels[slot] < f.labels[found]) {
				found = slot
			}
		}
	}
	return found, found >= 0
}

// bitset is a set of slots. Bits past its end are clear.
type bitset []uint64

func (b bitset) has(i int) bool {
	return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0
}

func (b *bitset) set(i int, on bool) {
	for i/64 >= len(*b) {
		if !on {
			return
		}
		*b = append(*b, 0)
	}
	if on {
		(*b)[i/64] |= 1 << (i % 64)
	} else {
		(*b)[i/64] &^= 1 << (i % 64)
	}
}

// keep takes out what is not in the other set.
func (b bitset) keep(other bitset) {
	for w := range b {
		if w < len(other) {
			b[w] &= other[w]
		} else {
			b[w] = 0
		}
	}
}

// join adds what is in the other set.
func (b *bitset) join(other bitset) {
	for len(*b) < len(other) {
		*b = append(*b, 0)
	}
	for w, word := range other {
		(*b)[w] |= word
	}
}

// drop takes out what is in the other set.
func (b bitset) drop(other bitset) {
	for w := range min(len(b), len(other)) {
		b[w] &^= other[w]
	}
}

// insert makes room at i: bits from i on move up by one, bit i is clear.
func (b *bitset) insert(i int) {
	if i/64 >= len(*b) {
		return
	}
	if (*b)[len(*b)-1]>>63 != 0 {
		*b = append(*b, 0)
	}
	for w := len(*b) - 1; w > i/64; w-- {
		(*b)[w] = (*b)[w]<<1 | (*b)[w-1]>>63
	}
	w, low := i/64, uint64(1)<<(i%64)-1
	(*b)[w] = (*b)[w]&low | ((*b)[w]&^low)<<1
}

// remove closes the gap at i: bits above i move down by one.
func (b *bitset) remove(i int) {
	if i/64 >= len(*b) {
		return
	}
	w, low := i/64, uint64(1)<<(i%64)-1
	(*b)[w] = (*b)[w]&low | ((*b)[w]>>1)&^low
	for ; w+1 < len(*b); w++ {
		(*b)[w] = (*b)[w]&^(1<<63) | (*b)[w+1]<<63
		(*b)[w+1] >>= 1
	}
}

// hasAny reports whether the set has one of the slots.
func (b bitset) hasAny(slots []int) bool {
	return slices.ContainsFunc(slots, b.has)
}
