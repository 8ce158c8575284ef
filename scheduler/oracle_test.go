package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rcd/model"
	"rcd/model/selector"
)

// oracle is the full pass over rows: slow, and plainly the rule.
type oracle struct {
	devices []*model.Device // by ID
	jobs    []*model.Job    // queued, in no order
}

type placement struct {
	job    uint64
	device string
}

func (o *oracle) pass() []placement {
	var made []placement
	queue := slices.Clone(o.jobs)
	slices.SortFunc(queue, func(a, b *model.Job) int {
		if OrderOf(a).Less(OrderOf(b)) {
			return -1
		}
		return 1
	})
	for _, j := range queue {
		var best *model.Device
		for _, d := range o.devices {
			if d.State == model.DeviceReady && fits(j, d) && (best == nil || spare(j, d) < spare(j, best)) {
				best = d
			}
		}
		if best != nil {
			made = append(made, placement{j.Number, best.ID})
			o.take(j, best)
		}
	}
	return made
}

func (o *oracle) take(j *model.Job, d *model.Device) {
	o.jobs = slices.DeleteFunc(o.jobs, func(k *model.Job) bool { return k == j })
	busy := *d
	busy.State = model.DeviceBusy
	o.put(&busy)
}

func (o *oracle) put(d *model.Device) {
	o.devices = slices.DeleteFunc(o.devices, func(e *model.Device) bool { return e.ID == d.ID })
	o.devices = append(o.devices, d)
	slices.SortFunc(o.devices, func(a, b *model.Device) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
}

func fits(j *model.Job, d *model.Device) bool {
	if d.MaxRuntimeS > 0 && j.CeilingAsked && j.MaxRuntimeS > d.MaxRuntimeS {
		return false
	}
	if j.Pinned != "" {
		return j.Pinned == d.ID
	}
	s, err := selector.Parse(j.Selector)
	return err == nil && s.Match(d.Label)
}

// spare counts the effective labels that the selector does not read.
func spare(j *model.Job, d *model.Device) int {
	if j.Pinned != "" {
		return 0
	}
	s, _ := selector.Parse(j.Selector)
	keys := map[string]bool{}
	for _, l := range append(slices.Clone(d.Declared), d.Detected...) {
		keys[l.Key] = true
	}
	for _, k := range s.Keys() {
		delete(keys, k)
	}
	return len(keys)
}

var keys = []string{"a", "b", "c", "d", "m_free"}

func drawDevice(t *rapid.T, id int) *model.Device {
	d := &model.Device{ID: fmt.Sprintf("h:%02d", id), Host: "h", Name: fmt.Sprint(id)}
	d.State = rapid.SampledFrom([]model.DeviceState{model.DeviceReady, model.DeviceReady, model.DeviceUnknown}).Draw(t, "state")
	d.MaxRuntimeS = rapid.SampledFrom([]int64{0, 0, 10, 20, 30}).Draw(t, "ceiling")
	if d.State == model.DeviceUnknown {
		d.Absent = rapid.Bool().Draw(t, "absent")
	}
	for _, k := range keys {
		if rapid.Bool().Draw(t, "declared") {
			d.Declared = append(d.Declared, model.Label{Key: k, Value: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")})
		}
		if rapid.IntRange(0, 3).Draw(t, "detected") == 0 {
			d.Detected = append(d.Detected, model.Label{Key: k, Value: "3"})
		}
	}
	return d
}

func drawJob(t *rapid.T, number uint64) *model.Job {
	j := &model.Job{Number: number, QueueAtMS: int64(rapid.IntRange(0, 5).Draw(t, "at"))}
	if rapid.IntRange(0, 2).Draw(t, "pinned") == 0 {
		j.Pinned = fmt.Sprintf("h:%02d", rapid.IntRange(0, 8).Draw(t, "device"))
	} else {
		j.Selector = rapid.SampledFrom([]string{"a", "a>=2", "a=1", "b,c", "!d", "a in (1,3)", "c!=2", "d>=1,!a", "a,m_free>=2"}).Draw(t, "selector")
	}
	if rapid.Bool().Draw(t, "asks") {
		j.CeilingAsked, j.MaxRuntimeS = true, rapid.SampledFrom([]int64{5, 10, 11, 20, 25, 30, 31, 40}).Draw(t, "runtime")
	}
	return j
}

// TestPlacesLikeAFullPass makes random changes, several between two passes,
// and compares every pass with the oracle's.
func TestPlacesLikeAFullPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, o := New(), &oracle{}
		number := uint64(0)
		known := map[string]int64{}
		for range rapid.IntRange(1, 30).Draw(t, "passes") {
			for range rapid.IntRange(1, 6).Draw(t, "changes") {
				switch rapid.IntRange(0, 5).Draw(t, "change") {
				case 0:
					d := drawDevice(t, rapid.IntRange(0, 7).Draw(t, "id"))
					o.put(d)
					s.PutDevice(d)
				case 1, 2, 3:
					number++
					j := drawJob(t, number)
					o.jobs = append(o.jobs, j)
					s.Add(j)
				case 4:
					if len(o.devices) > 0 { // one comes free, or goes away
						d := *o.devices[rapid.IntRange(0, len(o.devices)-1).Draw(t, "which")]
						if d.Absent {
							continue // that is never ready
						}
						d.State = rapid.SampledFrom([]model.DeviceState{model.DeviceReady, model.DeviceUnhealthy}).Draw(t, "state")
						o.put(&d)
						s.SetDeviceState(&d)
					}
				case 5:
					if n := len(o.jobs); n > 0 && rapid.Bool().Draw(t, "job or device") {
						j := o.jobs[rapid.IntRange(0, n-1).Draw(t, "which")]
						o.jobs = slices.DeleteFunc(o.jobs, func(k *model.Job) bool { return k == j })
						s.Remove(j)
						if !slices.ContainsFunc(o.jobs, func(k *model.Job) bool { return classKey(k) == classKey(j) }) {
							delete(known, classKey(j)) // what devices do to it now is nobody's concern
						}
					} else if n := len(o.devices); n > 0 && rapid.IntRange(0, 3).Draw(t, "retire") == 0 {
						d := o.devices[rapid.IntRange(0, n-1).Draw(t, "which")]
						o.devices = slices.DeleteFunc(o.devices, func(e *model.Device) bool { return e == d })
						s.RemoveDevice(d.ID)
					}
				}
			}
			comparePass(t, s, o)
			known = compareServing(t, s, o, known)
		}
	})
}

