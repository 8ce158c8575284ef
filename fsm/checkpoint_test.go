package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// reports gives each node the digest named by a letter.
func reports(pairs ...string) (all []command.DigestReport) {
	for _, p := range pairs {
		node, name, _ := strings.Cut(p, "=")
		sum := rowSum(tableMeta, nil, []byte(name)).Bytes()
		all = append(all, command.DigestReport{Node: node, Digest: sum[:]})
	}
	return all
}

func TestACheckpointFindsWhoDiffersFromTheMajority(t *testing.T) {
	for _, c := range []struct {
		name     string
		voters   uint32
		reports  []command.DigestReport
		agreed   bool
		diverged []string
		alarm    bool
	}{
		{"all agree", 3, reports("c1=a", "c2=a", "c3=a"), true, nil, false},
		{"a majority has reported", 3, reports("c1=a", "c3=a"), true, nil, false},
		{"one differs", 3, reports("c1=a", "c2=b", "c3=a"), true, []string{"c2"}, false},
		{"two of five differ, alike", 5, reports("c1=a", "c2=b", "c3=a", "c4=b", "c5=a"), true, []string{"c2", "c4"}, false},
		{"two of five differ, each its own way", 5, reports("c1=b", "c2=c", "c3=a", "c4=a", "c5=a"), true, []string{"c1", "c2"}, false},
		{"one voter", 1, reports("c1=a"), true, nil, false},
		{"a minority that agrees says nothing", 3, reports("c1=a"), false, nil, false},
		{"half is no majority", 4, reports("c1=a", "c2=a"), false, nil, false},
		{"no majority", 3, reports("c1=a", "c2=b", "c3=c"), false, nil, true},
		{"two differ, the third is away", 3, reports("c1=a", "c2=b"), false, nil, true},
		{"half against half", 4, reports("c1=a", "c2=b", "c3=a", "c4=b"), false, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := began(t)
			l.index = 1500
			before := rowsOnly(l.m.View())
			l.ok(&command.Checkpoint{Index: 1000, Voters: c.voters, Reports: c.reports})
			var want []command.EventKind
			if c.agreed {
				want = append(want, command.EventCheckpoint)
			}
			for range c.diverged {
				want = append(want, command.EventDiverged)
			}
			if c.alarm {
				want = append(want, command.EventNoMajority)
			}
			l.told(want...)
			var named []string
			for _, e := range l.events {
				if e.Kind == command.EventDiverged {
					named = append(named, e.Reason)
				}
				if e.Kind == command.EventNoMajority && !strings.Contains(e.Reason, "index 1000: c1=") {
					t.Errorf("the alarm says %q", e.Reason)
				}
			}
			if !slices.Equal(named, c.diverged) {
				t.Errorf("diverged %v, want %v", named, c.diverged)
			}
			index, d := l.m.View().Checkpoint()
			majority := reports("x=a")[0].Digest
			if b := d.Bytes(); c.agreed != (index == 1000) || c.agreed != slices.Equal(b[:], majority) {
				t.Errorf("checkpoint %d %s", index, d)
			}
			if rowsOnly(l.m.View()) != before {
				t.Error("a checkpoint changed a table")
			}
		})
	}
}

