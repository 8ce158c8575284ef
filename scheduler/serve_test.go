package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rcd/model"
	"rcd/model/selector"
)

// allowed is what the devices allow the target of a job, by looking at all.
func (o *oracle) allowed(j *model.Job) int64 {
	sel, _ := selector.Parse(j.Selector)
	most := int64(-1)
	for _, d := range o.devices {
		switch {
		case d.Absent, j.Pinned != "" && j.Pinned != d.ID, j.Pinned == "" && !sel.MatchStable(d.Label):
		case d.MaxRuntimeS == 0:
			return Unlimited
		default:
			most = max(most, d.MaxRuntimeS)
		}
	}
	return most
}

// compareServing compares what targets are allowed and which of their jobs
// wait between two bounds with a look at every device and job, and sees that a
// target that is allowed something else than it was known to be is touched. It
// returns what is known now.
func compareServing(t *rapid.T, s *Scheduler, o *oracle, known map[string]int64) map[string]int64 {
	touched := s.TakeTouched()
	if s.Touched() || s.Moved() {
		t.Fatal("touched targets were taken and are still there")
	}
	now := map[string]int64{}
	for _, j := range o.jobs {
		now[classKey(j)] = o.allowed(j)
	}
	bounds := []int64{NoDevice, 10, 15, 20, 30, Unlimited}
	above := rapid.IntRange(0, len(bounds)-1).Draw(t, "above")
	upTo := rapid.IntRange(above, len(bounds)-1).Draw(t, "up to")
	for _, i := range []int{above, upTo} {
		if bounds[i] != Unlimited {
			s.KeepEdge(bounds[i])
		}
	}
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	for target, want := range now {
		was, before := known[target]
		if got := s.Allows(target); got != want {
			t.Fatalf("%q is allowed %d, want %d", target, got, want)
		}
		if before && was != want && !slices.Contains(touched, target) {
			t.Fatalf("%q was allowed %d, is allowed %d, and is not touched", target, was, want)
		}
		compareWaiting(t, s, o, target, bounds[above], bounds[upTo], limit)
	}
	for _, text := range []string{"a", "a>=2", "b,c", "zz", "a,m_free>=2"} {
		sel, _ := selector.Parse(text)
		allowed := o.allowed(&model.Job{Selector: text})
		if matched, tolerated := s.Serves(text, sel, 25); matched != (allowed >= 0) || tolerated != (allowed >= 25) {
			t.Fatalf("%q is served: %v %v, and allowed %d", text, matched, tolerated, allowed)
		}
	}
	return now
}

func compareWaiting(t *rapid.T, s *Scheduler, o *oracle, target string, above, upTo int64, limit int) {
	var want []Order
	for _, j := range o.jobs {
		if r := Runtime(j); classKey(j) == target && r > above && r <= upTo {
			want = append(want, OrderOf(j))
		}
	}
	slices.SortFunc(want, func(a, b Order) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	got := s.Waiting(target, above, upTo, limit)
	same := len(got) == min(limit, len(want))
	for i := range got {
		same = same && got[i] == want[i].Number
	}
	if !same || s.Waits(target, above, upTo) != (len(want) > 0) {
		t.Fatalf("%v wait for %q above %d up to %d (first %d), want %v", got, target, above, upTo, limit, want)
	}
}

// TestWhatChangesNothingTouchesNothing: the price of a device that comes, goes
// or is relabelled must not be paid for targets that it does not decide.
func TestWhatChangesNothingTouchesNothing(t *testing.T) {
	device := func(id string, ceiling int64, a string) *model.Device {
		return &model.Device{ID: id, MaxRuntimeS: ceiling, State: model.DeviceUnknown, Declared: []model.Label{{Key: "a", Value: a}, {Key: "m_free", Value: "1"}}}
	}
	s := New()
	s.PutDevice(device("h:0", 100, "1"))
	s.PutDevice(device("h:1", 50, "1"))
	s.PutDevice(device("h:2", 100, "1"))
	s.Add(&model.Job{Number: 1, Selector: "a=1,m_free>=2"})
	s.Add(&model.Job{Number: 2, Selector: "a=2"})
	s.Add(&model.Job{Number: 3, Pinned: "h:1"})
	for _, c := range []struct {
		what   string
		change func()
		want   string
	}{
		{"a device less able goes", func() { s.RemoveDevice("h:0") }, "[s a=1,m_free>=2]"}, // only a look tells that another allows as much
		{"the same again", func() { s.PutDevice(device("h:2", 100, "1")) }, "[]"},
		{"a state", func() { s.SetDeviceState(device("h:2", 100, "1")) }, "[]"},
		{"a volatile label", func() { d := device("h:2", 100, "1"); d.Declared[1].Value = "9"; s.PutDevice(d) }, "[]"},
		{"a new one that allows less", func() { s.PutDevice(device("h:3", 60, "1")) }, "[]"},
		{"and leaves", func() { s.RemoveDevice("h:3") }, "[]"},
		{"a pinned one allows more", func() { s.PutDevice(device("h:1", 60, "1")) }, "[d h:1]"},
		{"the best one falls", func() { s.PutDevice(device("h:2", 90, "1")) }, "[s a=1,m_free>=2]"},
		{"it turns to others", func() { s.PutDevice(device("h:2", 90, "2")) }, "[s a=1,m_free>=2 s a=2]"},
		{"the pinned one is retired", func() { s.RemoveDevice("h:1") }, "[s a=1,m_free>=2 d h:1]"},
	} {
		c.change()
		if got := fmt.Sprint(s.TakeTouched()); got != c.want {
			t.Errorf("%s: touched %s, want %s", c.what, got, c.want)
		}
		s.Allows("s a=1,m_free>=2")
		s.Allows("s a=2")
	}
}

// BenchmarkPutDevice is one device that changes under 1,000 selectors in use
// and 1,000 devices.
func BenchmarkPutDevice(b *testing.B) {
	s := New()
	device := func(i int, ceiling int64, free string) *model.Device {
		return &model.Device{
			ID: fmt.Sprintf("h:%04d", i), State: model.DeviceUnknown, MaxRuntimeS: ceiling,
			Declared: []model.Label{{Key: "n", Value: fmt.Sprint(i)}, {Key: "vendor", Value: "nvidia"}},
			Detected: []model.Label{{Key: "vram", Value: "80G"}, {Key: "vram_free", Value: free}},
		}
	}
	for i := range 1000 {
		s.PutDevice(device(i, 3600, "80G"))
	}
	for i := range 1000 {
		s.Add(&model.Job{Number: uint64(i + 1), Selector: fmt.Sprintf("n>=%d,vram>=40G", i)})
	}
	for _, c := range []struct {
		name    string
		ceiling int64
		free    string
	}{{"volatile label", 3600, "1G"}, {"ceiling", 1800, "80G"}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			one, other := device(999, 3600, "80G"), device(999, c.ceiling, c.free)
			for b.Loop() {
				one, other = other, one
				s.PutDevice(one)
			}
		})
	}
}
