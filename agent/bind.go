package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"rcd/agent/probe"
)

// binding is which GPU a device is. Once it is known it stays: the driver's
// numbers may be others after each boot.
type binding struct {
	UUID   string `cbor:"1,keyasint"`           // of the GPU, or of the instance
	PCI    string `cbor:"2,keyasint,omitempty"` // where it was last
	Parent string `cbor:"3,keyasint,omitempty"` // UUID of the GPU that it is an instance of
	Asked  string `cbor:"4,keyasint,omitempty"` // Device.Bind at that time
	Auto   bool   `cbor:"5,keyasint,omitempty"` // declared because it was there
}

// sight is what one look at the GPUs says of the devices. A device that is in
// none of the maps is no GPU, as far as is known.
type sight struct {
	bindings map[string]binding // all that are to be kept
	found    map[string]unit    // its GPU answers
	silent   map[string]unit    // its GPU does not answer now; err says why
	gone     map[string]string  // why it must not be given away while that is so
	swapped  map[string]string  // it is another GPU than before: a person must know
	notices  []string
}

// unit is what a device can be: a whole GPU, or an instance of a split one.
type unit struct {
	uuid, pci, parent string
	index, part       int // part: number of the instance on its GPU; whole: it is none
	place             int // of the GPU among all, in the order of their addresses
	facts             probe.Facts
	err               error
}

const whole = -1

// binder makes a sight.
type binder struct {
	sight
	known   map[string]binding
	units   []unit
	split   map[string]bool   // GPUs that are usable only as instances, by UUID
	taken   map[string]string // device by UUID
	claimed map[string]string // device by the UUID that is on record, of those declared
	blind   error             // some GPU has not said who it is
}

// bind says which GPU each device is, and what has become of it. known is what
// was kept of the last look. Simulated devices are none. With auto every GPU
// that is left is a device as well.
func bind(devices []Device, auto bool, known map[string]binding, seen []probe.GPU) sight {
	b := newBinder(known, seen)
	declared := declare(devices, auto, known)
	for _, d := range declared {
		if r, ok := known[d.Name]; ok && r.Asked == d.Bind {
			b.claimed[r.UUID] = d.Name
		}
	}
	slices.SortStableFunc(declared, func(x, y Device) int { return cmp.Compare(b.rank(x), b.rank(y)) })
	for _, d := range declared {
		if d.Simulated {
			continue
		}
		r, ok := known[d.Name]
		if !ok || r.Asked != d.Bind {
			r, ok = b.first(d)
		}
		if ok {
			b.judge(d, r)
		}
	}
	if auto {
		b.rest(declared)
	}
	b.keep(declared)
	return b.sight
}

// declare returns the devices of a host, as far as they are known before a look:
// those of the configuration first, in its order.
func declare(devices []Device, auto bool, known map[string]binding) []Device {
	out := slices.Clone(devices)
	if !auto {
		return out
	}
	var more []string
	for name, r := range known {
		listed := slices.ContainsFunc(devices, func(d Device) bool { return d.Name == name || d.Bind != "" && d.Bind == r.UUID })
		if r.Auto && !listed {
			more = append(more, name)
		}
	}
	slices.SortFunc(more, byNumber)
	for _, name := range more {
		out = append(out, Device{Name: name})
	}
	return out
}

func newBinder(known map[string]binding, seen []probe.GPU) *binder {
	b := &binder{known: known, split: map[string]bool{}, taken: map[string]string{}, claimed: map[string]string{}}
	b.sight = sight{bindings: map[string]binding{}, found: map[string]unit{}, silent: map[string]unit{}, gone: map[string]string{}, swapped: map[string]string{}}
	for place, g := range seen {
		if g.UUID == "" {
			b.blind = g.Err
		}
		if !g.MIG {
			b.units = append(b.units, unit{uuid: g.UUID, pci: g.PCI, index: g.Index, part: whole, place: place, facts: g.Facts, err: g.Err})
			continue
		}
		b.split[g.UUID] = true
		for i, part := range g.Instances {
			b.units = append(b.units, unit{uuid: part.UUID, pci: g.PCI, parent: g.UUID, index: g.Index, part: i, place: place, facts: part.Facts, err: g.Err})
		}
	}
	return b
}

