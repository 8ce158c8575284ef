package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"rcd/agent/probe"
)

// rack returns GPUs by their UUIDs in the order of the driver, each in the slot
// of its letter: GPU-a is in the first.
func rack(letters string) []probe.GPU {
	var out []probe.GPU
	for i, letter := range letters {
		out = append(out, probe.GPU{Index: i, UUID: "GPU-" + string(letter), PCI: slot(letter), Facts: probe.Facts{"uuid": "GPU-" + string(letter)}})
	}
	slices.SortFunc(out, func(x, y probe.GPU) int { return strings.Compare(x.PCI, y.PCI) })
	return out
}

func slot(letter rune) string { return fmt.Sprintf("0000:%02x:00.0", 1+letter-'a') }

// divided makes the GPU at a place one with instances of these numbers.
func divided(gpus []probe.GPU, place int, instances ...string) []probe.GPU {
	g := gpus[place]
	g.MIG = true
	for _, name := range instances {
		g.Instances = append(g.Instances, probe.Instance{UUID: "MIG-" + name, Facts: probe.Facts{"uuid": "MIG-" + name}})
	}
	gpus[place] = g
	return gpus
}

// told writes what a look says of each device: its UUID, with a mark when it is
// not well.
func (s sight) told() string {
	all := map[string]string{}
	for name, r := range s.bindings {
		all[name] = strings.TrimPrefix(r.UUID, "GPU-")
		if _, ok := s.found[name]; !ok {
			all[name] += " kept"
		}
	}
	for name := range s.swapped {
		all[name] += " swapped"
	}
	for name := range s.silent {
		all[name] = strings.TrimSuffix(all[name], " kept") + " silent"
	}
	for name := range s.gone {
		all[name] = strings.TrimSuffix(all[name], " kept") + " gone"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+all[name])
	}
	return strings.Join(parts, ", ")
}

func devicesNamed(names ...string) (out []Device) {
	for _, n := range names {
		name, bind, _ := strings.Cut(n, "@")
		out = append(out, Device{Name: name, Bind: bind})
	}
	return out
}

func failing(gpus []probe.GPU, place int, err error) []probe.GPU {
	gpus[place].Err = err
	return gpus
}

// unnamed is a GPU that has not said who it is.
func unnamed(gpus []probe.GPU, err error, pci string) []probe.GPU {
	return append(gpus, probe.GPU{Index: 7, PCI: pci, Err: err})
}

