package fsm

import (
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// rack is a host of one device that is kept busy, so that what is submitted
// waits.
func rack(t *testing.T, ceiling int64, labels ...string) *log {
	l := began(t)
	l.ok(register("rack", "i1", spec("g", ceiling, labels...)))
	l.queued(pinned("rack:g"))
	return l
}

// relabel lets the host say something else of its device.
func (l *log) relabel(ceiling int64, labels ...string) {
	l.tb.Helper()
	l.ok(register("rack", "i1", spec("g", ceiling, labels...)))
}

func wanting(s command.JobSpec, runtime int64) command.JobSpec {
	s.MaxRuntimeS = runtime
	return s
}

// wantEnd fails the test unless nobody could serve the job.
func (l *log) wantEnd(n uint64, reason string) {
	l.tb.Helper()
	j := l.wantJob(n, model.JobKilled)
	if j.EndReason != reason || j.Origin != model.OriginDevice || j.Lease != 0 {
		l.tb.Errorf("job %d ended: %q from %s, want %q", n, j.EndReason, j.Origin, reason)
	}
}

func TestAJobThatNoDeviceMatchesAnyMoreEndsAfterTheGrace(t *testing.T) {
	l := rack(t, 0, "vram", "80G")
	j := l.queued(selecting("vram>=80G"))
	other := l.queued(selecting("vram>=40G"))
	l.advanceMS(hourMS)
	l.relabel(0, "vram", "40G")
	since := l.m.View().UptimeMS()
	if at, ok := l.m.View().UnservedSince(l.job(j.Number)); !ok || at != since {
		t.Errorf("without a device since %d (%v), want %d", at, ok, since)
	}
	if at, ok := l.m.View().NoServeAtMS(); !ok || at != since+10*minuteMS {
		t.Errorf("due at %d (%v)", at, ok)
	}
	l.advanceMS(10*minuteMS - 1)
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobQueued)
	if l.m.View().NoServeDue() {
		t.Error("due before the grace has passed")
	}
	l.advanceMS(1)
	l.ok(&command.JobPrune{}) // time passes with any entry; only a sweep ends it
	if !l.m.View().NoServeDue() || l.m.View().UnservedReason(l.job(j.Number)) == "" {
		t.Error("nobody is told that it is due, or why")
	}
	l.wantJob(j.Number, model.JobQueued)
	l.ok(&command.Sweep{})
	l.wantEnd(j.Number, `no registered device matches "vram>=80G" any more`)
	l.wantJob(other.Number, model.JobQueued)
	if _, ok := l.m.View().NoServeAtMS(); ok || l.m.View().NoServeDue() || l.m.View().unserved.len() != 0 {
		t.Error("something is left")
	}
}

func TestAServedMomentBeginsTheGraceAnew(t *testing.T) {
	l := rack(t, 0, "vram", "80G")
	j := l.queued(selecting("vram>=80G"))
	l.relabel(0, "vram", "40G")
	l.advanceMS(9 * minuteMS)
	l.relabel(0, "vram", "80G")
	l.relabel(0, "vram", "40G")
	l.advanceMS(9 * minuteMS)
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobQueued)
	l.advanceMS(minuteMS)
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobKilled)
}

func TestARebootingHostCancelsNothing(t *testing.T) {
	l := rack(t, 3600, "vram", "80G")
	waiting := []*model.Job{l.queued(pinned("rack:g")), l.queued(selecting("vram>=80G")), l.queued(wanting(selecting("vram"), 3600))}
	l.advanceMS(hourMS)
	l.ok(silent("rack", "i1", hourMS))
	l.wantDevice("rack:g", model.DeviceUnhealthy, model.ReasonWorkerLost)
	for range 3 {
		l.advanceMS(24 * hourMS)
		l.ok(&command.Sweep{EpochMS: hourMS})
	}
	l.ok(&command.DeviceFault{Device: "rack:g", Detail: "smoke"})
	l.advanceMS(24 * hourMS)
	l.ok(&command.Sweep{EpochMS: hourMS})
	for _, j := range waiting {
		l.wantJob(j.Number, model.JobQueued)
	}
}

