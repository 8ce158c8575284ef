package fsm

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"rcd/fsm/command"
)

var (
	entriesFlag = flag.Int("fsm.entries", 6000, "entries of the random stream")
	seedFlag    = flag.Uint64("fsm.seed", 0, "seed of the random stream; 0: of the day's choosing")
)

type seeded struct{ *rand.Rand }

func (s seeded) upTo(n int) int { return s.IntN(n) }

type drawn struct{ t *rapid.T }

func (d drawn) upTo(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "n") }

// TestLawsHoldAtEveryIndex applies a long random stream to one machine with
// every check after every entry, then the same log to a second machine that
// is restored from snapshots on the way: equal digests at equal indexes.
func TestLawsHoldAtEveryIndex(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -fsm.seed=%d -fsm.entries=%d", seed, *entriesFlag)
	l := newLog(t)
	s := newStream(seeded{rand.New(rand.NewPCG(seed, 1))}, l, 8)
	digests := make([]Digest, 0, *entriesFlag)
	for range *entriesFlag {
		// A full check costs with the state, so it comes now and then.
		l.check = len(digests)%50 == 0
		s.step()
		if err := l.m.CheckEntry(); err != nil {
			t.Fatalf("seed %d, index %d: %v", seed, l.index, err)
		}
		digests = append(digests, l.m.Digest())
	}
	if err := l.m.Check(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	replay(t, l.entries, digests, seed)
	l.load.judge(t)
}

// judge fails a stream that carried too little to prove anything.
func (c *load) judge(t *testing.T) {
	t.Helper()
	t.Logf("%d jobs queued at most; codes %v; events %v; states %v", c.mostQueue, c.codes, c.events, c.states)
	if *entriesFlag < 4000 {
		return
	}
	for e := command.EventEpoch; e < command.EventInvariant; e++ {
		if c.events[e] == 0 {
			t.Errorf("event %d never happened", e)
		}
	}
	for _, code := range []command.Code{
		command.OK, command.StaleEpoch, command.BadRequest, command.BadSelector, command.NoMatchingDevice,
		command.RuntimeAboveLimit, command.NotPlaced, command.KeyReused, command.NotJobOwner, command.NotCancellable,
		command.DeviceNotCleared, command.StaleInstance, command.StaleLease, command.AlreadyEnded, command.SettingRefused,
	} {
		if c.codes[code] == 0 {
			t.Errorf("code %q never came", code)
		}
	}
	if c.mostQueue < 100 {
		t.Errorf("%d jobs were queued at most, want 100", c.mostQueue)
	}
}

func replay(t *testing.T, entries []logged, want []Digest, seed uint64) {
	t.Helper()
	m := New(Options{PanicOnInvariant: true})
	for i, e := range entries {
		if _, _, err := m.Apply(e.index, e.term, e.data); err != nil {
			t.Fatal(err)
		}
		if m.Digest() != want[i] {
			t.Fatalf("seed %d: digest at index %d differs on replay", seed, e.index)
		}
		if i%997 == 500 {
			m = restored(t, m)
		}
	}
	if err := m.Check(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

func restored(t testing.TB, m *Machine) *Machine {
	t.Helper()
	var first, second bytes.Buffer
	n, err := m.Snapshot().WriteTo(&first)
	if err != nil || n != int64(first.Len()) {
		t.Fatalf("snapshot: %d bytes of %d: %v", n, first.Len(), err)
	}
	again := New(m.options)
	if err := again.Restore(bytes.NewReader(first.Bytes())); err != nil {
		t.Fatal(err)
	}
	if again.Digest() != m.Digest() || again.Index() != m.Index() {
		t.Fatalf("restored %s from %s", again.View(), m.View())
	}
	if err := again.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Snapshot().WriteTo(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Fatalf("the snapshot of a restored state has other bytes (%v)", err)
	}
	return again
}

// TestShortStreams is the same with rapid, which makes a failure small.
func TestShortStreams(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLog(t)
		s := newStream(drawn{rt}, l, 3)
		for range rapid.IntRange(1, 40).Draw(rt, "entries") {
			s.step()
		}
		restored(t, l.m)
	})
}