// rank says which devices choose first: those that say what they are, those
// that are known, those whose name says it.
func (b *binder) rank(d Device) int {
	_, isPCI := probe.CanonicalPCI(d.Bind)
	r, known := b.known[d.Name]
	_, _, named := gpuNumber(d.Name)
	switch {
	case d.Bind != "" && !isPCI:
		return 0
	case isPCI:
		return 1
	case known && r.Asked == d.Bind:
		return 2
	case named:
		return 3
	}
	return 4
}

// find returns a unit that is so.
func (b *binder) find(is func(unit) bool) (unit, bool) {
	i := slices.IndexFunc(b.units, is)
	if i < 0 {
		return unit{}, false
	}
	return b.units[i], true
}

// first says which GPU a device is that was none so far.
func (b *binder) first(d Device) (binding, bool) {
	if slot, ok := probe.CanonicalPCI(d.Bind); ok {
		u, ok := b.find(func(u unit) bool { return u.part == whole && u.uuid != "" && u.pci == slot })
		switch {
		case ok:
			return binding{UUID: u.uuid, PCI: u.pci, Asked: d.Bind}, true
		case b.blind != nil:
			b.silent[d.Name] = unit{err: b.blind}
		default:
			b.gone[d.Name] = fmt.Sprintf("there is no whole GPU at PCI address %s, where the configuration has %s; correct pci: there and restart the agent, or look at the card", slot, d.Name)
		}
		return binding{}, false
	}
	if d.Bind != "" {
		return binding{UUID: d.Bind, Asked: d.Bind}, true
	}
	number, part, named := gpuNumber(d.Name)
	if !named {
		var ok bool
		if number, ok = trailingInteger(d.Name); !ok {
			return binding{}, false
		}
	}
	u, ok := b.find(func(u unit) bool { return u.index == number && u.part == part })
	isSplit := slices.ContainsFunc(b.units, func(u unit) bool { return u.index == number && u.part != whole })
	switch {
	case ok && u.uuid != "" && b.taken[u.uuid] == "" && b.claimed[u.uuid] == "":
		return binding{UUID: u.uuid, PCI: u.pci, Parent: u.parent}, true
	case named && part == whole && isSplit:
		b.gone[d.Name] = fmt.Sprintf("MIG is on for GPU %d, so %s is no device: list its instances (gpu%d-mig0 and on), or write devices: auto", number, d.Name, number)
	case named && ok && u.uuid != "":
		b.gone[d.Name] = fmt.Sprintf("GPU %d is %s, which is device %s already, so a job on %s would be beside one on that; say uuid: or pci: for %s, or take it out of the configuration, and restart the agent",
			number, u.uuid, cmp.Or(b.taken[u.uuid], b.claimed[u.uuid]), d.Name, d.Name)
	case named && b.blind == nil:
		b.notices = append(b.notices, fmt.Sprintf("%s is no GPU of this host: none that is free has that number; correct the configuration, or say uuid: or pci: there", d.Name))
	}
	return binding{}, false
}

// judge says what has become of the GPU that a device is.
func (b *binder) judge(d Device, r binding) {
	other := b.taken[r.UUID]
	switch {
	case other != "" && r.Auto:
		return // the configuration has given it a name
	case other != "":
		b.bindings[d.Name] = r
		b.gone[d.Name] = fmt.Sprintf("%s is device %s already; correct the configuration", r.UUID, other)
		return
	}
	slot, asked := probe.CanonicalPCI(r.Asked)
	u, ok := b.find(func(u unit) bool { return u.uuid == r.UUID && (!asked || u.pci == slot) })
	if !ok {
		b.missing(d, r)
		return
	}
	r.PCI, r.Parent = cmp.Or(u.pci, r.PCI), u.parent
	b.bindings[d.Name], b.taken[r.UUID] = r, d.Name
	switch {
	case u.err == nil:
		b.found[d.Name] = u
	case errors.Is(u.err, probe.ErrLost):
		b.lost(d, r, u)
	default:
		b.silent[d.Name] = u
	}
}

