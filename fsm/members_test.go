package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"rcd/fsm/command"
)

func member(id string, supports uint32) *command.MemberPut {
	return &command.MemberPut{ID: id, Incarnation: id + "-1", Supports: supports, Build: "v1"}
}

func raise(level uint32, members ...string) *command.FeatureRaise {
	return &command.FeatureRaise{Level: level, Members: members}
}

// knowing returns a machine of a build that knows the level, with what l has
// applied so far.
func knowing(l *log, level uint32) *Machine {
	l.tb.Helper()
	m := New(Options{PanicOnInvariant: true, Knows: level})
	for _, e := range l.entries {
		if _, _, err := m.Apply(e.index, e.term, e.data); err != nil {
			l.tb.Fatal(err)
		}
	}
	return m
}

func TestControllersSpeakForThemselves(t *testing.T) {
	l := began(t)
	long := strings.Repeat("x", maxNamed+1)
	for _, body := range []*command.MemberPut{
		{Supports: 1}, {ID: "c1"}, {ID: long, Supports: 1},
		{ID: "c1", Supports: 1, Incarnation: long}, {ID: "c1", Supports: 1, Build: long},
	} {
		l.refused(command.BadRequest, body)
		l.told()
	}
	l.refused(command.NotFound, &command.MemberRemove{ID: "c1"})
	l.ok(member("c2", 1))
	l.told(command.EventMembers)
	l.ok(member("c1", 2))
	l.advanceMS(5000)
	before := rowsOnly(l.m.View())
	l.ok(member("c1", 2)) // nothing new
	l.told()
	if rowsOnly(l.m.View()) != before {
		t.Error("the same word again changed a row")
	}
	rows := l.m.View().Members()
	if len(rows) != 2 || rows[0].ID != "c1" || rows[0].Supports != 2 || rows[0].Build != "v1" || rows[0].SinceMS != startOfTime {
		t.Errorf("%+v", rows)
	}
	upgraded := member("c2", 3)
	upgraded.Build = "v3"
	l.ok(upgraded)
	l.told(command.EventMembers)
	if e := l.events[0]; e.Reason != "c2" {
		t.Errorf("%+v", e)
	}
	l.ok(&command.MemberRemove{ID: "c2"})
	l.told(command.EventMembers)
	for i := len(l.m.View().Members()); i < maxMembers; i++ {
		l.ok(member(fmt.Sprint("n", i), 1))
	}
	l.refused(command.LimitExceeded, member("one-more", 1))
	l.ok(member("c1", 1)) // known ones may still speak, also of less
	l.term++
	l.refused(command.StaleEpoch, member("c1", 2))
	l.refused(command.StaleEpoch, &command.MemberRemove{ID: "c1"})
	l.refused(command.StaleEpoch, raise(2))
}

func TestARaiseNeedsEveryMembersWord(t *testing.T) {
	l := began(t)
	l.m = knowing(l, 9)
	l.refused(command.FeatureRefused, raise(2)) // nobody has spoken
	l.ok(member("c1", 3))
	l.ok(member("c2", 2))
	l.refused(command.FeatureRefused, raise(0))
	l.refused(command.FeatureRefused, raise(1))
	if r := l.refused(command.FeatureRefused, raise(3)); !strings.Contains(r.Message, "c2") {
		t.Errorf("it does not say who: %s", r.Message)
	}
	if r := l.refused(command.FeatureRefused, raise(2, "c1", "c2", "c3")); !strings.Contains(r.Message, "c3") {
		t.Errorf("it does not say who has not spoken: %s", r.Message)
	}
	l.told()
	r := l.sent("k", raise(2, "c1", "c2"))
	if r.Code != command.OK || l.m.View().FeatureLevel() != 2 {
		t.Fatalf("%+v, level %d", r, l.m.View().FeatureLevel())
	}
	l.told(command.EventFeature)
	if l.events[0].Reason != "2" {
		t.Errorf("%+v", l.events)
	}
	l.refused(command.FeatureRefused, raise(2))
	if again := l.sent("k", raise(2, "c1", "c2")); !again.Repeat || again.Code != command.OK {
		t.Errorf("repeated: %+v", again)
	}
	l.refused(command.FeatureRefused, member("c4", 1)) // it could not read the log
	l.refused(command.FeatureRefused, member("c1", 1))
	l.ok(&command.MemberRemove{ID: "c2"})
	l.ok(raise(3)) // who was behind is gone
}

// unknownLevel is the first feature level that this build does not know.
const unknownLevel = featureLevel + 1

// TestAnUnknownLevelHaltsAndChangesNothing: the entry that raises the level has
// a meaning that this build does not know; another build goes on from it.
func TestAnUnknownLevelHaltsAndChangesNothing(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(member("c1", unknownLevel))
	newer := knowing(l, unknownLevel)
	before, rows := l.m.View(), contents(t, l.m)
	next := submit(pinned("box:gpu1"))
	data, err := command.EncodeEntry(l.term, l.stamp, [][]byte{
		encode(t, command.Request{}, exited(j, "i1", 0)), encode(t, command.Request{}, raise(unknownLevel)), encode(t, command.Request{}, next),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := l.m.Apply(l.index+1, l.term, data); !errors.Is(err, ErrFeatureLevel) {
			t.Fatalf("%v, want ErrFeatureLevel", err)
		}
	}
	if l.m.View() != before || !bytes.Equal(contents(t, l.m), rows) {
		t.Error("the state moved")
	}
	if err := l.m.Check(); err != nil {
		t.Error(err)
	}
	// A newer build: from this one's snapshot and the same log as from its own.
	fresh := New(Options{PanicOnInvariant: true, Knows: unknownLevel})
	if err := fresh.Restore(bytes.NewReader(contents(t, l.m))); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Machine{newer, fresh} {
		results, events, err := m.Apply(l.index+1, l.term, data)
		if err != nil || len(results) != 3 || results[1].Code != command.OK || len(events) == 0 {
			t.Fatalf("%v, %v", results, err)
		}
	}
	if newer.Digest() != fresh.Digest() || newer.View().FeatureLevel() != unknownLevel {
		t.Errorf("%s and %s", newer.View(), fresh.View())
	}
	// And this build does not take the newer one's snapshot.
	if err := l.m.Restore(bytes.NewReader(contents(t, newer))); !errors.Is(err, ErrSnapshot) || !errors.Is(err, ErrFeatureLevel) {
		t.Errorf("%v, want ErrSnapshot and ErrFeatureLevel", err)
	}
	if l.m.View() != before {
		t.Error("the refused snapshot changed the state")
	}
	if restored(t, newer).Digest() != newer.Digest() {
		t.Error("the newer build does not read its own snapshot")
	}
}

// TestAnUnknownLevelHaltsEvenInABrokenEntry: builds that know the level may not
// have met the broken invariant, so this one must not go on without the entry.
func TestAnUnknownLevelHaltsEvenInABrokenEntry(t *testing.T) {
	l := box(t)
	l.ok(member("c1", unknownLevel))
	l.m.options.PanicOnInvariant = false
	l.m.afterCommands = func(*txn) { broken("on purpose") }
	before := l.m.View()
	data, err := command.EncodeEntry(l.term, l.stamp, [][]byte{encode(t, command.Request{}, raise(unknownLevel))})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.m.Apply(l.index+1, l.term, data); !errors.Is(err, ErrFeatureLevel) || l.m.View() != before {
		t.Errorf("%v, want ErrFeatureLevel", err)
	}
}