func TestRefusedCheckpointsChangeNothing(t *testing.T) {
	l := began(t)
	l.index = 5000
	good := func() *command.Checkpoint {
		return &command.Checkpoint{Index: 4000, Voters: 3, Reports: reports("c1=a", "c2=a", "c3=b")}
	}
	for name, change := range map[string]func(*command.Checkpoint){
		"no index":         func(b *command.Checkpoint) { b.Index = 0 },
		"its own index":    func(b *command.Checkpoint) { b.Index = l.index + 1 },
		"a later index":    func(b *command.Checkpoint) { b.Index = 1 << 60 },
		"no voters":        func(b *command.Checkpoint) { b.Voters = 0 },
		"no report":        func(b *command.Checkpoint) { b.Reports = nil },
		"more than voters": func(b *command.Checkpoint) { b.Voters = 2 },
		"one voter twice":  func(b *command.Checkpoint) { b.Reports[1].Node = "c1" },
		"unsorted":         func(b *command.Checkpoint) { b.Reports[0].Node = "c9" },
		"a nameless voter": func(b *command.Checkpoint) { b.Reports[0].Node = "" },
		"a long name":      func(b *command.Checkpoint) { b.Reports[2].Node = strings.Repeat("d", maxNamed+1) },
		"a short digest":   func(b *command.Checkpoint) { b.Reports[0].Digest = b.Reports[0].Digest[:15] },
		"too many": func(b *command.Checkpoint) {
			b.Voters, b.Reports = 1000, nil
			for i := range maxMembers + 1 {
				b.Reports = append(b.Reports, reports(string(rune('A'+i))+"=a")...)
			}
		},
	} {
		b := good()
		change(b)
		t.Run(name, func(t *testing.T) {
			l.refused(command.BadRequest, b)
			l.told()
		})
	}
	if r := l.sent("k", good()); r.Code != command.OK {
		t.Fatalf("%+v", r)
	}
	if r := l.sent("k", good()); !r.Repeat || r.Code != command.OK {
		t.Errorf("repeated: %+v", r)
	}
	l.told() // nobody is accused twice
	l.refused(command.StaleCheckpoint, good())
	older := good()
	older.Index = 3000
	l.refused(command.StaleCheckpoint, older)
	later := good()
	later.Index = 5000
	l.ok(later)
	l.term++
	l.refused(command.StaleEpoch, good())
}

// gapped gives the entries of a log other indexes, with Raft's own entries in
// between.
func gapped(entries []logged) []logged {
	out := slices.Clone(entries)
	index := uint64(2)
	for i := range out {
		out[i].index = index
		switch {
		case i%7 == 3:
			index += 391
		case i%50 == 49:
			index += 2500 // past several checkpoints at once
		default:
			index++
		}
	}
	return out
}

// TestMarksAreEqualOnEveryMachine: whoever has a digest for a checkpoint has
// the same one, whatever Raft put between the entries and wherever a snapshot
// took over.
func TestMarksAreEqualOnEveryMachine(t *testing.T) {
	l := box(t)
	for i := range 200 {
		l.check = false
		l.advanceMS(1000)
		l.queued(pinned([]string{"box:gpu0", "box:gpu1"}[i%2]))
	}
	entries := gapped(l.entries)
	whole := New(Options{PanicOnInvariant: true})
	late := make([]*Machine, 0)
	seen := map[uint64]Digest{}
	var lastIndex uint64
	var before Digest
	for i, e := range entries {
		at := (e.index - 1) / CheckpointEvery * CheckpointEvery
		if i%20 == 10 {
			late = append(late, restored(t, whole))
			if n, _ := late[len(late)-1].LastMark(); n != 0 {
				t.Fatalf("a restored machine has a mark at %d", n)
			}
		}
		before, lastIndex = whole.Digest(), whole.Index()
		for _, m := range append([]*Machine{whole}, late...) {
			if _, _, err := m.Apply(e.index, e.term, e.data); err != nil {
				t.Fatal(err)
			}
		}
		index, d := whole.LastMark()
		if at > 0 && lastIndex > 0 && lastIndex <= at {
			if index != at || d != before {
				t.Fatalf("after %d: mark at %d %s, want %d %s", e.index, index, d, at, before)
			}
		}
		if index > 0 {
			seen[index] = d
		}
		for _, m := range late {
			n, d := m.LastMark()
			if n > 0 && seen[n] != d {
				t.Fatalf("after %d: another machine has %s at %d, want %s", e.index, d, n, seen[n])
			}
			if own, ok := m.DigestAt(n); n > 0 && (!ok || own != d) {
				t.Fatalf("DigestAt(%d) is %s, %v", n, own, ok)
			}
		}
	}
	if len(seen) < 10 || len(late) < 5 {
		t.Fatalf("%d marks on %d machines prove little", len(seen), len(late))
	}
	last, _ := whole.LastMark()
	if known := whole.allMarks(); len(known) != keptMarks || known[keptMarks-1].index != last {
		t.Errorf("%d marks are kept", len(known))
	}
	if _, ok := whole.DigestAt(last + 1); ok {
		t.Error("a digest for an index that is no checkpoint")
	}
	if _, ok := whole.DigestAt(1000); ok {
		t.Error("the oldest is kept for ever")
	}
}

