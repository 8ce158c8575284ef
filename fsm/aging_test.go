package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func ranked(s command.JobSpec, priority int8) command.JobSpec {
	s.Priority = priority
	return s
}

func aging(ms int64) *command.ConfigSet {
	return &command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: ms}}}
}

// TestALowJobStartsWithinItsLevelsTimesAging: under an endless stream of higher
// priority that alone would keep the device busy, for a job that is pinned and
// for one that would take any device.
func TestALowJobStartsWithinItsLevelsTimesAging(t *testing.T) {
	const slotMS = 30_000
	for _, c := range []struct {
		low, high int8
		agingMS   int64
		spec      command.JobSpec
	}{
		{0, 1, 600_000, pinned("box:gpu0")},
		{-2, 3, 120_000, selecting("rack=r3")},
		{-10, 10, 60_000, pinned("box:gpu0")},
		{-10, 10, 60_000, selecting("vram>=40G")},
	} {
		t.Run(fmt.Sprintf("%s%s from %d against %d", c.spec.Pinned, c.spec.Selector, c.low, c.high), func(t *testing.T) {
			l := box(t)
			l.check = false
			l.ok(aging(c.agingMS))
			running := l.queued(pinned("box:gpu0"))
			low := l.queued(ranked(c.spec, c.low)).Number
			bound := int64(c.high-c.low) * c.agingMS
			began := l.m.View().UptimeMS()
			for l.job(low).State == model.JobQueued {
				// Two come for each that ends: the queue of higher ones only grows.
				l.many(submit(ranked(pinned("box:gpu0"), c.high)), submit(ranked(selecting("rack=r3"), c.high)))
				l.advanceMS(slotMS)
				l.ok(exited(running, "i1", 0))
				running = l.m.View().ActiveJobOn("box:gpu0")
				if waited := l.m.View().UptimeMS() - began; waited > 10*bound {
					t.Fatalf("it still waits after %d ms", waited)
				}
			}
			// Those submitted within the bound may pass it, and each takes a slot:
			// two come a slot, so it starts at most three times as late.
			if waited := l.m.View().UptimeMS() - began; waited < bound || waited > 3*bound+2*slotMS {
				t.Errorf("it waited %d ms, the bound is %d", waited, bound)
			}
		})
	}
}

// TestNoLaterJobPassesAfterTheBound: in a stream that the device can just
// carry, the low job starts as soon as the bound has passed.
func TestNoLaterJobPassesAfterTheBound(t *testing.T) {
	const slotMS = 10_000
	l := box(t)
	l.check = false
	l.ok(aging(60_000))
	running := l.queued(pinned("box:gpu0"))
	low := l.queued(ranked(pinned("box:gpu0"), -5)).Number
	began := l.m.View().UptimeMS()
	const bound = 15 * 60_000
	for l.job(low).State == model.JobQueued {
		l.queued(ranked(pinned("box:gpu0"), 10))
		l.advanceMS(slotMS)
		l.ok(exited(running, "i1", 0))
		running = l.m.View().ActiveJobOn("box:gpu0")
		if l.m.View().UptimeMS()-began > 2*bound {
			t.Fatal("it still waits")
		}
	}
	if waited := l.m.View().UptimeMS() - began; waited < bound-slotMS || waited > bound+slotMS {
		t.Errorf("it waited %d ms, want %d and one slot at most", waited, bound)
	}
}

// order is the queue, first to last.
func (l *log) order() (numbers []uint64) {
	for j := range l.m.View().Queued() {
		numbers = append(numbers, j.Number)
	}
	return numbers
}

// TestWithoutAgingTheOrderIsStrict: priority, then number, whatever the time.
func TestWithoutAgingTheOrderIsStrict(t *testing.T) {
	l := box(t)
	l.ok(aging(0))
	held := l.queued(pinned("box:gpu0"))
	var all []*model.Job
	for i, priority := range []int8{0, 10, -10, 0, 3, -1, 10, -10, 1, 0} {
		spec := pinned("box:gpu0")
		if i%2 == 1 {
			spec = selecting("rack=r3")
		}
		all = append(all, l.queued(ranked(spec, priority)))
		l.advanceMS(10 * hourMS)
	}
	slices.SortFunc(all, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Number, b.Number))
	})
	var want []uint64
	for _, j := range all {
		want = append(want, j.Number)
	}
	if got := l.order(); !slices.Equal(got, want) {
		t.Fatalf("order %v, want %v", got, want)
	}
	for _, number := range want {
		l.ok(exited(held, "i1", 0))
		held = l.wantJob(number, model.JobAssigned)
	}
}

// TestANewAgingOrdersTheQueueInThatEntry: what the same entry frees is given
// away under the new order already, what was queued in it stands under it too,
// and a refused change moves nobody.
func TestANewAgingOrdersTheQueueInThatEntry(t *testing.T) {
	l := box(t)
	held := l.queued(pinned("box:gpu0"))
	old := l.queued(pinned("box:gpu0")).Number
	l.advanceMS(20 * minuteMS)
	high := l.queued(ranked(pinned("box:gpu0"), 1)).Number
	if got := l.order(); !slices.Equal(got, []uint64{high, old}) {
		t.Fatalf("order %v", got)
	}
	l.refused(command.SettingRefused, aging(-1))
	if got := l.order(); !slices.Equal(got, []uint64{high, old}) {
		t.Fatalf("a refused change moved them: %v", got)
	}
	r := l.many(submit(ranked(selecting("rack=r3"), 1)), aging(10*minuteMS), submit(ranked(selecting("rack=r3"), 2)), exited(held, "i1", 0))
	first, second := r[0].Jobs[0].Number, r[2].Jobs[0].Number
	l.wantJob(old, model.JobAssigned) // 20 minutes are two levels now
	if got := l.order(); !slices.Equal(got, []uint64{second, high, first}) {
		t.Errorf("order %v, want %v", got, []uint64{second, high, first})
	}
	restored(t, l.m)
	for _, j := range l.m.View().Active() {
		l.ok(exited(j, "i1", 0))
	}
	l.wantJob(second, model.JobAssigned)
}

// TestARequeuedJobHasItsPlaceUnderThePresentAging: the aging has changed while
// it was placed.
func TestARequeuedJobHasItsPlaceUnderThePresentAging(t *testing.T) {
	l := box(t)
	l.advanceMS(hourMS)
	j := l.queued(ranked(pinned("box:gpu0"), -1))
	l.advanceMS(20 * minuteMS)
	behind := l.queued(pinned("box:gpu0"))
	l.ok(aging(10 * minuteMS))
	dead := silent("box", "i1", 3000)
	dead.Unordered = []uint64{j.Number}
	l.ok(dead)
	l.wantJob(j.Number, model.JobQueued)
	if got := l.order(); !slices.Equal(got, []uint64{j.Number, behind.Number}) {
		t.Errorf("order %v", got)
	}
}
