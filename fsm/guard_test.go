package fsm

import (
	"fmt"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// fleetOf returns a log with n hosts of one device each.
func fleetOf(tb testing.TB, n int) *log {
	tb.Helper()
	l := began(tb)
	for i := range n {
		l.ok(register(nth(i), "i1", spec("g", 0)))
	}
	return l
}

func retiredHost(host string) *command.DeviceRetire { return &command.DeviceRetire{Host: host} }

func nth(i int) string { return fmt.Sprintf("n%02d", i) }

// cut is the evidence that the first n hosts have been silent for this long.
func cut(n int, ms int64) *command.Sweep {
	b := &command.Sweep{EpochMS: 100 * hourMS}
	for i := range n {
		b.Silent = append(b.Silent, command.AgentSilence{Host: nth(i), Instance: "i1", SilenceMS: ms, DetachedMS: ms})
	}
	return b
}

func back(hosts ...int) *command.Sweep {
	b := &command.Sweep{EpochMS: 100 * hourMS}
	for _, i := range hosts {
		b.Heard = append(b.Heard, command.AgentHeard{Host: nth(i), Instance: "i1"})
	}
	return b
}

// wantOff says which of the first n hosts are written off.
func (l *log) wantOff(from, to int, off bool) {
	l.tb.Helper()
	for i := from; i < to; i++ {
		state, reason := model.DeviceUnknown, model.ReasonNone
		if off {
			state, reason = model.DeviceUnhealthy, model.ReasonWorkerLost
		}
		l.wantDevice(nth(i)+":g", state, reason)
		if a := l.m.View().Agent(nth(i)); a.WrittenOff != off {
			l.tb.Fatalf("%s: written off %v", nth(i), a.WrittenOff)
		}
	}
}

func (l *log) wantWithheld(want bool) Withheld {
	l.tb.Helper()
	w, ok := l.m.View().Withheld()
	if ok != want {
		l.tb.Fatalf("withheld is %v (%+v), want %v", ok, w, want)
	}
	return w
}

// withheldFleet has ten hosts of which four are due and withheld.
func withheldFleet(tb testing.TB) *log {
	tb.Helper()
	l := fleetOf(tb, 10)
	l.advanceMS(10 * minuteMS)
	l.ok(cut(4, 10*minuteMS))
	l.wantWithheld(true)
	return l
}

func TestHowManyMayBeWrittenOffAtOnce(t *testing.T) {
	for _, c := range []struct {
		hosts, silent int
		floor, share  int64
		off           bool
	}{
		{1, 1, 3, 30, true},
		{3, 3, 3, 30, true},
		{4, 4, 3, 30, false},
		{10, 3, 3, 30, true},
		{10, 4, 3, 30, false},
		{13, 4, 3, 30, false}, // 30.8 %
		{14, 4, 3, 30, true},  // 28.6 %
		{20, 6, 3, 30, true},  // exactly 30 %
		{20, 7, 3, 30, false},
		{100, 3, 3, 30, true},
		{100, 31, 3, 30, false},
		{10, 4, 4, 30, true},
		{10, 4, 3, 40, true},
		{10, 1, 0, 0, false},
		{10, 10, 0, 100, true},
	} {
		t.Run(fmt.Sprint(c.silent, " of ", c.hosts, " above ", c.floor, " and ", c.share, " per cent"), func(t *testing.T) {
			l := fleetOf(t, c.hosts)
			l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "mass_floor", Value: c.floor}, {Name: "mass_percent", Value: c.share}}})
			l.advanceMS(10 * minuteMS)
			l.ok(cut(c.silent, 10*minuteMS))
			l.wantOff(0, c.silent, c.off)
			l.wantWithheld(!c.off)
			said := told(l, command.EventWriteOffWithheld)
			if c.off != (len(said) == 0) {
				t.Errorf("events %+v", said)
			}
			if !c.off && said[0].Reason != fmt.Sprintf("%d of %d agents", c.silent, c.hosts) {
				t.Errorf("it says %q", said[0].Reason)
			}
		})
	}
}

func TestWithheldDevicesAreUnknownAndTheirJobsLive(t *testing.T) {
	l := fleetOf(t, 10)
	j := l.queued(pinned("n00:g"))
	l.ok(started(j, "i1"))
	l.advanceMS(10 * minuteMS)
	l.ok(cut(4, 10*minuteMS))
	l.wantOff(0, 4, false)
	l.wantJob(j.Number, model.JobRunning)
	waiting := l.queued(pinned("n01:g"))
	l.wantJob(waiting.Number, model.JobQueued)
	l.ok(back(0, 1))
	l.wantJob(waiting.Number, model.JobAssigned)
	l.wantDevice("n00:g", model.DeviceBusy, model.ReasonNone)
}

