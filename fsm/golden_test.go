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

	"rcd/internal/codec"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	frozenLog      = "log.txt"      // index, Raft term, entry, digest after it
	frozenSnapshot = "snapshot.txt" // one record a line
)

// frozenEntries makes the log that is frozen: every kind, accepted and refused.
func frozenEntries(t *testing.T) *log {
	l := newLog(t)
	s := newStream(seeded{rand.New(rand.NewPCG(20, 26))}, l, 4)
	for range 400 {
		s.step()
	}
	return l
}

// TestTheFrozenLogGivesTheFrozenDigests: replaying a log of this version gives
// the digests it gave then, and its snapshot has the bytes it had.
func TestTheFrozenLogGivesTheFrozenDigests(t *testing.T) {
	if *update {
		writeGolden(t, frozenEntries(t))
	}
	m := New(Options{PanicOnInvariant: true})
	lines := goldenLines(t, frozenLog)
	for _, line := range lines {
		f := strings.Fields(line)
		index, term := mustUint(t, f[0]), mustUint(t, f[1])
		data, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Apply(index, term, data); err != nil {
			t.Fatal(err)
		}
		if got := m.Digest().String(); got != f[3] {
			t.Fatalf("digest at index %d is %s, was %s", index, got, f[3])
		}
	}
	if len(lines) < 300 {
		t.Fatalf("the frozen log has %d entries", len(lines))
	}
	if got, want := records(t, contents(t, m)), goldenLines(t, frozenSnapshot); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Error("the snapshot has other bytes")
	}
}

// TestTheFrozenSnapshotRestores: a snapshot of this version is readable for good.
func TestTheFrozenSnapshotRestores(t *testing.T) {
	var b bytes.Buffer
	for _, line := range goldenLines(t, frozenSnapshot) {
		data, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.WriteRaw(&b, data, maxRecord); err != nil {
			t.Fatal(err)
		}
	}
	m := New(Options{})
	if err := m.Restore(&b); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	lines := goldenLines(t, frozenLog)
	if last := strings.Fields(lines[len(lines)-1]); m.Digest().String() != last[3] || fmt.Sprint(m.Index()) != last[0] {
		t.Errorf("restored %s, the log ends with %s", m.View(), last[3])
	}
	c := m.View().Counts()
	if c.Jobs == 0 || c.Queued == 0 || c.Leases == 0 || c.Devices == 0 || c.Agents == 0 || c.Requests == 0 || c.Finished == 0 {
		t.Errorf("a table is empty: %+v", c)
	}
}

func writeGolden(t *testing.T, l *log) {
	t.Helper()
	var out strings.Builder
	m := New(Options{PanicOnInvariant: true})
	for _, e := range l.entries {
		if _, _, err := m.Apply(e.index, e.term, e.data); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%d %d %s %s\n", e.index, e.term, hex.EncodeToString(e.data), m.Digest())
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join("testdata", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(frozenLog, out.String())
	write(frozenSnapshot, strings.Join(records(t, contents(t, m)), "\n")+"\n")
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
