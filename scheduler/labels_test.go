package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"rcd/model"
	"rcd/model/selector"
)

// labelled makes up a device among many that have few values in common and one
// of its own.
func labelled(r *rand.Rand, id int) *model.Device {
	d := &model.Device{ID: fmt.Sprintf("h:%04d", id), State: model.DeviceUnknown}
	add := func(to *[]model.Label, key string, values ...string) {
		if i := r.IntN(len(values) + 1); i < len(values) {
			*to = append(*to, model.Label{Key: key, Value: values[i]})
		}
	}
	add(&d.Declared, "arch", "hopper", "ada", " ada")
	add(&d.Declared, "driver", "580.173.02", "550", "550.0", "v610.1.2", "none")
	add(&d.Declared, "vram", "80G", "81920M", "40G", "")
	add(&d.Detected, "driver", "580.173.02", "535.1.1")
	add(&d.Detected, "serial", fmt.Sprint(id), fmt.Sprint(id), fmt.Sprint(id))
	add(&d.Detected, "vram_free", "1G", "2.5G", "80G")
	return d
}

// TestAnIndexFindsWhatLookingAtEveryDeviceFinds puts, relabels and removes
// devices at random, and compares with each selector matched against each row.
func TestAnIndexFindsWhatLookingAtEveryDeviceFinds(t *testing.T) {
	texts := []string{
		"arch", "!arch", "arch=ada", "arch!=ada", "arch in (ada,hopper),driver>=550", "driver<=580.173.2", "driver!=550", "vram=80G", "vram>=40G,!serial",
		"serial>=300", "serial in (7,8,300)", "vram_free>=2G", "!vram_free,arch", "vram_free,vram_free<=2.5G,driver>=550", "none", "!none", "!none,vram_free=1G",
	}
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, rows := New(), map[string]*model.Device{} // rows only looked up
		for i, text := range texts {
			if i%2 == 0 { // a class that follows every change
				s.Add(&model.Job{Number: uint64(i + 1), Selector: text})
			}
		}
		const ids = 700
		for step := range 2000 {
			id := r.IntN(ids)
			if d := labelled(r, id); step > 1000 && r.IntN(3) == 0 {
				s.RemoveDevice(d.ID)
				delete(rows, d.ID)
			} else {
				s.PutDevice(d)
				rows[d.ID] = d
			}
			if step%250 < 240 { // then after every single change
				continue
			}
			for _, text := range texts {
				sel, err := selector.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				matched, stable := s.fleet.matching(sel)
				some := s.fleet.devices[:len(s.fleet.devices)/8]
				any := slices.ContainsFunc(some, func(d *model.Device) bool { return sel.Match(d.Label) })
				if DevicesOf(some).AnyMatch(sel) != any {
					t.Fatalf("seed %d, step %d: of %d devices %q matches one: %v", seed, step, len(some), text, any)
				}
				sets := [][2]bitset{{matched, stable}}
				if c, ok := s.classes.Get(selectorPrefix + text); ok {
					sets = append(sets, [2]bitset{c.matched, c.stable})
				}
				for slot := range ids + 64 {
					var now, ever bool
					if slot < len(s.fleet.devices) {
						d := rows[s.fleet.devices[slot].ID]
						now, ever = sel.Match(d.Label), sel.MatchStable(d.Label)
					}
					for kind, set := range sets {
						if set[0].has(slot) != now || set[1].has(slot) != ever {
							t.Fatalf("seed %d, step %d: %q, slot %d, set %d: %v %v, want %v %v", seed, step, text, slot, kind, set[0].has(slot), set[1].has(slot), now, ever)
						}
					}
				}
			}
		}
		for id := range ids {
			s.RemoveDevice(fmt.Sprintf("h:%04d", id))
		}
		if s.fleet.known.keys.Len() != 0 || len(s.fleet.unused) != len(s.fleet.slots) || len(s.fleet.slots) > ids {
			t.Fatalf("seed %d: something is left of a fleet that is gone", seed)
		}
	}
}

// TestANewSelectorIsNotComparedWithEveryDevice: one request may bring a thousand
// of them, and all other work waits meanwhile. Reading a number or a version
// allocates, so the allocations tell whose labels were read.
func TestANewSelectorIsNotComparedWithEveryDevice(t *testing.T) {
	s := New()
	for i := range 2000 {
		s.PutDevice(&model.Device{ID: fmt.Sprintf("h:%04d", i), State: model.DeviceReady, Declared: []model.Label{
			{Key: "driver", Value: "580.173.02"}, {Key: "serial", Value: fmt.Sprint(i)}, {Key: "vram", Value: "80G"},
		}})
	}
	n := 0
	allocs := testing.AllocsPerRun(200, func() {
		n++
		text := fmt.Sprintf("driver>=550,vram>=%d", n)
		sel, err := selector.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if matched, _ := s.Serves(text, sel, 0); !matched {
			t.Fatal("no device matches", text)
		}
	})
	if allocs > 200 {
		t.Errorf("a new selector takes %v allocations beside 2,000 devices", allocs)
	}
	t.Logf("%v allocations", allocs)
}