func TestVolatileLabelsEndNoJobAndRefuseNone(t *testing.T) {
	l := began(t)
	declare := func(free string) {
		d := spec("g", 0, "vram", "80G")
		d.Detected = []command.KV{{Key: "vram_free", Value: free}}
		l.ok(register("rack", "i1", d))
	}
	declare("1G")
	j := l.queued(selecting("vram>=80G,vram_free>=40G")) // it waits for memory
	l.advanceMS(24 * hourMS)
	l.ok(&command.Sweep{EpochMS: hourMS})
	l.wantJob(j.Number, model.JobQueued)
	declare("79G")
	l.wantJob(j.Number, model.JobAssigned)
}

func TestAFallenCeilingEndsOnlyWhatIsAboveIt(t *testing.T) {
	l := rack(t, 7200, "vram", "80G")
	long, short := l.queued(wanting(selecting("vram"), 7200)), l.queued(wanting(selecting("vram"), 600))
	nailed := l.queued(wanting(pinned("rack:g"), 7200))
	none := l.queued(selecting("vram"))
	l.relabel(3600, "vram", "80G")
	l.advanceMS(6 * minuteMS)
	l.relabel(300, "vram", "80G") // a second step
	l.advanceMS(4 * minuteMS)
	l.ok(&command.Sweep{})
	l.wantEnd(long.Number, `no registered device that matches "vram" allows 7200 s any more`)
	l.wantEnd(nailed.Number, "rack:g no longer allows 7200 s")
	l.wantJob(short.Number, model.JobQueued)
	l.advanceMS(6*minuteMS - 1)
	l.ok(&command.Sweep{})
	l.wantJob(short.Number, model.JobQueued)
	l.advanceMS(1)
	l.ok(&command.Sweep{})
	l.wantEnd(short.Number, `no registered device that matches "vram" allows 600 s any more`)
	l.wantJob(none.Number, model.JobQueued)
}

func TestAPinnedJobWhoseDeviceIsNoLongerDeclaredEndsAfterTheGrace(t *testing.T) {
	l := rack(t, 0)
	gone, back := l.queued(pinned("rack:g")), l.queued(pinned("rack:g"))
	l.ok(register("rack", "i1")) // it declares nothing
	l.refused(command.UnknownDevice, submit(pinned("rack:g")))
	l.refused(command.NoMatchingDevice, submit(selecting("!vram")))
	l.advanceMS(9 * minuteMS)
	l.relabel(0)
	l.advanceMS(9 * minuteMS)
	l.ok(&command.Sweep{})
	l.wantJob(gone.Number, model.JobQueued)
	l.ok(&command.JobKill{Job: back.Number, By: "ann"})
	l.ok(register("rack", "i1"))
	l.advanceMS(10 * minuteMS)
	l.ok(&command.Sweep{})
	l.wantEnd(gone.Number, "its host no longer declares rack:g")
}

func TestWhatNobodyServesEndsInTheHoldoffToo(t *testing.T) {
	l := rack(t, 0, "vram", "80G")
	j := l.queued(selecting("vram>=80G"))
	l.relabel(0, "vram", "40G")
	l.advanceMS(10 * minuteMS)
	l.ok(&command.JobPrune{})
	l.lead()
	l.ok(&command.Sweep{}) // it is no verdict from silence
	l.wantJob(j.Number, model.JobKilled)
}

func TestTheTimeBetweenEpochsDoesNotCount(t *testing.T) {
	l := rack(t, 0, "vram", "80G")
	j := l.queued(selecting("vram>=80G"))
	l.relabel(0, "vram", "40G")
	l.advanceMS(24 * hourMS) // nobody led
	l.lead()
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobQueued)
}

func TestTheGraceIsASetting(t *testing.T) {
	l := rack(t, 0, "vram", "80G")
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "no_serve_grace_ms", Value: 2 * minuteMS}}})
	j := l.queued(selecting("vram>=80G"))
	l.relabel(0, "vram", "40G")
	l.advanceMS(2*minuteMS - 1)
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobQueued)
	l.advanceMS(1)
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobKilled)
}