func TestAMassDoesNotPassInSlices(t *testing.T) {
	l := fleetOf(t, 10)
	l.advanceMS(10 * minuteMS)
	l.ok(cut(3, 10*minuteMS))
	l.wantOff(0, 3, true)
	l.advanceMS(minuteMS)
	l.ok(cut(4, 11*minuteMS)) // the fourth alone is news
	l.wantOff(3, 4, false)
	l.wantWithheld(true)
	// Nor does it when one at a time is due: those not yet due are silent too.
	l = fleetOf(t, 10)
	l.advanceMS(10 * minuteMS)
	s := cut(4, 10*minuteMS)
	for i := 1; i < 4; i++ {
		s.Silent[i].SilenceMS = minuteMS
	}
	l.ok(s)
	l.wantOff(0, 4, false)
	l.wantWithheld(true)
}

func TestWhatWasWrittenOffAnHourAgoNoLongerCounts(t *testing.T) {
	l := fleetOf(t, 10)
	l.advanceMS(10 * minuteMS)
	l.ok(cut(3, 10*minuteMS))
	l.wantOff(0, 3, true)
	l.advanceMS(hourMS + 1)
	l.ok(cut(6, 10*minuteMS)) // 3 of the 7 heard lately
	l.wantOff(3, 6, true)
	l.wantWithheld(false)
}

func TestWaitingIsNoPermit(t *testing.T) {
	l := withheldFleet(t)
	for range 5 {
		l.advanceMS(hourMS)
		l.ok(cut(4, 10*hourMS))
		l.wantOff(0, 4, false)
		l.wantWithheld(true)
	}
}

func TestHostsHeardAgainEndTheWithholding(t *testing.T) {
	for name, word := range map[string]any{
		"a sweep":        back(3),
		"a report":       &command.SheetPut{Host: nth(3), Instance: "i1"},
		"a registration": register(nth(3), "i2", spec("g", 0)),
		"a new host":     nil,
		"a retired host": retiredHost(nth(3)),
		"a setting":      configured("mass_floor", 4),
	} {
		t.Run(name, func(t *testing.T) {
			l := withheldFleet(t)
			if word == nil {
				for i := 10; i < 14; i++ {
					l.wantWithheld(true)
					word = register(nth(i), "i1", spec("g", 0))
					l.ok(word)
				}
			} else {
				l.ok(word)
			}
			l.wantWithheld(false)
			l.wantOff(0, 3, false) // not by this entry
			l.ok(cut(3, 10*minuteMS))
			l.wantOff(0, 3, true)
		})
	}
}

func TestAPermitLetsOneSweepPass(t *testing.T) {
	l := withheldFleet(t)
	l.ok(configured("mass_permit", 1))
	l.wantOff(0, 4, false) // the word alone is no sweep
	l.wantWithheld(true)
	l.ok(&command.Sweep{EpochMS: hourMS}) // a sweep that is about nobody does not use it up
	l.ok(cut(4, 10*minuteMS))
	l.wantOff(0, 4, true)
	l.wantWithheld(false)
	if l.m.View().Settings().MassPermit || len(told(l, command.EventSettings)) != 1 {
		t.Error("the permit is still there, or nobody is told")
	}
	l.ok(cut(5, 10*minuteMS))
	l.wantOff(4, 5, false)
	l.wantWithheld(true)
}

func TestAPermitGivenBeforeHoldsForTheNextSuchSweepOnly(t *testing.T) {
	l := fleetOf(t, 10)
	l.ok(configured("mass_permit", 1))
	l.advanceMS(10 * minuteMS)
	l.ok(cut(3, 10*minuteMS)) // needs none
	l.wantOff(0, 3, true)
	if !l.m.View().Settings().MassPermit {
		t.Fatal("a small sweep has used it up")
	}
	l.ok(cut(6, 10*minuteMS))
	l.wantOff(3, 6, true)
	l.ok(cut(7, 10*minuteMS))
	l.wantOff(6, 7, false)
}

func TestAPermitThatWasNotNeededIsVoid(t *testing.T) {
	l := withheldFleet(t)
	l.ok(configured("mass_permit", 1))
	l.ok(back(0, 1, 2, 3))
	l.wantWithheld(false)
	if l.m.View().Settings().MassPermit {
		t.Fatal("it waits for the next fault")
	}
	l.advanceMS(10 * minuteMS)
	l.ok(cut(4, 10*minuteMS))
	l.wantOff(0, 4, false)
}

