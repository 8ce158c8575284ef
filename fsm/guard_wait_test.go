package fsm

import (
	"fmt"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// fallenSilent is eight hosts of which four have been silent past the bound, and
// the sweep that says so.
func fallenSilent(t *testing.T) (*log, *command.Sweep) {
	l := began(t)
	for i := range 8 {
		l.ok(register(fmt.Sprintf("h%d", i), "i1", spec("gpu0", 0)))
	}
	l.advanceMS(6 * minuteMS)
	s := &command.Sweep{EpochMS: hourMS}
	for i := range 4 {
		s.Silent = append(s.Silent, command.AgentSilence{Host: fmt.Sprintf("h%d", i), Instance: "i1", SilenceMS: 5 * minuteMS, DetachedMS: 5 * minuteMS})
	}
	l.ok(s)
	return l, s
}

func (l *log) wantStill(want bool, why string) {
	l.tb.Helper()
	if got := l.m.View().StillWithheld(l.term); got != want {
		l.tb.Errorf("%s: still withheld is %v", why, got)
	}
}

func TestAWithheldWriteOffIsStillWithheldUntilSomethingChanges(t *testing.T) {
	set := func(name string, value int64) func(l *log) {
		return func(l *log) { l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: name, Value: value}}}) }
	}
	for why, change := range map[string]func(l *log){
		"a permit":           set("mass_permit", 1),
		"another floor":      set("mass_floor", 4),
		"another percentage": set("mass_percent", 50),
		"another epoch":      func(l *log) { l.lead() },
		"a host was heard":   func(l *log) { l.ok(register("h0", "i1", spec("gpu0", 0))) },
	} {
		t.Run(why, func(t *testing.T) {
			l, s := fallenSilent(t)
			l.wantStill(true, "withheld just now")
			l.ok(s)
			l.wantStill(true, "said again")
			change(l)
			l.wantStill(false, why)
		})
	}
}

func TestAWithheldWriteOffOutlastsTheHourThatItCountsIn(t *testing.T) {
	l, s := fallenSilent(t)
	for range 3 {
		l.advanceMS(hourMS)
		l.ok(s)
		l.wantStill(true, "time alone")
	}
	l.wantDevice("h0:gpu0", model.DeviceUnknown, model.ReasonNone)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "mass_permit", Value: 1}}})
	l.ok(s)
	l.wantDevice("h0:gpu0", model.DeviceUnhealthy, model.ReasonWorkerLost)
	if _, waits := l.m.View().Withheld(); waits {
		t.Error("it passed and waits all the same")
	}
}
