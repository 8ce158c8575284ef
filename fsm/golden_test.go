package fsm

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/internal/codec"
	"rcd/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

// frozen is a log that is kept for good, with the digest after each entry, and
// the snapshot at its end, one record a line. Each feature level has its own.
type frozen struct {
	level         uint32
	log, snapshot string
	entries       func(t *testing.T) *log // makes it; nil: this build makes another
}

var frozenLevels = []frozen{
	{level: firstLevel, log: "log.txt", snapshot: "snapshot.txt"},
	{level: LevelInside, log: "log2.txt", snapshot: "snapshot2.txt", entries: insideEntries},
}

// insideEntries are every kind, accepted and refused, at the level of jobs inside
// holds.
func insideEntries(t *testing.T) *log {
	l := newLog(t)
	s := newStream(seeded{rand.New(rand.NewPCG(20, 27))}, l, 4)
	l.lead()
	l.many(s.upgraded()...)
	for range 600 {
		s.step()
	}
	return l
}

// TestTheFrozenLogGivesTheFrozenDigests: replaying a log of a version gives the
// digests it gave then, and its snapshot has the bytes it had.
func TestTheFrozenLogGivesTheFrozenDigests(t *testing.T) {
	for _, f := range frozenLevels {
		if *update && f.entries != nil {
			f.write(t)
		}
		m := New(Options{PanicOnInvariant: true})
		lines := goldenLines(t, f.log)
		for _, line := range lines {
			index, term, data, digest := entryOf(t, line)
			if _, _, err := m.Apply(index, term, data); err != nil {
				t.Fatal(err)
			}
			if got := m.Digest().String(); got != digest {
				t.Fatalf("level %d: digest at index %d is %s, was %s", f.level, index, got, digest)
			}
		}
		if len(lines) < 300 || m.View().FeatureLevel() != f.level {
			t.Fatalf("the frozen log of level %d has %d entries and ends at %d", f.level, len(lines), m.View().FeatureLevel())
		}
		if got, want := records(t, contents(t, m)), goldenLines(t, f.snapshot); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("level %d: the snapshot has other bytes", f.level)
		}
	}
}

// entryOf reads a line of a frozen log: index, Raft term, entry, digest after it.
func entryOf(t *testing.T, line string) (index, term uint64, data []byte, digest string) {
	t.Helper()
	f := strings.Fields(line)
	data, err := hex.DecodeString(f[2])
	if err != nil {
		t.Fatal(err)
	}
	return mustUint(t, f[0]), mustUint(t, f[1]), data, f[3]
}

// TestTheFrozenSnapshotRestores: a snapshot of a version is readable for good.
func TestTheFrozenSnapshotRestores(t *testing.T) {
	for _, f := range frozenLevels {
		m := New(Options{})
		if err := m.Restore(f.stored(t)); err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		lines := goldenLines(t, f.log)
		if index, _, _, digest := entryOf(t, lines[len(lines)-1]); m.Digest().String() != digest || m.Index() != index {
			t.Errorf("level %d: restored %s, the log ends with %s", f.level, m.View(), digest)
		}
		c := m.View().Counts()
		if c.Jobs == 0 || c.Queued == 0 || c.Leases == 0 || c.Devices == 0 || c.Agents == 0 || c.Requests == 0 || c.Finished == 0 {
			t.Errorf("level %d: a table is empty: %+v", f.level, c)
		}
	}
}

// TestTheFrozenLogOfJobsInsideHoldsHasThem: of every fate, and some in the
// snapshot.
func TestTheFrozenLogOfJobsInsideHoldsHasThem(t *testing.T) {
	l := &log{tb: t, m: New(Options{PanicOnInvariant: true})}
	for _, line := range goldenLines(t, frozenLevels[1].log) {
		index, term, data, _ := entryOf(t, line)
		results, events, err := l.m.Apply(index, term, data)
		if err != nil {
			t.Fatal(err)
		}
		l.load.count(results, events, l.m.View())
	}
	if n := l.load; n.inside[model.JobKilled] == 0 || n.inside[model.JobLost] == 0 || n.inside[model.JobFailed] == 0 ||
		n.events[command.EventHoldSilent] == 0 || n.events[command.EventHoldHeard] == 0 {
		t.Errorf("inside ended %v; events %v", n.inside, n.events)
	}
	sessions, inside := len(l.m.View().Sessions()), l.m.View().byHold.len()
	if sessions == 0 || inside == 0 {
		t.Errorf("at the end %d holds have sessions and %d jobs are inside holds", sessions, inside)
	}
}

// stored is the frozen snapshot as it was written.
func (f *frozen) stored(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	for _, line := range goldenLines(t, f.snapshot) {
		data, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.WriteRaw(&b, data, maxRecord); err != nil {
			t.Fatal(err)
		}
	}
	return &b
}

func (f *frozen) write(t *testing.T) {
	t.Helper()
	var out strings.Builder
	m := New(Options{PanicOnInvariant: true})
	for _, e := range f.entries(t).entries {
		if _, _, err := m.Apply(e.index, e.term, e.data); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%d %d %s %s\n", e.index, e.term, hex.EncodeToString(e.data), m.Digest())
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join("testdata", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(f.log, out.String())
	write(f.snapshot, strings.Join(records(t, contents(t, m)), "\n")+"\n")
}

func records(t *testing.T, snapshot []byte) []string {
	t.Helper()
	in := bytes.NewReader(snapshot)
	var lines []string
	for in.Len() > 0 {
		data, err := codec.ReadRaw(in, maxRecord)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, hex.EncodeToString(data))
	}
	return lines
}

func goldenLines(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

func mustUint(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
