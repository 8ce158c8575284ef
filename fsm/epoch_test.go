package fsm

import (
	"errors"
	"math"
	"testing"

	"rcd/fsm/command"
	"rcd/internal/codec"
	"rcd/model"
)

func TestNothingCountsBeforeAnEpochBegins(t *testing.T) {
	l := newLog(t)
	l.term = 1
	l.refused(command.StaleEpoch, register("box", "i1", spec("g", 0)))
	l.term = 0
	l.lead()
	l.ok(register("box", "i1", spec("g", 0)))
}

func TestATermBeginsOnce(t *testing.T) {
	l := box(t)
	begin := &command.EpochBegin{Node: "c2", WallMS: 1}
	l.refused(command.StaleEpoch, begin)
	l.term++
	// A proposer that believed in the term before.
	if r := l.applyAs(l.term-1, encode(t, command.Request{}, begin))[0]; r.Code != command.StaleEpoch {
		t.Errorf("code %q", r.Code)
	}
	l.ok(begin)
	v := l.m.View()
	if v.Term() != l.term || v.EpochIndex() != l.index || v.EpochNode() != "c2" {
		t.Errorf("term %d index %d node %s", v.Term(), v.EpochIndex(), v.EpochNode())
	}
}

func TestAnEpochMayBeginAndGoOnInOneEntry(t *testing.T) {
	l := newLog(t)
	l.term = 7
	r := l.many(register("box", "i0", spec("g", 0)), &command.EpochBegin{WallMS: startOfTime}, register("box", "i1", spec("g", 0)))
	for i, want := range []command.Code{command.StaleEpoch, command.OK, command.OK} {
		if r[i].Code != want {
			t.Errorf("command %d: %q, want %q", i, r[i].Code, want)
		}
	}
}

func TestUptimeIsTheSumInsideEpochs(t *testing.T) {
	l := began(t)
	up := func(want int64) {
		t.Helper()
		if got := l.m.View().UptimeMS(); got != want {
			t.Fatalf("uptime %d ms, want %d", got, want)
		}
	}
	tick := func() { l.ok(&command.Sweep{}) }
	for range 10 { // far less than a millisecond each: nothing gets lost
		l.stamp += nsPerMS / 10
		tick()
	}
	up(1)
	l.advanceMS(999)
	tick()
	up(1000)
	l.advanceMS(-500) // never backwards
	tick()
	up(1000)
	l.advanceMS(500)
	tick()
	up(1000)
	l.advanceMS(hourMS) // nobody led meanwhile
	l.lead()
	up(1000)
	if e := l.m.View().EpochUptimeMS(); e != 1000 {
		t.Errorf("the epoch began at %d", e)
	}
	l.advanceMS(-3 * hourMS) // the next leader's clock is hours behind
	l.lead()
	l.advanceMS(250)
	tick()
	up(1250)
}

func TestNowNeverStandsStillNorGoesBack(t *testing.T) {
	l := began(t)
	now := func() int64 { return l.m.View().NowMS() }
	l.advanceMS(5000)
	l.ok(&command.Sweep{})
	if now() != startOfTime+5000 {
		t.Fatalf("now %d", now())
	}
	// The median of the clocks counts, not the leader's own.
	l.term++
	l.one(&command.EpochBegin{MedianMS: startOfTime + 60_000, WallMS: startOfTime + hourMS})
	if now() != startOfTime+60_000 {
		t.Fatalf("now %d", now())
	}
	// Clocks behind: it goes on from where it was.
	l.term++
	l.one(&command.EpochBegin{WallMS: startOfTime - hourMS})
	l.advanceMS(1)
	l.ok(&command.Sweep{})
	if now() != startOfTime+60_001 {
		t.Fatalf("now %d", now())
	}
}

