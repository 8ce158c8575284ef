package fsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// naiveJobs is Jobs by looking at every row.
func naiveJobs(v *View, f JobFilter) (rows []*model.Job) {
	limit := min(max(f.Limit, 1), MaxListed)
	v.jobs.tree.Reverse(func(number uint64, c *cell[model.Job]) bool {
		j := &c.row
		if (f.Submitter == "" || j.Submitter == f.Submitter) && (f.State == nil || j.State == *f.State) &&
			(f.Device == "" || contains(historyDevices(j), f.Device)) && (f.Before == 0 || number < f.Before) {
			rows = append(rows, j)
		}
		return len(rows) < limit
	})
	return rows
}

// TestListingAgreesWithLookingAtEveryRow: over a random history, every filter,
// page by page.
func TestListingAgreesWithLookingAtEveryRow(t *testing.T) {
	seed := rand.Uint64()
	found, pages := map[model.JobState]int{}, 0
	for range 5 {
		pages += listEverything(t, seed, found)
		seed++
	}
	if pages < 100 || len(found) < 6 {
		t.Errorf("five seeds up to %d: %d pages with states %v prove little", seed, pages, found)
	}
}

// listEverything pages through every listing of a random state, counts the
// states found and returns the number of pages.
func listEverything(t *testing.T, seed uint64, found map[model.JobState]int) (pages int) {
	t.Helper()
	l := newLog(t)
	l.check = false
	s := newStream(seeded{rand.New(rand.NewPCG(seed, 3))}, l, 3)
	for range 1500 {
		s.step()
	}
	v := l.m.View()
	states := []*model.JobState{nil}
	for n := range model.JobLost + 1 {
		states = append(states, &n)
	}
	for _, state := range states {
		for _, device := range []string{"", "h0:g0", "h2:g1", "h9:g0"} {
			for _, submitter := range []string{"", "ann", "bob", "nobody"} {
				f := JobFilter{Limit: 7, Device: device, Submitter: submitter, State: state}
				for {
					got := v.Jobs(f)
					if want := naiveJobs(v, f); !slices.Equal(got, want) {
						t.Fatalf("seed %d, %+v: %d jobs, want %d, or others", seed, f, len(got), len(want))
					}
					if len(got) == 0 {
						break
					}
					found[got[0].State]++
					pages++
					f.Before = got[len(got)-1].Number
				}
			}
		}
	}
	if got := v.Jobs(JobFilter{Before: 1}); got != nil {
		t.Errorf("before the first there is %+v", got)
	}
	return pages
}

// history is a box with n succeeded jobs of ann and a few failed ones of bob,
// the failed ones first.
func history(tb testing.TB, n int) *log {
	l := box(tb)
	l.check = false
	run := func(s command.JobSpec, count int, code int32) {
		for count > 0 {
			size := min(count, 500)
			specs := make([]command.JobSpec, size)
			for i := range specs {
				specs[i] = s
			}
			var ends []any
			for i, j := range l.ok(submit(specs...)).Jobs {
				// The host's word for each, as if it had been placed in its turn.
				placed := *j
				placed.Lease, placed.Host = l.m.View().meta.LastLease+uint64(i), "box"
				ends = append(ends, exited(&placed, "i1", code))
			}
			for _, end := range ends {
				l.ok(end)
			}
			l.entries = l.entries[:0]
			count -= size
		}
	}
	bobs := pinned("box:gpu1")
	bobs.Submitter = "bob"
	run(bobs, 30, 1)
	run(pinned("box:gpu1"), n, 0)
	return l
}

// TestFindingAFewAmongManyDoesNotLookAtThemAll: the newest 20 failed jobs, all
// of them older than the many that succeeded.
func TestFindingAFewAmongManyDoesNotLookAtThemAll(t *testing.T) {
	l := history(t, 3000)
	v := l.m.View()
	failed, queued, assigned := model.JobFailed, model.JobQueued, model.JobAssigned
	last := l.queued(pinned("box:gpu1"))
	steps := 0
	for _, c := range []struct {
		name  string
		f     JobFilter
		found int
	}{
		{"failed", JobFilter{Limit: 20, State: &failed}, 20},
		{"failed, of their submitter", JobFilter{Limit: 20, State: &failed, Submitter: "bob"}, 20},
		{"failed, of the other", JobFilter{Limit: 20, State: &failed, Submitter: "ann"}, 0},
		{"failed, on the device of all", JobFilter{Limit: 20, State: &failed, Device: "box:gpu1"}, 20},
		{"the few of bob on the device of all", JobFilter{Limit: 20, Submitter: "bob", Device: "box:gpu1"}, 20},
		{"queued", JobFilter{Limit: 20, State: &queued}, 0},
		{"assigned", JobFilter{Limit: 20, State: &assigned}, 0},
	} {
		lists := v.lists(&c.f)
		steps = 0
		for i, next := range lists {
			lists[i] = func(atMost uint64) (uint64, bool) { steps++; return next(atMost) }
		}
		n, at := 0, ^uint64(0)
		for n < c.f.Limit {
			number, ok := common(lists, at)
			if !ok {
				break
			}
			n, at = n+1, number-1
		}
		if n != c.found || steps > 200 {
			t.Errorf("%s: %d found in %d steps, want %d in a few", c.name, n, steps, c.found)
		}
	}
	if got := l.m.View().Jobs(JobFilter{State: &assigned, Limit: 5}); len(got) != 1 || got[0].Number != last.Number {
		t.Errorf("%+v", got)
	}
}

func TestTheHolderOfADeviceIsFoundByItsLease(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.queued(pinned("box:gpu1"))
	for range 2 {
		v := l.m.View()
		if got := v.ActiveJobOn("box:gpu1"); got == nil || got.Number != j.Number || got != v.Job(j.Number) {
			t.Fatalf("%+v holds it", got)
		}
		if v.ActiveJobOn("box:gpu0") != nil || v.ActiveJobOn("no:such") != nil || v.ActiveJobOn("") != nil {
			t.Fatal("a free device is held")
		}
		l.ok(started(j, "i1"))
	}
	l.ok(exited(j, "i1", 0))
	if got := l.m.View().ActiveJobOn("box:gpu1"); got.Number != j.Number+1 {
		t.Errorf("%+v holds it", got)
	}
}

func BenchmarkNewestFailed(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint("finished=", n), func(b *testing.B) {
			v := history(b, n).m.View()
			failed := model.JobFailed
			b.ResetTimer()
			for range b.N {
				if got := v.Jobs(JobFilter{Limit: 20, State: &failed}); len(got) != 20 {
					b.Fatal(len(got))
				}
			}
		})
	}
}