func comparePass(t *rapid.T, s *Scheduler, o *oracle) {
	jobs, devices := slices.Clone(o.jobs), slices.Clone(o.devices)
	want := o.pass()
	var got []placement
	s.Place(func(job uint64, device string) {
		got = append(got, placement{job, device})
		s.Remove(jobs[slices.IndexFunc(jobs, func(j *model.Job) bool { return j.Number == job })])
		busy := *devices[slices.IndexFunc(devices, func(d *model.Device) bool { return d.ID == device })]
		busy.State = model.DeviceBusy
		s.SetDeviceState(&busy)
	})
	if !slices.Equal(got, want) {
		t.Fatalf("placed %v, a full pass places %v", got, want)
	}
	if s.Queued() != len(o.jobs) || s.Pending() {
		t.Fatalf("%d queued, want %d; pending %v", s.Queued(), len(o.jobs), s.Pending())
	}
}

// TestBitsetMovesAsASliceWould compares with a slice of booleans.
func TestBitsetMovesAsASliceWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bitset
		want := make([]bool, 0, 300)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			i := rapid.IntRange(0, len(want)).Draw(t, "at")
			if len(want) > 0 && i < len(want) && rapid.IntRange(0, 4).Draw(t, "remove") == 0 {
				b.remove(i)
				want = slices.Delete(want, i, i+1)
				continue
			}
			on := rapid.Bool().Draw(t, "on")
			b.insert(i)
			b.set(i, on)
			want = slices.Insert(want, i, on)
		}
		for i, on := range want {
			if b.has(i) != on {
				t.Fatalf("bit %d of %d is %v", i, len(want), b.has(i))
			}
		}
		if b.has(len(want)) || b.has(len(want)+64) {
			t.Fatal("bits past the end are set")
		}
	})
}

func TestAgingBoundsHowMuchMayPass(t *testing.T) {
	const aging = 30 * 60 * 1000
	old := KeyAt(1_000, 0, aging)
	if later := KeyAt(1_000+3*aging, 3, aging); later < old {
		t.Error("a job of priority 3 passes one that waits for more than 3 × aging")
	}
	if sooner := KeyAt(1_000+3*aging-1, 3, aging); sooner >= old {
		t.Error("a job of priority 3 does not pass one that waits for less than 3 × aging")
	}
	if KeyAt(0, 5, 0) >= KeyAt(0, 4, 0) || KeyAt(9, 1, 0) != KeyAt(0, 1, 0) {
		t.Error("without aging, priority alone must count")
	}
}