func TestUndecodableEntriesHaltAndChangeNothing(t *testing.T) {
	good, err := command.EncodeEntry(1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	unknown := codec.Seal(codec.Header{Kind: 999, Version: 1, Flags: codec.FlagMandatory}, []byte{0xa0})
	withUnknown, err := command.EncodeEntry(1, 1, [][]byte{encode(t, command.Request{}, &command.Sweep{}), unknown})
	if err != nil {
		t.Fatal(err)
	}
	optional := codec.Seal(codec.Header{Kind: 999, Version: 1}, []byte{0xa0})
	for _, c := range []struct {
		name  string
		index uint64
		data  []byte
		want  error
	}{
		{"empty", 5, nil, command.ErrUndecodable},
		{"cut", 5, good[:len(good)-1], command.ErrUndecodable},
		{"trailing", 5, append(append([]byte{}, good...), 0), command.ErrUndecodable},
		{"unknown kind", 5, withUnknown, command.ErrUnknownKind},
		{"applied before", 1, good, ErrOrder},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := box(t)
			before := l.m.View()
			for range 2 { // and it stays halted
				if _, _, err := l.m.Apply(c.index, 1, c.data); !errors.Is(err, c.want) {
					t.Fatalf("%v, want %v", err, c.want)
				}
			}
			if l.m.View() != before {
				t.Error("the state moved")
			}
			if _, _, err := l.m.Apply(l.index+1, 1, good); err == nil {
				t.Error("a halted machine goes on")
			}
		})
	}
	t.Run("unknown optional kind", func(t *testing.T) {
		l := box(t)
		if r := l.apply(optional)[0]; r.Code != command.OK {
			t.Errorf("%+v", r)
		}
	})
}

func TestSettingsAreCheckedAndAllOrNothing(t *testing.T) {
	l := box(t)
	set := func(pairs ...command.Setting) *command.ConfigSet { return &command.ConfigSet{Settings: pairs} }
	l.refused(command.BadRequest, set())
	l.refused(command.UnknownSetting, set(command.Setting{Name: "aging_ms", Value: 1}, command.Setting{Name: "colour", Value: 1}))
	l.refused(command.SettingRefused, set(command.Setting{Name: "aging_ms", Value: 1}, command.Setting{Name: "holdoff_ms", Value: model.MinHoldoffMS - 1}))
	l.refused(command.SettingRefused, set(command.Setting{Name: "write_off_after_ms", Value: 30_000}))
	l.refused(command.SettingRefused, set(command.Setting{Name: "request_min_age_ms", Value: 15*minuteMS - 1}))
	for _, name := range SettingNames() {
		value, ok := SettingValue(l.m.View().Settings(), name)
		if !ok {
			t.Fatalf("no setting %s", name)
		}
		l.ok(set(command.Setting{Name: name, Value: value})) // every default is allowed
		l.m.View()
	}
	l.ok(set(command.Setting{Name: "retain_disconnected_jobs", Value: 1}, command.Setting{Name: "flap_limit", Value: 9}))
	if s := l.m.View().Settings(); !s.RetainDisconnected || s.FlapLimit != 9 {
		t.Errorf("%+v", s)
	}
	if s := l.m.View().Settings(); len(settingRules) != 29 || s.AgingMS != 30*minuteMS {
		t.Errorf("%d settings have names", len(settingRules))
	}
}

// TestNoStampMakesTimeRunBack: leaders whose clocks are centuries apart, at
// either end of what a stamp can say, and walls beyond what nanoseconds hold.
func TestNoStampMakesTimeRunBack(t *testing.T) {
	ends := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, startOfTime * nsPerMS, math.MaxInt64 - 1, math.MaxInt64}
	for _, wall := range []int64{math.MinInt64, -1, 0, startOfTime, math.MaxInt64 / nsPerMS, math.MaxInt64 / 7, math.MaxInt64} {
		l := box(t)
		j := l.queued(pinned("box:gpu0"))
		uptime, now := l.m.View().meta.Uptime, l.m.View().meta.Now
		for _, from := range ends {
			for _, to := range ends {
				l.stamp = from
				l.term++
				l.one(&command.EpochBegin{Node: "c1", WallMS: wall})
				if now := l.m.View().NowMS(); now < min(wall, math.MaxInt64/nsPerMS) {
					t.Fatalf("a leader's wall says %d ms, now is %d", wall, now)
				}
				l.stamp = to
				l.one(submit(pinned("box:gpu0")))
				v := l.m.View()
				if v.meta.Uptime < uptime || v.meta.Now < now || (to > from && v.meta.Uptime == uptime && uptime != math.MaxInt64) {
					t.Fatalf("from %d to %d with a wall of %d ms: uptime %d after %d, now %d after %d", from, to, wall, v.meta.Uptime, uptime, v.meta.Now, now)
				}
				uptime, now = v.meta.Uptime, v.meta.Now
			}
		}
		l.ok(exited(j, "i1", 0)) // and the table goes on
	}
}
