package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"rcd/fsm/command"
)

var (
	entriesFlag = flag.Int("fsm.entries", 1_000_000, "entries of the random streams in all")
	seedFlag    = flag.Uint64("fsm.seed", 0, "seed of the first random stream; 0: of the day's choosing")
)

// streamEntries is the length of one random stream. Streams are apart, so that
// a failure comes with a log short enough to look at.
const streamEntries = 25_000

type seeded struct{ *rand.Rand }

func (s seeded) upTo(n int) int { return s.IntN(n) }

type drawn struct{ t *rapid.T }

func (d drawn) upTo(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "n") }

// TestLawsHoldAtEveryIndex applies long random streams of agents, submits,
// kills, faults, failovers and steps of the clock, with a check of what each
// entry touched after it and of everything now and then. The same log then goes
// through a second machine in another process, with another GOMAXPROCS and
// another time zone, that is restored from snapshots on the way: equal digests
// at equal indexes.
func TestLawsHoldAtEveryIndex(t *testing.T) {
	total := *entriesFlag
	if testing.Short() {
		total = min(total, 2*streamEntries)
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	for ; total > 0; total -= streamEntries {
		entries := min(total, streamEntries)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			lawsHold(t, seed, entries)
		})
		seed++
	}
}

func lawsHold(t *testing.T, seed uint64, entries int) {
	defer func() {
		if t.Failed() {
			t.Logf("run again with: go test ./fsm -run TestLawsHold -fsm.seed=%d -fsm.entries=%d", seed, entries)
		}
	}()
	l := newLog(t)
	s := newStream(seeded{rand.New(rand.NewPCG(seed, 1))}, l, 8)
	digests := make([]Digest, 0, entries)
	for range entries {
		l.check = len(digests)%1000 == 999 // a full check costs with the state
		s.step()
		if err := l.m.CheckEntry(); err != nil {
			t.Fatalf("index %d: %v", l.index, err)
		}
		digests = append(digests, l.m.Digest())
	}
	if err := l.m.Check(); err != nil {
		t.Fatal(err)
	}
	replayElsewhere(t, l.entries, digests)
	if entries == streamEntries {
		l.load.judge(t)
	}
}

// judge fails a stream that carried too little to prove anything.
func (c *load) judge(t *testing.T) {
	t.Helper()
	for e := command.EventEpoch; e < command.EventInvariant; e++ {
		if c.events[e] == 0 {
			t.Errorf("event %d never happened", e)
		}
	}
	for _, e := range []command.EventKind{command.EventFeature, command.EventHoldSilent, command.EventHoldHeard} {
		if c.events[e] == 0 {
			t.Errorf("event %d never happened", e)
		}
	}
	for _, code := range []command.Code{
		command.HoldEnded, command.OK, command.StaleEpoch, command.BadRequest, command.BadSelector, command.NoMatchingDevice,
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
