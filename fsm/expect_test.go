package fsm

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rcd/fsm/command"
	"rcd/model"
)

// drain is a queue that no new job joins, carried to its end under the real
// scheduler.
type drain struct {
	t      *rapid.T
	l      *log
	at     map[uint64]int64 // when the next thing happens to an active job, Unix ms
	bounds map[uint64]Expected
	// How many jobs had a latest time, and of those how many got their device
	// within a tenth of what was left of it at first.
	bounded, close int
	first          map[uint64]int64 // wait that the first bound allowed
	begun          map[uint64]int64
}

func newDrain(t *rapid.T, tb testing.TB) *drain {
	l := began(tb)
	l.check = false
	d := &drain{t: t, l: l, at: map[uint64]int64{}, bounds: map[uint64]Expected{}, first: map[uint64]int64{}, begun: map[uint64]int64{}}
	hosts := rapid.IntRange(1, 3).Draw(t, "hosts")
	for h := range hosts {
		r := register(fmt.Sprint("h", h), "i1")
		for n := range rapid.IntRange(1, 3).Draw(t, "devices") {
			ceiling := rapid.SampledFrom([]int64{0, 30, 100, 100, 400}).Draw(t, "ceiling")
			labels := []string{"n", fmt.Sprint(n)}
			if rapid.Bool().Draw(t, "fast") {
				labels = append(labels, "fast", "yes")
			}
			s := spec(fmt.Sprint("g", n), ceiling, labels...)
			s.Detected = []command.KV{{Key: "vram_free", Value: rapid.SampledFrom([]string{"1G", "40G"}).Draw(t, "free")}}
			r.Devices = append(r.Devices, s)
		}
		l.ok(r)
	}
	for range rapid.IntRange(1, 40).Draw(t, "jobs") {
		l.advanceMS(int64(rapid.IntRange(0, 2).Draw(t, "pause")) * secondMS)
		s := selecting(rapid.SampledFrom([]string{"n=0", "n>=1", "fast", "!fast", "n", "vram_free>=30G"}).Draw(t, "selector"))
		if rapid.IntRange(0, 2).Draw(t, "pin") == 0 {
			s = pinned(fmt.Sprintf("h%d:g%d", rapid.IntRange(0, hosts-1).Draw(t, "host"), rapid.IntRange(0, 1).Draw(t, "device")))
		}
		s.MaxRuntimeS = rapid.SampledFrom([]int64{0, 1, 20, 20, 60, 90, 300}).Draw(t, "runtime")
		s.Priority = int8(rapid.IntRange(-1, 1).Draw(t, "priority"))
		l.one(submit(s)) // some are refused
	}
	if rapid.IntRange(0, 3).Draw(t, "silent host") == 0 {
		l.advanceMS(minuteMS)
		l.ok(silent("h0", "i1", 3000))
	}
	return d
}

func (d *drain) nowMS() int64 { return d.l.m.View().NowMS() }

// look notes what is expected of every queued job now, and that what was
// expected before contains it.
func (d *drain) look() {
	v := d.l.m.View()
	now := v.NowMS()
	for j := range v.Queued() {
		w, ok := v.Waiting(j.Number)
		if !ok || len(w.Reasons) == 0 {
			d.t.Fatalf("job %d waits without a reason: %+v", j.Number, w)
		}
		e := w.Expected
		if e.EarliestMS != 0 && e.EarliestMS < now || e.LatestMS != 0 && e.LatestMS < max(now, e.EarliestMS) || e.LatestMS == 0 && e.Note == "" {
			d.t.Fatalf("job %d at %d: %+v", j.Number, now, e)
		}
		was, seen := d.bounds[j.Number]
		if e.LatestMS != 0 && !seen {
			d.bounded++
			d.first[j.Number], d.begun[j.Number] = e.LatestMS-now, now
		}
		if seen && was.LatestMS != 0 && (e.LatestMS == 0 || e.LatestMS > was.LatestMS) {
			e.LatestMS = was.LatestMS // what was promised stays promised
		}
		d.bounds[j.Number] = Expected{EarliestMS: max(e.EarliestMS, was.EarliestMS), LatestMS: e.LatestMS}
	}
	for _, j := range v.Active() {
		e, waited := d.bounds[j.Number]
		if !waited {
			continue
		}
		delete(d.bounds, j.Number)
		placed := v.Lease(j.Lease).AcquiredAtMS
		if e.EarliestMS > placed || e.LatestMS != 0 && e.LatestMS < placed {
			d.t.Fatalf("job %d got its device at %d, and it was to be from %d to %d", j.Number, placed, e.EarliestMS, e.LatestMS)
		}
		if first, ok := d.first[j.Number]; ok && placed-d.begun[j.Number] >= first*9/10 {
			d.close++
		}
	}
}

// next lets the next thing happen: a job starts, or ends within its limit and
// what the end of one takes. False when no job is active.
func (d *drain) next() bool {
	var soonest *model.Job
	for _, j := range d.l.m.View().Active() {
		if j.Host == "h0" && d.l.m.View().Agent("h0").Silent {
			continue // nothing is heard of it
		}
		if _, planned := d.at[j.Number]; !planned {
			d.at[j.Number] = d.nowMS() + d.within(startAllowanceMS)
		}
		if soonest == nil || d.at[j.Number] < d.at[soonest.Number] {
			soonest = j
		}
	}
	if soonest == nil {
		return false
	}
	d.l.advanceMS(max(0, d.at[soonest.Number]-d.nowMS()))
	if soonest.State == model.JobAssigned {
		d.l.ok(started(soonest, "i1"))
		limit := soonest.MaxRuntimeS * secondMS
		if limit == 0 {
			limit = 500 * secondMS
		}
		d.at[soonest.Number] = d.nowMS() + d.within(limit+endAllowanceMS)
		return true
	}
	d.l.ok(exited(soonest, "i1", 0))
	return true
}

// within is often all of it: the bounds are about the worst.
func (d *drain) within(ms int64) int64 {
	if rapid.IntRange(0, 3).Draw(d.t, "worst") > 0 {
		return ms
	}
	return rapid.Int64Range(0, ms).Draw(d.t, "ms")
}

// TestAJobStartsWithinTheIntervalItWasTold lets queues run empty, with what is
// expected of every job looked at after every entry.
func TestAJobStartsWithinTheIntervalItWasTold(t *testing.T) {
	bounded, near := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		d := newDrain(rt, t)
		d.look()
		for d.next() {
			d.look()
		}
		bounded, near = bounded+d.bounded, near+d.close
	})
	t.Logf("%d jobs had a latest start, %d of them started in its last tenth", bounded, near)
	if !t.Failed() && !testing.Short() && (bounded < 100 || near < bounded/20) {
		t.Errorf("%d jobs had a latest start and %d of them came close to it: bounds that say little pass for good ones", bounded, near)
	}
}