// TestAMachineKnowsThatItDiverged: by its own digest, not by its name, so that
// a node that was emptied and replays the log is not accused again.
func TestAMachineKnowsThatItDiverged(t *testing.T) {
	l := box(t)
	l.check = false
	sick := restored(t, l.m)
	row := *sick.work.devices.get("box:gpu0")
	row.Detail = "a flipped bit"
	_, _ = sick.work.devices.put(&sick.work.digest, row.ID, row)
	sick.work.devices.seal(&sick.work.digest, &sick.hash)
	apply := func(bodies ...any) {
		t.Helper()
		l.many(bodies...)
		e := l.entries[len(l.entries)-1]
		if _, _, err := sick.Apply(e.index, e.term, e.data); err != nil {
			t.Fatal(err)
		}
	}
	l.index = 999
	apply(&command.Sweep{})
	apply(&command.Sweep{})
	ours, _ := l.m.DigestAt(1000)
	theirs, ok := sick.DigestAt(1000)
	if !ok || ours == theirs {
		t.Fatal("the digests do not tell them apart")
	}
	for _, m := range []*Machine{l.m, sick} {
		if _, diverged := m.Diverged(); diverged {
			t.Error("diverged before anybody compared")
		}
	}
	a, b := ours.Bytes(), theirs.Bytes()
	apply(&command.Checkpoint{Index: 1000, Voters: 3, Reports: []command.DigestReport{
		{Node: "c1", Digest: a[:]}, {Node: "c2", Digest: b[:]}, {Node: "c3", Digest: a[:]},
	}})
	if index, diverged := sick.Diverged(); !diverged || index != 1000 {
		t.Errorf("the one that differs says %d, %v", index, diverged)
	}
	again := New(Options{PanicOnInvariant: true}) // emptied, under any name
	for _, e := range l.entries {
		if _, _, err := again.Apply(e.index, e.term, e.data); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []*Machine{l.m, again, restored(t, l.m)} {
		if index, diverged := m.Diverged(); diverged || index != 1000 {
			t.Errorf("one that agrees says %d, %v", index, diverged)
		}
	}
	if d := l.device("box:gpu0"); d.State != model.DeviceReady {
		t.Errorf("%+v", d)
	}
}

// TestAMarkIsTheDigestAfterItsIndex: an entry at the checkpoint's own index
// counts, the one after it does not, and a restore forgets what was before.
func TestAMarkIsTheDigestAfterItsIndex(t *testing.T) {
	l := box(t)
	empty := contents(t, l.m)
	l.index = 998
	after := map[uint64]Digest{}
	for range 4 {
		l.queued(pinned("box:gpu0"))
		after[l.index] = l.m.Digest()
	}
	if index, d := l.m.LastMark(); index != 1000 || d != after[1000] {
		t.Fatalf("mark at %d %s, want 1000 %s", index, d, after[1000])
	}
	if d, ok := l.m.DigestAt(1000); !ok || d != after[1000] || len(l.m.allMarks()) != 1 {
		t.Fatalf("the digest at 1000 is %s, want %s, once", d, after[1000])
	}
	if err := l.m.Restore(bytes.NewReader(empty)); err != nil {
		t.Fatal(err)
	}
	if index, _ := l.m.LastMark(); index != 0 {
		t.Errorf("after a restore it speaks for index %d of another state", index)
	}
}
