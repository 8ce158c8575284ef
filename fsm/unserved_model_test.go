package fsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// unservedModel says of every queued job since when nobody can serve it, by
// looking at every job and every device after every entry.
type unservedModel map[uint64]int64

func naivelyServed(v *View, j *model.Job) bool {
	sel, _ := selector.Parse(j.Selector)
	return slices.ContainsFunc(v.Devices(), func(d *model.Device) bool {
		matches := d.ID == j.Pinned || (j.Pinned == "" && sel.MatchStable(d.Label))
		return !d.Absent && matches && (d.MaxRuntimeS == 0 || scheduler.Runtime(j) <= d.MaxRuntimeS)
	})
}

// due returns the jobs that a sweep must end at this uptime, by number.
func (m unservedModel) due(uptime, grace int64) []uint64 {
	var due []uint64
	for number, since := range m {
		if uptime-since >= grace {
			due = append(due, number)
		}
	}
	slices.Sort(due)
	return due
}

// follow takes the state after an entry and compares.
func (m unservedModel) follow(t testing.TB, v *View) {
	next := unservedModel{}
	for j := range v.Queued() {
		if naivelyServed(v, j) {
			continue
		}
		since, before := m[j.Number]
		if !before {
			since = v.UptimeMS()
		}
		next[j.Number] = since
	}
	clear(m)
	for number, since := range next {
		m[number] = since
	}
	for j := range v.Queued() {
		want, unserved := m[j.Number]
		if got, ok := v.UnservedSince(j); ok != unserved || got != want {
			t.Fatalf("index %d: job %d is unserved since %d (%v), want %d (%v)", v.Index(), j.Number, got, ok, want, unserved)
		}
	}
	if due := len(m.due(v.UptimeMS(), v.Settings().NoServeGraceMS)) > 0; v.NoServeDue() != due {
		t.Fatalf("index %d: a sweep would end something: %v, want %v", v.Index(), v.NoServeDue(), due)
	}
}

// unservedStep makes up a command about what devices allow and who asks.
func unservedStep(s *stream) any {
	labels := func() (declared, detected []command.KV) {
		declared = []command.KV{{Key: "n", Value: fmt.Sprint(s.c.upTo(3))}}
		if s.one(2) {
			declared = append(declared, command.KV{Key: "fast", Value: "yes"})
		}
		return declared, []command.KV{{Key: "m_free", Value: fmt.Sprint(s.c.upTo(4))}}
	}
	v := s.l.m.View()
	switch host := s.host(); s.c.upTo(12) {
	case 0, 1, 2:
		b := register(host, fmt.Sprint("i", s.instances[host]))
		for i := range 2 {
			if !s.one(4) {
				d := command.DeviceSpec{Name: fmt.Sprint("g", i), MaxRuntimeS: pick[int64](s, 0, 60, 600, 3600, 7200, 8000)}
				d.Declared, d.Detected = labels()
				b.Devices = append(b.Devices, d)
			}
		}
		for _, j := range v.LiveJobsOn(host) {
			b.Jobs = append(b.Jobs, ref(j))
		}
		return b
	case 3:
		declared, detected := labels()
		set := command.DeviceLabels{Name: fmt.Sprint("g", s.c.upTo(2)), Labels: declared}
		source := model.Declared
		if s.one(2) {
			source, set.Labels = model.Detected, detected
		}
		return &command.LabelsReplace{Host: host, Instance: fmt.Sprint("i", s.instances[host]), Source: source, Sets: []command.DeviceLabels{set}}
	case 4:
		if s.one(2) {
			return &command.DeviceRetire{Device: fmt.Sprintf("%s:g%d", host, s.c.upTo(2))}
		}
		return &command.DeviceRetire{Host: host}
	case 5, 6, 7, 8:
		b := &command.JobEnqueue{}
		for range 1 + s.c.upTo(3) {
			spec := selecting(pick(s, "n>=0", "n>=1", "fast", "!fast", "n=0,m_free>=2", "n=2,fast"))
			if s.one(3) {
				spec = pinned(fmt.Sprintf("%s:g%d", host, s.c.upTo(2)))
			}
			spec.MaxRuntimeS = pick[int64](s, 0, 30, 60, 500, 3600, 4000, 7200, 9000)
			spec.Priority = int8(s.c.upTo(5))
			b.Jobs = append(b.Jobs, spec)
		}
		return b
	case 9:
		if s.one(3) { // somebody changes their mind
			return &command.JobKill{Job: s.jobNumber(), By: "ann"}
		}
		if s.one(4) {
			return &command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: int64(s.c.upTo(3)) * minuteMS}}}
		}
		if active := v.Active(); len(active) > 0 {
			j := active[s.c.upTo(len(active))]
			return exited(j, fmt.Sprint("i", s.instances[j.Host]), 0)
		}
	}
	b := &command.Sweep{EpochMS: hourMS}
	if s.one(2) {
		host, ms := s.host(), pick[int64](s, 3000, hourMS)
		b.Silent = []command.AgentSilence{{Host: host, Instance: fmt.Sprint("i", s.instances[host]), SilenceMS: ms, DetachedMS: ms}}
	}
	return b
}