// TestAJobThatComesWithinTheEntryHasItsOwnGrace: the devices of a target rise,
// a job comes, and they fall again, all in one entry.
func TestAJobThatComesWithinTheEntryHasItsOwnGrace(t *testing.T) {
	for name, between := range map[string]func(old uint64) []any{
		"one that still waits": func(uint64) []any { return nil },
		"one that is killed":   func(old uint64) []any { return []any{&command.JobKill{Job: old, By: "ann"}} },
	} {
		t.Run(name, func(t *testing.T) {
			l := rack(t, 3600, "vram", "80G")
			old := l.queued(wanting(selecting("vram"), 3600))
			l.relabel(60, "vram", "80G")
			l.advanceMS(11 * minuteMS)
			bodies := append(between(old.Number), register("rack", "i1", spec("g", 1800, "vram", "80G")),
				submit(wanting(selecting("vram"), 1800)), register("rack", "i1", spec("g", 60, "vram", "80G")), &command.Sweep{})
			results := l.many(bodies...)
			fresh := results[len(results)-3].Jobs[0]
			l.wantJob(old.Number, model.JobKilled)
			l.wantJob(fresh.Number, model.JobQueued)
			l.advanceMS(10*minuteMS - 1)
			l.ok(&command.Sweep{})
			l.wantJob(fresh.Number, model.JobQueued)
			l.advanceMS(1)
			l.ok(&command.Sweep{})
			l.wantJob(fresh.Number, model.JobKilled)
		})
	}
}

func TestADeviceThatComesBackInTheSweepsEntrySavesItsJobs(t *testing.T) {
	l := rack(t, 0, "vram", "80G")
	j := l.queued(selecting("vram>=80G"))
	l.relabel(0, "vram", "40G")
	l.advanceMS(hourMS)
	l.many(register("rack", "i1", spec("g", 0, "vram", "80G")), &command.Sweep{})
	l.wantJob(j.Number, model.JobQueued)
}

func TestANewAgingDoesNotBeginTheGraceAnew(t *testing.T) {
	l := rack(t, 0, "vram", "80G")
	s := selecting("vram>=80G")
	s.Priority = 5
	alone, nailed := l.queued(s), l.queued(func() command.JobSpec { s := pinned("rack:g"); s.Priority = 5; return s }())
	l.ok(register("rack", "i1"))
	l.advanceMS(9 * minuteMS)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: 0}}})
	l.advanceMS(minuteMS)
	l.ok(&command.Sweep{})
	l.wantJob(alone.Number, model.JobKilled)
	l.wantJob(nailed.Number, model.JobKilled)
}

// TestARestoredMachineRemembersCeilingsThatNoDeviceHas: the rows go by
// ceilings of the past, which the scheduler that is built again cannot see in
// the devices.
func TestARestoredMachineRemembersCeilingsThatNoDeviceHas(t *testing.T) {
	for _, undone := range []bool{false, true} {
		l := rack(t, 3600, "vram", "80G")
		long := l.queued(wanting(selecting("vram"), 3600))
		l.queued(wanting(selecting("vram"), 900))
		l.relabel(1000, "vram", "80G")
		l.advanceMS(minuteMS)
		l.relabel(500, "vram", "80G")
		twin := restored(t, l.m)
		if undone {
			l.m.options.PanicOnInvariant, l.m.afterCommands = false, func(*txn) { broken("on purpose") }
			l.one(register("rack", "i1"))
			l.m.options.PanicOnInvariant, l.m.afterCommands = true, nil
			twin = restored(t, l.m)
		}
		l.ok(&command.JobKill{Job: long.Number, By: "ann"})
		last := l.entries[len(l.entries)-1]
		if _, _, err := twin.Apply(last.index, last.term, last.data); err != nil {
			t.Fatal(err)
		}
		if twin.Digest() != l.m.Digest() {
			t.Errorf("undone %v: %s and %s", undone, twin.View(), l.m.View())
		}
		if got := l.m.View().unserved.get("s vram").Steps; len(got) != 1 || got[0].CeilingS != 500 {
			t.Errorf("undone %v: steps %+v", undone, got)
		}
	}
}

// TestAJobTakenBackIsSeen: it was served when it was placed, and comes back to
// devices that have changed since.
func TestAJobTakenBackIsSeen(t *testing.T) {
	l := began(t)
	l.ok(register("rack", "i1", spec("g", 0, "vram", "80G")))
	j := l.queued(selecting("vram>=80G"))
	l.relabel(0, "vram", "40G")
	l.advanceMS(minuteMS)
	s := silent("rack", "i1", 3000)
	s.Unordered = []uint64{j.Number}
	l.ok(s)
	l.wantJob(j.Number, model.JobQueued)
	l.advanceMS(10*minuteMS - 1)
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobQueued)
	l.advanceMS(1)
	l.ok(&command.Sweep{})
	l.wantJob(j.Number, model.JobKilled)
}