func TestADeviceStaysTheGPUThatItWasFirst(t *testing.T) {
	type boot struct {
		devices []Device // nil: devices: auto
		seen    []probe.GPU
		want    string
		detail  string // of any device that is gone or swapped
	}
	hung, lost := fmt.Errorf("GPU 1: %w", probe.ErrHung), fmt.Errorf("look: %w", probe.ErrLost)
	for _, tt := range []struct {
		name  string
		boots []boot
	}{
		{"index permuted between boots", []boot{
			{devicesNamed("gpu0", "gpu1", "gpu2"), rack("abc"), "gpu0=a, gpu1=b, gpu2=c", ""},
			{devicesNamed("gpu0", "gpu1", "gpu2"), rack("cab"), "gpu0=a, gpu1=b, gpu2=c", ""},
		}},
		{"a number that is another device's is nobody's second name", []boot{
			{devicesNamed("gpu0", "gpu1"), rack("ab"), "gpu0=a, gpu1=b", ""},
			{devicesNamed("gpu0", "gpu1", "gpu2"), rack("cab"), "gpu0=a, gpu1=b, gpu2= gone", "GPU 2 is GPU-b, which is device gpu1 already"},
		}},
		{"the first time the driver's number counts", []boot{{devicesNamed("gpu0", "gpu1"), rack("ba"), "gpu0=b, gpu1=a", ""}}},
		{"one gone, its device stays declared and nobody takes its name", []boot{
			{nil, rack("abc"), "gpu0=a, gpu1=b, gpu2=c", ""},
			{nil, rack("ac"), "gpu0=a, gpu1=b gone, gpu2=c", "GPU-b of gpu1 is gone: the driver does not show it any more (it was at PCI address 0000:02:00.0)"},
			{nil, rack("acd"), "gpu0=a, gpu1=b gone, gpu2=c, gpu3=d", "GPU-b"},
			{nil, rack("dbca"), "gpu0=a, gpu1=b, gpu2=c, gpu3=d", ""},
		}},
		{"another card in the slot is the device, and a person must know", []boot{
			{devicesNamed("gpu0", "gpu1"), rack("ab"), "gpu0=a, gpu1=b", ""},
			{devicesNamed("gpu0", "gpu1"), []probe.GPU{rack("a")[0], {Index: 1, UUID: "GPU-x", PCI: slot('b')}}, "gpu0=a, gpu1=x swapped", "GPU-x at PCI address 0000:02:00.0, where GPU-b was"},
			{devicesNamed("gpu0", "gpu1"), []probe.GPU{rack("a")[0], {Index: 1, UUID: "GPU-x", PCI: slot('b')}}, "gpu0=a, gpu1=x", ""},
		}},
		{"cards that changed places stay who they are", []boot{
			{devicesNamed("gpu0", "gpu1"), rack("ab"), "gpu0=a, gpu1=b", ""},
			{devicesNamed("gpu0", "gpu1"), []probe.GPU{{Index: 0, UUID: "GPU-b", PCI: slot('a')}, {Index: 1, UUID: "GPU-a", PCI: slot('b')}}, "gpu0=a, gpu1=b", ""},
		}},
		{"a card of another device in its slot is not its successor", []boot{
			{devicesNamed("gpu0", "gpu1"), rack("ab"), "gpu0=a, gpu1=b", ""},
			{devicesNamed("gpu0", "gpu1"), []probe.GPU{{Index: 0, UUID: "GPU-b", PCI: slot('a')}}, "gpu0=a gone, gpu1=b", "GPU-a of gpu0 is gone"},
		}},
		{"the configuration names a UUID", []boot{
			{devicesNamed("big@GPU-c", "gpu2"), rack("abc"), "big=c, gpu2= gone", "GPU 2 is GPU-c, which is device big already"},
			{devicesNamed("big@GPU-c", "gpu2"), rack("ab"), "big=c gone", "GPU-c of big is gone"},
			{devicesNamed("big@GPU-b", "gpu2"), rack("abc"), "big=b, gpu2=c", ""},
		}},
		{"a UUID is not another card in its slot", []boot{
			{devicesNamed("big@GPU-a"), rack("a"), "big=a", ""},
			{devicesNamed("big@GPU-a"), []probe.GPU{{UUID: "GPU-x", PCI: slot('a')}}, "big=a gone", "GPU-a of big is gone"},
		}},
		{"the configuration names a slot", []boot{
			{devicesNamed("left@02:00.0", "gpu0"), rack("ab"), "gpu0=a, left=b", ""},
			{devicesNamed("left@02:00.0", "gpu0"), []probe.GPU{rack("a")[0], {Index: 1, UUID: "GPU-b", PCI: slot('c')}, {Index: 2, UUID: "GPU-x", PCI: slot('b')}}, "gpu0=a, left=x swapped", "GPU-x"},
			{devicesNamed("left@09:00.0", "gpu0"), rack("a"), "gpu0=a, left=x gone", "0000:09:00.0"},
		}},
		{"two devices are never one GPU", []boot{
			{devicesNamed("x@GPU-a", "y@0000:01:00.0"), rack("a"), "x=a, y=a gone", "GPU-a is device x already"},
			{devicesNamed("x@GPU-a", "gpu0"), rack("ab"), "gpu0= gone, x=a, y=a kept", "GPU 0 is GPU-a, which is device x already"},
		}},
		{"auto names by address, and goes round the names of the configuration", []boot{
			{append(devicesNamed("gpu2"), Device{Name: "auto"}), rack("cba"), "gpu1=b, gpu2=a, gpu3=c", ""},
		}},
		{"a name that the configuration gives to an auto device replaces it", []boot{
			{nil, rack("ab"), "gpu0=a, gpu1=b", ""},
			{append(devicesNamed("big@GPU-a"), Device{Name: "auto"}), rack("ab"), "big=a, gpu1=b", ""},
			{append(devicesNamed("big@02:00.0"), Device{Name: "auto"}), rack("ab"), "big=b, gpu2=a", ""},
		}},
		{"split GPUs are their instances", []boot{
			{nil, divided(rack("ab"), 0, "p", "q"), "gpu0-mig0=MIG-p, gpu0-mig1=MIG-q, gpu1=b", ""},
			{nil, divided(rack("ab"), 0, "q", "r"), "gpu0-mig0=MIG-p gone, gpu0-mig1=MIG-q, gpu0-mig2=MIG-r, gpu1=b", "MIG-p of gpu0-mig0 is gone: its GPU is not split in that way any more"},
		}},
		{"MIG turned on between boots", []boot{
			{nil, rack("ab"), "gpu0=a, gpu1=b", ""},
			{nil, divided(rack("ab"), 1, "p"), "gpu0=a, gpu1=b gone, gpu1-mig0=MIG-p", "MIG was turned on for GPU-b of gpu1"},
			{nil, rack("ab"), "gpu0=a, gpu1=b, gpu1-mig0=MIG-p gone", "MIG-p"},
		}},
		{"a whole GPU's name is not its instances'", []boot{
			{devicesNamed("gpu0", "gpu1-mig1"), divided(divided(rack("ab"), 0, "p"), 1, "q", "r"), "gpu0= gone, gpu1-mig1=MIG-r", "MIG is on for GPU 0"},
		}},
		{"a GPU without instances has a number all the same", []boot{{nil, divided(rack("ab"), 0), "gpu1=b", ""}}},
		{"who does not answer is not gone", []boot{
			{devicesNamed("gpu0", "gpu1"), rack("ab"), "gpu0=a, gpu1=b", ""},
			{devicesNamed("gpu0", "gpu1"), failing(rack("ab"), 1, hung), "gpu0=a, gpu1=b silent", ""},
			{devicesNamed("gpu0", "gpu1"), unnamed(rack("a"), hung, ""), "gpu0=a, gpu1=b silent", ""},
			{devicesNamed("gpu0", "gpu1"), failing(rack("ab"), 1, lost), "gpu0=a, gpu1=b gone", "does not work"},
			{devicesNamed("gpu0", "gpu1"), unnamed(rack("a"), lost, slot('b')), "gpu0=a, gpu1=b gone", "does not work"},
		}},
		{"other names end in a number too, and come last", []boot{
			{devicesNamed("board1", "gpu1", "a100-0", "oven"), rack("ab"), "a100-0=a, gpu1=b", ""},
		}},
		{"what is no device for a while is the same afterwards", []boot{
			{devicesNamed("gpu0", "gpu1"), rack("ab"), "gpu0=a, gpu1=b", ""},
			{devicesNamed("gpu0"), rack("ba"), "gpu0=a, gpu1=b kept", ""},
			{devicesNamed("gpu0", "gpu1"), rack("ba"), "gpu0=a, gpu1=b", ""},
		}},
		{"nothing there, nothing bound", []boot{{devicesNamed("gpu0", "gpu1"), nil, "", ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var known map[string]binding
			for i, boot := range tt.boots {
				auto := boot.devices == nil
				devices := slices.DeleteFunc(boot.devices, func(d Device) bool { auto = auto || d.Name == "auto"; return d.Name == "auto" })
				for range 2 { // a second look changes nothing
					s := bind(devices, auto, known, boot.seen)
					if got := s.told(); got != boot.want {
						t.Fatalf("boot %d: %s\nwant    %s", i, got, boot.want)
					}
					details := strings.Join(append(slices.Collect(maps.Values(s.gone)), slices.Collect(maps.Values(s.swapped))...), "; ")
					if !strings.Contains(details, boot.detail) || boot.detail == "" && details != "" {
						t.Errorf("boot %d: says %q", i, details)
					}
					known = s.bindings
					if len(s.swapped) > 0 {
						break
					}
				}
			}
		})
	}
}

func TestASimulatedDeviceIsNoGPU(t *testing.T) {
	devices := []Device{{Name: "gpu0", Simulated: true}, {Name: "gpu1"}}
	if got := bind(devices, false, nil, rack("ab")).told(); got != "gpu1=b" {
		t.Error(got)
	}
}

func TestAGPUNumberThatNobodyHasIsNoticed(t *testing.T) {
	s := bind(devicesNamed("gpu9"), false, nil, rack("a"))
	if len(s.notices) != 1 || !strings.Contains(s.notices[0], "gpu9 is no GPU") {
		t.Errorf("%q", s.notices)
	}
	if s := bind(devicesNamed("gpu9"), false, nil, unnamed(nil, errors.New("?"), "")); len(s.notices) != 0 {
		t.Errorf("%q: it may be the one that has not answered", s.notices)
	}
}

func TestAHostHasNoMoreDevicesThanTheTableTakes(t *testing.T) {
	var many []probe.GPU
	for i := range maxDevices + 5 {
		many = append(many, probe.GPU{Index: i, UUID: fmt.Sprint("GPU-", i), PCI: fmt.Sprintf("0000:%02x:%02x.0", i/32, i%32)})
	}
	if s := bind(devicesNamed("x", "y"), true, nil, many); len(s.bindings) != maxDevices-2 || len(s.notices) != 7 {
		t.Errorf("%d bound, %d noticed", len(s.bindings), len(s.notices))
	}
}
