package fsm

import (
	"errors"
	"slices"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func TestAJobIsFoundByExactIDThenByUniquePrefix(t *testing.T) {
	l := box(t)
	l.check = false
	find := func(id string) (uint64, error) {
		j, err := l.m.View().ResolveJob(id)
		if err != nil {
			return 0, err
		}
		return j.Number, nil
	}
	if _, err := find("j-"); !errors.Is(err, ErrNotFound) {
		t.Errorf("in an empty table: %v", err)
	}
	for range 120 {
		l.queued(pinned("box:gpu1"))
	}
	for _, c := range []struct {
		id   string
		want uint64
		err  error
	}{
		{"j-1", 1, nil}, // exact, although nineteen others begin with it
		{"j-12", 12, nil},
		{"j-120", 120, nil},
		{"j-121", 0, ErrNotFound},
		{"j-", 0, ErrAmbiguous},
		{"j", 0, ErrAmbiguous},
		{"", 0, ErrNotFound},
		{"12", 0, ErrNotFound},
		{"j-0", 0, ErrNotFound},
		{"j-01", 0, ErrNotFound},
		{"l-1", 0, ErrNotFound},
		{"j-99999999999999999999", 0, ErrNotFound},
		{"j-1844674407370955161", 0, ErrNotFound},
	} {
		if got, err := find(c.id); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %d, %v; want %d, %v", c.id, got, err, c.want, c.err)
		}
	}
	for n := range uint64(11) { // 1 to 11 go: 12 to 120 are left
		if n > 0 {
			l.ok(exited(l.job(n), "i1", 0))
		}
	}
	l.ok(exited(l.job(11), "i1", 0))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_finished", Value: 0}}})
	l.ok(&command.JobPrune{Limit: 100})
	if got, err := find("j-1"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := find("j-11"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("%d, %v", got, err)
	}
	for j := range l.m.View().Queued() {
		if j.Number > 13 && j.Number < 110 || j.Number > 112 {
			l.ok(&command.JobKill{Job: j.Number, By: "ann"})
		}
	}
	l.ok(&command.JobKill{Job: 112, By: "ann"})
	l.ok(&command.JobKill{Job: 110, By: "ann"})
	l.ok(&command.JobPrune{Limit: 1000})
	if got, err := find("j-11"); got != 111 || err != nil { // the only one that begins with it
		t.Errorf("%d, %v", got, err)
	}
}

func TestHistoryIsNewestFirstAndFiltered(t *testing.T) {
	l := box(t)
	queued, killed := model.JobQueued, model.JobKilled
	for i := range 8 {
		s := pinned("box:gpu1")
		s.Submitter = []string{"ann", "bob"}[i%2]
		l.queued(s)
	}
	onRack := l.queued(selecting("rack")) // runs on gpu0
	waiting := l.queued(selecting("rack"))
	l.ok(&command.JobKill{Job: 8, By: "bob"})
	numbers := func(f JobFilter) (got []uint64) {
		for _, j := range l.m.View().Jobs(f) {
			got = append(got, j.Number)
		}
		return got
	}
	for _, c := range []struct {
		name string
		f    JobFilter
		want []uint64
	}{
		{"newest", JobFilter{Limit: 3}, []uint64{10, 9, 8}},
		{"no limit is one", JobFilter{}, []uint64{10}},
		{"submitter", JobFilter{Limit: 200, Submitter: "bob"}, []uint64{8, 6, 4, 2}},
		{"device, those that wait for it included", JobFilter{Limit: 3, Device: "box:gpu1"}, []uint64{8, 7, 6}},
		{"device of a selector job", JobFilter{Limit: 9, Device: "box:gpu0"}, []uint64{onRack.Number}},
		{"state", JobFilter{Limit: 9, State: &killed}, []uint64{8}},
		{"all three", JobFilter{Limit: 9, Device: "box:gpu1", Submitter: "bob", State: &queued}, []uint64{6, 4, 2}},
		{"nobody", JobFilter{Limit: 9, Submitter: "an"}, nil},
	} {
		if got := numbers(c.f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	v := l.m.View()
	if a := v.Active(); len(a) != 2 || a[0].Number != onRack.Number || a[1].Number != 1 {
		t.Errorf("active %v", a)
	}
	if live := v.LiveJobsOn("box"); len(live) != 2 || v.LiveJobsOn("bo") != nil {
		t.Errorf("live %v", live)
	}
	// Positions: pinned on the device, selector in the fleet.
	if p := v.QueuePosition(7); p != 6 {
		t.Errorf("pinned job at %d, want 6", p)
	}
	if p := v.QueuePosition(waiting.Number); p != 7 {
		t.Errorf("selector job at %d, want 7", p)
	}
	if v.QueuePosition(1) != 0 || v.QueuePosition(999) != 0 {
		t.Error("a job that is not queued has a position")
	}
	all, free, err := v.Matching("rack=r3")
	if err != nil || !slices.Equal(all, []string{"box:gpu0"}) || free != nil {
		t.Errorf("matching %v %v %v", all, free, err)
	}
	if n, err := v.QueueDepth("rack=r3"); n != 1 || err != nil {
		t.Errorf("depth %d, %v", n, err)
	}
	if n, err := v.QueueDepth("!rack"); n != 6 || err != nil { // gpu1: the six pinned to it
		t.Errorf("depth %d, %v", n, err)
	}
	if _, err := v.QueueDepth("=="); err == nil {
		t.Error("a bad selector has a depth")
	}
	c := v.Counts()
	if c.Jobs != 10 || c.Queued != 7 || c.Active != 2 || c.Finished != 1 || c.Selectors != 1 || c.Devices != 2 {
		t.Errorf("%+v", c)
	}
	if d := v.DevicesOn("box"); len(d) != 2 || len(v.Devices()) != 2 || len(v.Agents()) != 1 || len(v.Leases()) != 2 {
		t.Errorf("%v", d)
	}
	if _, err := v.RecoveryHistory("no:such"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestHostsWhoseNamesBeginAlikeAreKeptApart(t *testing.T) {
	l := began(t)
	l.ok(register("a", "i1", spec("g", 0)))
	l.ok(register("a:b", "i1", spec("g", 0)))
	l.ok(register("ab", "i1", spec("g", 0)))
	l.advanceMS(minuteMS)
	l.ok(silent("a", "i1", 3000))
	l.wantDevice("a:g", model.DeviceUnknown, model.ReasonNone)
	l.wantDevice("a:b:g", model.DeviceReady, model.ReasonNone)
	l.wantDevice("ab:g", model.DeviceReady, model.ReasonNone)
}