func TestOneSweepEndsAtMostAThousandTheLongestUnservedFirst(t *testing.T) {
	l := rack(t, 3600, "vram", "80G", "fast", "yes")
	l.check = false
	array := func(n int, s command.JobSpec) *command.JobEnqueue {
		return submit(slices.Repeat([]command.JobSpec{s}, n)...)
	}
	late := l.ok(array(700, wanting(selecting("fast"), 60))).Jobs
	early := l.ok(array(700, wanting(selecting("vram"), 60))).Jobs
	l.relabel(3600, "fast", "yes")
	l.advanceMS(minuteMS)
	l.relabel(3600)
	l.advanceMS(hourMS)
	for _, want := range []struct{ early, late int }{{0, 400}, {0, 0}} {
		l.ok(&command.Sweep{})
		count := func(jobs []*model.Job) (n int) {
			for _, j := range jobs {
				if l.job(j.Number).State == model.JobQueued {
					n++
				}
			}
			return n
		}
		if e, n := count(early), count(late); e != want.early || n != want.late {
			t.Fatalf("%d of the early and %d of the late ones wait, want %+v", e, n, want)
		}
		if l.m.View().NoServeDue() != (want.late > 0) {
			t.Error("due or not, and the contrary is said")
		}
		if want.late > 0 && l.job(late[299].Number).State.Terminal() != l.job(late[0].Number).State.Terminal() {
			t.Error("not in queue order")
		}
		if err := l.m.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckFindsAWrongRowOfTheUnserved(t *testing.T) {
	put := func(v *View, u model.Unserved) { v.unserved.tree.Set(u.Target, &cell[model.Unserved]{row: u}) }
	step := func(ceiling, since int64) model.UnservedStep {
		return model.UnservedStep{CeilingS: ceiling, SinceUptimeMS: since}
	}
	for _, c := range []struct {
		name     string
		breakIt  func(*View)
		contains string
	}{
		{"a row gone", func(v *View) { v.unserved.tree.Delete("s vram") }, "is served: false"},
		{"a row for nobody", func(v *View) { put(v, model.Unserved{Target: "s zz", Steps: []model.UnservedStep{step(-1, 0)}}) }, "nobody waits"},
		{"a row for the served", func(v *View) {
			put(v, model.Unserved{Target: "d rack:g", Steps: []model.UnservedStep{step(-1, 0)}})
		}, "is served: true"},
		{"another ceiling", func(v *View) { put(v, model.Unserved{Target: "s vram", Steps: []model.UnservedStep{step(61, 0)}}) }, "its row says 61"},
		{"a step too many", func(v *View) {
			put(v, model.Unserved{Target: "s vram", Steps: []model.UnservedStep{step(9000, 0), step(60, 0)}})
		}, "needs its step"},
		{"rising ceilings", func(v *View) {
			put(v, model.Unserved{Target: "s vram", Steps: []model.UnservedStep{step(50, 0), step(60, 0)}})
		}, "out of order"},
		{"falling times", func(v *View) {
			put(v, model.Unserved{Target: "s vram", Steps: []model.UnservedStep{step(90, 1), step(60, 0)}})
		}, "out of order"},
		{"the future", func(v *View) {
			put(v, model.Unserved{Target: "s vram", Steps: []model.UnservedStep{step(60, 1<<50)}})
		}, "since"},
		{"another key", func(v *View) {
			v.unserved.tree.Set("s zz", &cell[model.Unserved]{row: model.Unserved{Target: "s vram", Steps: []model.UnservedStep{step(60, 0)}}})
		}, "stored under"},
		{"no step", func(v *View) { put(v, model.Unserved{Target: "s vram"}) }, "no step"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := rack(t, 3600, "vram", "80G")
			l.advanceMS(minuteMS)
			l.queued(wanting(selecting("vram"), 3600))
			l.queued(pinned("rack:g"))
			l.relabel(60, "vram", "80G")
			c.breakIt(l.m.work)
			if err := l.m.Check(); err == nil || !strings.Contains(err.Error(), c.contains) {
				t.Errorf("found %v, want %q", err, c.contains)
			}
		})
	}
}
