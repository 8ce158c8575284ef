package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// busyBox is a state with something in every table and index.
func busyBox(t testing.TB) *log {
	l := box(t)
	done := l.queued(pinned("box:gpu0"))
	l.ok(started(done, "i1"))
	l.ok(exited(done, "i1", 0))
	l.apply(encode(t, keyed("k", "b", true), submit(pinned("box:gpu0"), pinned("box:gpu0"), selecting("rack"))))
	l.queued(pinned("box:gpu1"))
	l.ok(register("free", "f1", spec("g", 0)))
	return l
}

func contents(t testing.TB, m *Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// rowsOf is contents as if the index were 0.
func rowsOf(t testing.TB, m *Machine) []byte {
	v := *m.View()
	v.index = 0
	var b bytes.Buffer
	if _, err := (&Snapshot{view: &v}).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func indexesOf(v *View) string {
	return fmt.Sprint(v.queue.tree.Items(), v.pinned.tree.Items(), v.targets.tree.Keys(), v.active.tree.Items(), v.ended.tree.Items(), v.byEnd.tree.Items(),
		v.byDevice.tree.Items(), v.bySubmitter.tree.Items(), v.requestAge.tree.Items())
}

func TestABrokenInvariantUndoesTheWholeEntry(t *testing.T) {
	breaks := map[string]func(*txn){
		"named":            func(*txn) { broken("the answer is not 42") },
		"program failure":  func(tx *txn) { _ = tx.jobs.get(99999).Number },
		"two live leases":  func(tx *txn) { d := *tx.devices.get("box:gpu0"); d.Lease = 77; tx.putDevice(d) },
		"lease of nothing": func(tx *txn) { tx.dropLease(tx.leases.get(tx.meta.LastLease)) },
		"ready and leased": func(tx *txn) {
			d := *tx.devices.get("box:gpu0")
			d.State = model.DeviceReady
			tx.putDevice(d)
		},
		"ready and silent": func(tx *txn) { a := *tx.agents.get("free"); a.Silent = true; tx.putAgent(a) },
		"running, not begun": func(tx *txn) {
			j := *tx.jobs.get(tx.View.Active()[0].Number)
			j.State = model.JobRunning
			tx.putJob(j)
		},
		"ended, lease kept": func(tx *txn) {
			tx.endJob(tx.View.Active()[0], ending{state: model.JobLost})
		},
		"ended twice": func(tx *txn) { tx.endJob(tx.jobs.get(1), ending{state: model.JobLost}) },
		"above its counter": func(tx *txn) {
			j := *tx.jobs.get(1)
			j.Number = tx.meta.LastJob + 1
			tx.putJob(j)
		},
		"labels unsorted": func(tx *txn) {
			d := *tx.devices.get("box:gpu0")
			d.Declared = []model.Label{{Key: "b"}, {Key: "a"}}
			tx.putDevice(d)
		},
		"index": func(tx *txn) { tx.active.drop(12345) },
	}
	for name, breakIt := range breaks {
		t.Run(name, func(t *testing.T) {
			l := busyBox(t)
			l.m.options.PanicOnInvariant = false
			l.check = false
			before, beforeView := rowsOf(t, l.m), l.m.View()
			l.advanceMS(hourMS)
			l.m.afterCommands = breakIt
			active := l.m.View().Active()
			results := l.many(submit(pinned("box:gpu1")), exited(active[0], "i1", 0), register("new", "n1", spec("g", 0)), &command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: 7}}})
			l.m.afterCommands = nil
			for i, r := range results {
				if r.Code != command.InternalInvariant || r.Message == "" || r.Jobs != nil {
					t.Errorf("command %d: %+v", i, r)
				}
			}
			if len(l.events) != 1 || l.events[0].Kind != command.EventInvariant || l.events[0].Reason == "" {
				t.Errorf("events %+v", l.events)
			}
			if l.m.Index() != l.index || l.m.Digest() != beforeView.Digest() {
				t.Errorf("%s, want digest %s", l.m.View(), beforeView.Digest())
			}
			if !bytes.Equal(before, rowsOf(t, l.m)) {
				t.Error("the rows differ")
			}
			if err := l.m.Check(); err != nil {
				t.Fatal(err)
			}
			// And everything goes on as if the entry had not been.
			l.check = true
			l.m.options.PanicOnInvariant = true
			twin := restored(t, l.m)
			undone, rows := l.m.View(), contents(t, l.m)
			indexes := indexesOf(undone)
			l.ok(exited(active[0], "i1", 0))
			l.ok(&command.JobKill{Job: 2, By: "ann"})
			l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: 5}}})
			var again bytes.Buffer
			if _, err := (&Snapshot{view: undone}).WriteTo(&again); err != nil || !bytes.Equal(again.Bytes(), rows) {
				t.Errorf("the view published after the undoing changed (%v)", err)
			}
			if got := indexesOf(undone); got != indexes {
				t.Errorf("its indexes were %s, are %s", indexes, got)
			}
			for _, e := range l.entries[len(l.entries)-3:] {
				if _, _, err := twin.Apply(e.index, e.term, e.data); err != nil {
					t.Fatal(err)
				}
			}
			if twin.Digest() != l.m.Digest() {
				t.Errorf("%s and %s", twin.View(), l.m.View())
			}
		})
	}
}

func TestAViewNeverChanges(t *testing.T) {
	l := busyBox(t)
	v := l.m.View()
	before := contents(t, l.m)
	done := make(chan []byte)
	go func() { // reads while entries are applied: the race detector looks on
		var b bytes.Buffer
		for range 20 {
			b.Reset()
			_, err := (&Snapshot{view: v}).WriteTo(&b)
			if err != nil || v.QueuePosition(3) != 1 || len(slices.Collect(v.Queued())) != 2 || len(v.Jobs(JobFilter{Limit: 9, Device: "box:gpu0"})) == 0 {
				b.Reset()
				break
			}
		}
		done <- b.Bytes()
	}()
	l.check = false
	l.m.options.PanicOnInvariant = false
	for i := range 50 {
		l.advanceMS(1000)
		if i%7 == 3 {
			l.m.afterCommands = func(*txn) { broken("on purpose") }
		}
		l.many(submit(pinned("box:gpu1"), selecting("rack")), exited(l.m.View().Active()[0], "i1", 0))
		l.m.afterCommands = nil
	}
	if after := <-done; !bytes.Equal(before, after) {
		t.Error("a view changed under its reader")
	}
}

func TestDamagedSnapshotsAreRefusedWhole(t *testing.T) {
	l := busyBox(t)
	whole := contents(t, l.m)
	target := box(t).m
	before := target.View()
	try := func(name string, data []byte) {
		t.Helper()
		err := target.Restore(bytes.NewReader(data))
		if err == nil {
			t.Errorf("%s: restored", name)
		} else if !strings.Contains(err.Error(), ErrSnapshot.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		if target.View() != before {
			t.Fatalf("%s: the state changed", name)
		}
	}
	try("empty", nil)
	for n := 1; n < len(whole); n += 7 {
		try("cut", whole[:n])
	}
	for n := range whole {
		for _, bit := range []byte{1, 0x80} {
			damaged := slices.Clone(whole)
			damaged[n] ^= bit
			try(fmt.Sprint("a flipped bit at ", n), damaged)
		}
	}
	try("something after it", append(slices.Clone(whole), 0))
	if err := target.Restore(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	if target.Digest() != l.m.Digest() {
		t.Error("another state")
	}
}