// unservedLoad says what such a stream has carried.
type unservedLoad struct{ ended, steps, undone int }

// follows applies random entries to a machine and to a twin that is restored
// from a snapshot time and again; both have to undo entries. They must agree
// with the model and with each other.
func (c *unservedLoad) follows(t testing.TB, choose chooser, entries int) {
	l := began(t)
	l.check = false
	s, m := newStream(choose, l, 2), unservedModel{}
	twin := restored(t, l.m)
	for range entries {
		l.advanceMS(int64(s.c.upTo(5)) * pick[int64](s, 0, 1000, minuteMS, 2*minuteMS))
		if s.one(8) {
			twin = restored(t, twin)
		}
		body, undo := unservedStep(s), s.one(25)
		before := l.m.View()
		if undo {
			c.undone++
			l.m.afterCommands = func(*txn) { broken("on purpose") }
		}
		l.m.options.PanicOnInvariant, twin.options.PanicOnInvariant = !undo, !undo
		twin.afterCommands = l.m.afterCommands
		l.one(body)
		last := l.entries[len(l.entries)-1]
		if _, _, err := twin.Apply(last.index, last.term, last.data); err != nil {
			t.Fatal(err)
		}
		l.m.afterCommands, twin.afterCommands = nil, nil
		if _, sweep := body.(*command.Sweep); !undo {
			c.ended += m.judge(t, before, l.m.View(), sweep)
		}
		m.follow(t, l.m.View())
		for _, u := range l.m.View().unserved.tree.Values() {
			c.steps = max(c.steps, len(u.row.Steps))
		}
		if twin.Digest() != l.m.Digest() {
			t.Fatalf("%s and its twin %s", l.m.View(), twin.View())
		}
		if err := l.m.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// judge fails the test unless a sweep has ended the jobs that were due, and
// nothing else has ended any that nobody could serve. It returns how many were
// due.
func (m unservedModel) judge(t testing.TB, before, now *View, sweep bool) int {
	due := m.due(now.UptimeMS(), now.Settings().NoServeGraceMS)
	for j := range before.Queued() {
		end := now.Job(j.Number)
		ours := end.State == model.JobKilled && end.Origin == model.OriginDevice && (j.Pinned == "" || now.Device(j.Pinned) != nil)
		if want := sweep && slices.Contains(due, j.Number); ours != want || (ours && end.EndReason == "") {
			t.Fatalf("index %d: job %d is %s (%q), due: %v", now.Index(), j.Number, end.State, end.EndReason, want)
		}
	}
	if !sweep {
		return 0
	}
	return len(due)
}

func TestUnservedJobsEndAsANaiveModelSays(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -fsm.seed=%d", seed)
	var load unservedLoad
	for i := range uint64(20) {
		load.follows(t, seeded{rand.New(rand.NewPCG(seed, i))}, 300)
	}
	t.Logf("%d jobs ended, %d steps in a row at most, %d entries undone", load.ended, load.steps, load.undone)
	if load.ended < 100 || load.steps < 2 || load.undone < 50 {
		t.Error("too little happened to prove anything")
	}
}

// TestUnservedJobsInShortStreams is the same with rapid, which makes a failure
// small.
func TestUnservedJobsInShortStreams(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		new(unservedLoad).follows(fatal{t, rt}, drawn{rt}, rapid.IntRange(1, 60).Draw(rt, "entries"))
	})
}

// fatal fails the drawn case, so that rapid makes it smaller.
type fatal struct {
	testing.TB
	rt *rapid.T
}

func (f fatal) Fatal(args ...any)                 { f.rt.Fatal(args...) }
func (f fatal) Fatalf(format string, args ...any) { f.rt.Fatalf(format, args...) }
