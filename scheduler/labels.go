package scheduler

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"rcd/model"
	"rcd/model/selector"
)

// labels knows which devices have which value of which label. A selector that
// nobody has used yet is compared with each value that there is, which are few,
// and not with each device: a request may bring a thousand selectors, and the
// one goroutine that applies entries must not stand still for them. Devices go
// by numbers, which stay when slots move.
type labels struct {
	keys btree.Map[string, *btree.Map[string, *labelValue]] // by key and text
	live bitset                                             // numbers in use
}

// labelValue is one value of one label, and the devices that have it.
type labelValue struct {
	key, text string
	value     *selector.Value
	numbers   []int32 // ascending
	set       bitset  // the same when there are many and somebody has asked, or nil
}

// manyNumbers is from how many devices on a value keeps a set of them: the
// set is then no longer than the list where the fleet is not very large.
const manyNumbers = 64

// replace makes the labels of a device, which were old, those of d, and returns
// them by key with the keys whose value is another, sorted.
func (x *labels) replace(number int32, old []*labelValue, d *model.Device) (now []*labelValue, changed []string) {
	now = make([]*labelValue, 0, len(d.Declared)+len(d.Detected))
	dropBelow := func(key string) {
		for ; len(old) > 0 && old[0].key < key; old = old[1:] {
			x.drop(number, old[0])
			changed = append(changed, old[0].key)
		}
	}
	effective(d, func(l *model.Label) {
		dropBelow(l.Key)
		if len(old) > 0 && old[0].key == l.Key {
			was := old[0]
			old = old[1:]
			if was.text == l.Value {
				now = append(now, was)
				return
			}
			x.drop(number, was)
		}
		now = append(now, x.add(number, l))
		changed = append(changed, l.Key)
	})
	for _, v := range old {
		x.drop(number, v)
		changed = append(changed, v.key)
	}
	return now, changed
}

// effective visits the labels of a device by key; detected beats declared. Both
// lists are sorted.
func effective(d *model.Device, visit func(*model.Label)) {
	declared, detected := d.Declared, d.Detected
	for len(declared) > 0 || len(detected) > 0 {
		switch {
		case len(detected) == 0 || (len(declared) > 0 && declared[0].Key < detected[0].Key):
			visit(&declared[0])
			declared = declared[1:]
			continue
		case len(declared) > 0 && declared[0].Key == detected[0].Key:
			declared = declared[1:]
		}
		visit(&detected[0])
		detected = detected[1:]
	}
}

func (x *labels) add(number int32, l *model.Label) *labelValue {
	values, ok := x.keys.Get(l.Key)
	if !ok {
		values = new(btree.Map[string, *labelValue])
		x.keys.Set(l.Key, values)
	}
	v, ok := values.Get(l.Value)
	if !ok {
		v = &labelValue{key: l.Key, text: l.Value, value: selector.NewValue(l.Value)}
		values.Set(l.Value, v)
	}
	i, _ := slices.BinarySearch(v.numbers, number)
	v.numbers, v.set = slices.Insert(v.numbers, i, number), nil
	return v
}

// drop forgets a value with its last device, and a key with its last value.
func (x *labels) drop(number int32, v *labelValue) {
	i, _ := slices.BinarySearch(v.numbers, number)
	if v.numbers, v.set = slices.Delete(v.numbers, i, i+1), nil; len(v.numbers) > 0 {
		return
	}
	values, _ := x.keys.Get(v.key)
	if values.Delete(v.text); values.Len() == 0 {
		x.keys.Delete(v.key)
	}
}

// holding returns the numbers of the devices for which a term holds.
func (x *labels) holding(t *selector.Term) bitset {
	var holds bitset
	without := t.Holds(nil)
	if without {
		holds = slices.Clone(x.live)
	}
	values, ok := x.keys.Get(t.Key())
	if !ok {
		return holds
	}
	values.Scan(func(_ string, v *labelValue) bool {
		if with := t.Holds(v.value); with != without {
			v.mark(&holds, with)
		}
		return true
	})
	return holds
}

// mark puts the devices of a value into a set, or takes them out.
func (v *labelValue) mark(in *bitset, on bool) {
	if len(v.numbers) < manyNumbers {
		for _, number := range v.numbers {
			in.set(int(number), on)
		}
		return
	}
	if v.set == nil {
		for _, number := range v.numbers {
			v.set.set(int(number), true)
		}
	}
	if on {
		in.join(v.set)
	} else {
		in.drop(v.set)
	}
}

// matching returns the slots of the devices that match a selector, and of those
// that match it without its terms on volatile labels.
func (f *fleet) matching(sel selector.Selector) (matched, stable bitset) {
	matched, stable = slices.Clone(f.known.live), slices.Clone(f.known.live)
	terms := sel.Terms()
	for i := range terms {
		holds := f.known.holding(&terms[i])
		matched.keep(holds)
		if !terms[i].Volatile() {
			stable.keep(holds)
		}
	}
	slots := f.bySlot(matched)
	if !sel.Volatile() {
		return slots, slices.Clone(slots)
	}
	return slots, f.bySlot(stable)
}

// bySlot turns a set of numbers into one of slots.
func (f *fleet) bySlot(numbers bitset) bitset {
	slots := make(bitset, (len(f.devices)+63)/64)
	for w, word := range numbers {
		for ; word != 0; word &= word - 1 {
			slots.set(int(f.slots[w*64+bits.TrailingZeros64(word)]), true)
		}
	}
	return slots
}

// matches is matching for one device.
func (f *fleet) matches(slot int, sel selector.Selector) (matched, stable bool) {
	matched, stable = true, true
	terms := sel.Terms()
	for i := range terms {
		if t := &terms[i]; !t.Holds(f.value(slot, t.Key())) {
			matched = false
			if !t.Volatile() {
				return false, false
			}
		}
	}
	return matched, stable
}

// value returns the effective value of a label of a device, nil when it has
// none.
func (f *fleet) value(slot int, key string) *selector.Value {
	values := f.values[slot]
	i, ok := slices.BinarySearchFunc(values, key, func(v *labelValue, key string) int { return strings.Compare(v.key, key) })
	if !ok {
		return nil
	}
	return values[i].value
}

// number gives a device that takes a slot a number, one of a device that is
// gone if there is one, and tells the devices behind where they are now.
func (f *fleet) number(slot int) {
	n := int32(len(f.slots))
	if last := len(f.unused) - 1; last >= 0 {
		n, f.unused = f.unused[last], f.unused[:last]
	} else {
		f.slots = append(f.slots, 0)
	}
	f.known.live.set(int(n), true)
	f.numbers = slices.Insert(f.numbers, slot, n)
	f.values = slices.Insert(f.values, slot, nil)
	f.renumber(slot)
}

// unnumber takes the labels and the number of a device that leaves its slot.
func (f *fleet) unnumber(slot int) {
	n := f.numbers[slot]
	for _, v := range f.values[slot] {
		f.known.drop(n, v)
	}
	f.known.live.set(int(n), false)
	f.unused = append(f.unused, n)
	f.numbers = slices.Delete(f.numbers, slot, slot+1)
	f.values = slices.Delete(f.values, slot, slot+1)
	f.renumber(slot)
}

func (f *fleet) renumber(from int) {
	for slot := from; slot < len(f.numbers); slot++ {
		f.slots[f.numbers[slot]] = int32(slot)
	}
}