// missing judges a device whose GPU is not where it should be.
func (b *binder) missing(d Device, r binding) {
	slot, asked := probe.CanonicalPCI(r.Asked)
	if !asked {
		slot = r.PCI
	}
	at, occupied := b.find(func(u unit) bool { return u.part == whole && u.pci != "" && u.pci == slot })
	byUUID := r.Asked != "" && !asked
	free := at.uuid != "" && b.taken[at.uuid] == "" && b.claimed[at.uuid] == ""
	if occupied && free && at.err == nil && r.Parent == "" && !byUUID {
		b.swapped[d.Name] = fmt.Sprintf("%s is another GPU than before: %s at PCI address %s, where %s was; look whether it is the one that is meant, then return the device", d.Name, at.uuid, slot, r.UUID)
		r.UUID, r.PCI = at.uuid, at.pci
		b.bindings[d.Name], b.taken[r.UUID], b.found[d.Name] = r, d.Name, at
		return
	}
	b.bindings[d.Name], b.taken[r.UUID] = r, d.Name
	switch {
	case b.split[r.UUID]:
		b.gone[d.Name] = fmt.Sprintf("MIG was turned on for %s of %s: its instances are the devices now; turn MIG off, or take %s out of the configuration", r.UUID, d.Name, d.Name)
	case occupied && at.uuid == "" && errors.Is(at.err, probe.ErrLost):
		b.lost(d, r, at)
	case b.blind != nil:
		b.silent[d.Name] = unit{uuid: r.UUID, err: b.blind}
	case r.Parent != "":
		b.gone[d.Name] = fmt.Sprintf("%s of %s is gone: its GPU is not split in that way any more; make the instance again, or take %s out of the configuration", r.UUID, d.Name, d.Name)
	default:
		b.gone[d.Name] = fmt.Sprintf("%s of %s is gone: the driver does not show it%s; look at dmesg and the card, restart the agent, then return the device", r.UUID, d.Name, lastAt(r.PCI))
	}
}

// lost says that the driver has given a GPU up.
func (b *binder) lost(d Device, r binding, u unit) {
	b.gone[d.Name] = fmt.Sprintf("%s of %s does not work: %v; look at dmesg and the card, restart the agent, then return the device", r.UUID, d.Name, u.err)
}

func lastAt(pci string) string {
	if pci == "" {
		return ""
	}
	return " any more (it was at PCI address " + pci + ")"
}

// rest makes devices of the units that are none yet, in the order of their
// addresses. A number once given to a GPU is not given to another, and what is
// new stands behind all that there was.
func (b *binder) rest(declared []Device) {
	n := numbering{of: map[string]int{}, names: map[string]bool{}, numbers: map[int]bool{}}
	for _, d := range declared {
		n.add(d.Name, b.bindings[d.Name])
	}
	for name, r := range b.known {
		n.add(name, r)
	}
	for _, u := range b.units {
		if u.uuid == "" || b.taken[u.uuid] != "" {
			continue
		}
		if len(declared) >= maxDevices {
			b.notices = append(b.notices, fmt.Sprintf("%s is no device: a host has at most %d", u.uuid, maxDevices))
			continue
		}
		d := Device{Name: n.name(u)}
		declared = append(declared, d)
		b.judge(d, binding{UUID: u.uuid, PCI: u.pci, Parent: u.parent, Auto: true})
	}
}

// maxBindings bounds what is kept of GPUs that are no devices now.
const maxBindings = 4 * maxDevices

// keep adds the bindings of devices that are not declared now, but may be again.
func (b *binder) keep(declared []Device) {
	for _, name := range slices.Sorted(maps.Keys(b.known)) {
		r := b.known[name]
		_, has := b.bindings[name]
		isDeclared := slices.ContainsFunc(declared, func(d Device) bool { return d.Name == name })
		switch {
		case has, r.Auto && b.taken[r.UUID] != "": // it has another name
		case isDeclared || len(b.bindings) < maxBindings:
			b.bindings[name] = r
		}
	}
}