func TestThePermitDoesNotShortenTheHoldoff(t *testing.T) {
	l := withheldFleet(t)
	l.ok(configured("mass_permit", 1))
	l.lead()
	l.advanceMS(29_999)
	l.ok(cut(4, 10*minuteMS))
	l.wantOff(0, 4, false)
	l.advanceMS(5 * minuteMS)
	l.ok(cut(4, 10*minuteMS))
	l.wantOff(0, 4, true)
}

// TestTheFirstTermIsRemembered, so that leadership moves once and then an
// operator decides.
func TestTheFirstTermIsRemembered(t *testing.T) {
	l := withheldFleet(t)
	w := l.wantWithheld(true)
	if w.FirstTerm != 1 || w.LastTerm != 1 || w.SinceMS != 10*minuteMS {
		t.Errorf("%+v", w)
	}
	l.lead()
	if next := l.wantWithheld(true); next != w {
		t.Errorf("%+v: the new leader has not judged yet", next)
	}
	l.advanceMS(10 * minuteMS)
	l.ok(cut(4, 10*minuteMS))
	if len(told(l, command.EventWriteOffWithheld)) != 1 {
		t.Error("the second epoch does not say so")
	}
	if w := l.wantWithheld(true); w.FirstTerm != 1 || w.LastTerm != 2 || w.SinceMS != 10*minuteMS {
		t.Errorf("%+v", w)
	}
	l.m = restored(t, l.m)
	if w := l.wantWithheld(true); w.FirstTerm != 1 || w.LastTerm != 2 {
		t.Errorf("%+v", w)
	}
	// A later one is another.
	l.ok(back(0, 1, 2, 3))
	l.advanceMS(10 * minuteMS)
	l.ok(cut(4, 10*minuteMS))
	if w := l.wantWithheld(true); w.FirstTerm != 2 || w.LastTerm != 2 {
		t.Errorf("%+v", w)
	}
}

func TestAWithheldSweepRepeatedInATermChangesNothing(t *testing.T) {
	l := withheldFleet(t)
	for range 3 {
		before, w := rowsOnly(l.m.View()), l.wantWithheld(true)
		l.advanceMS(10_000)
		l.ok(cut(4, 11*minuteMS))
		if rowsOnly(l.m.View()) != before || len(l.events) != 0 || l.wantWithheld(true) != w {
			t.Fatalf("events %+v, withheld %+v", l.events, l.wantWithheld(true))
		}
	}
	// Nor does a sweep about a host that was written off before.
	l = fleetOf(t, 10)
	l.advanceMS(10 * minuteMS)
	l.ok(cut(1, 10*minuteMS))
	l.advanceMS(10 * minuteMS)
	l.ok(cut(5, 10*minuteMS))
	w := l.wantWithheld(true)
	before := rowsOnly(l.m.View())
	l.ok(cut(1, 10*minuteMS))
	if l.wantWithheld(true) != w || rowsOnly(l.m.View()) != before || len(l.events) != 0 {
		t.Errorf("events %+v, withheld %+v", l.events, l.wantWithheld(true))
	}
}

func TestAWithheldWriteOffDoesNotHoldUpAReturn(t *testing.T) {
	l := withheldFleet(t)
	w := l.wantWithheld(true)
	l.lead()
	l.advanceMS(10 * minuteMS)
	s := cut(5, 10*minuteMS) // one comes, one goes
	s.Silent = s.Silent[1:]
	s.Heard = back(0).Heard
	l.ok(s)
	l.wantDevice("n00:g", model.DeviceReady, model.ReasonNone)
	l.wantOff(1, 5, false)
	if now := l.wantWithheld(true); now.FirstTerm != w.FirstTerm || now.SinceMS != w.SinceMS || now.LastTerm != 2 {
		t.Errorf("%+v, was %+v", now, w)
	}
}

func TestWhatWasWrittenOffBeforeIsNotAtStake(t *testing.T) {
	l := fleetOf(t, 10)
	l.ok(configured("retain_disconnected_jobs", 1))
	j := l.queued(pinned("n00:g"))
	l.advanceMS(10 * minuteMS)
	l.ok(cut(3, 10*minuteMS))
	l.wantOff(0, 3, true)
	l.ok(cut(4, 10*minuteMS))
	w := l.wantWithheld(true)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "retain_disconnected_jobs"}, {Name: "mass_permit", Value: 1}}})
	l.ok(cut(3, 10*minuteMS)) // the policy that kept its job has gone
	l.wantJob(j.Number, model.JobLost)
	if l.wantWithheld(true) != w || !l.m.View().Settings().MassPermit {
		t.Error("it used up the permit")
	}
	l.ok(cut(4, 10*minuteMS))
	l.wantOff(0, 4, true)
}
