package raftnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"rcd/fsm/command"
	"rcd/internal/mux"
	"rcd/jepsen/bubble"
)

func entries(from, to uint64, size int) (out []*raft.Log) {
	for i := from; i <= to; i++ {
		out = append(out, &raft.Log{Index: i, Term: 1, Data: make([]byte, size)})
	}
	return out
}

func TestLogStoreCountsBytesThroughEveryChange(t *testing.T) {
	dir := t.TempDir()
	s, err := openLogStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	const each = 100 + entryOverhead
	check := func(what string, after uint64, wantAfter, wantAll int64) {
		t.Helper()
		if gotAfter, gotAll := s.bytesAfter(after); gotAfter != wantAfter*each || gotAll != wantAll*each {
			t.Errorf("%s: %d after %d, %d in all; want %d and %d entries of %d", what, gotAfter, after, gotAll, wantAfter, wantAll, each)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check("empty", 0, 0, 0)
	must(s.StoreLogs(entries(1, 100, 100)))
	check("stored", 60, 40, 100)
	must(s.DeleteRange(91, 100))
	check("tail deleted", 60, 30, 90)
	must(s.StoreLogs(entries(91, 95, 100)))
	check("tail rewritten", 60, 35, 95)
	must(s.DeleteRange(1, 50))
	check("compacted", 60, 35, 45)
	if _, ok := any(s).(raft.MonotonicLogStore); ok {
		t.Error("the store has become monotonic, which bolt is not")
	}
	must(s.Close())
	s, err = openLogStore(dir)
	must(err)
	check("opened again", 60, 35, 45)
	must(s.StoreLogs(entries(200, 209, 100)))
	check("after a gap", 60, 45, 55)
	must(s.DeleteRange(51, 300))
	check("all deleted", 0, 0, 0)
	must(s.StoreLogs(entries(1000000, 1000001, 100)))
	check("far away", 0, 2, 2)
	if s.syncP99() <= 0 {
		t.Error("no write was timed")
	}
	must(s.Close())
}

func TestTrailingLogFitsItsBudget(t *testing.T) {
	s := &logStore{}
	for i := range uint64(1000) {
		s.note(i+1, 1000-entryOverhead)
	}
	for _, test := range []struct {
		budget int64
		want   uint64
	}{{500_000, 500}, {500_999, 500}, {10_000, minTrailingLogs}, {2_000_000, maxTrailingLogs}} {
		if got := s.trailing(test.budget); got != test.want {
			t.Errorf("budget %d keeps %d entries, want %d", test.budget, got, test.want)
		}
	}
}

func TestDamagedOrBusyLogStoreIsNamed(t *testing.T) {
	dir := t.TempDir()
	s, err := openLogStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openLogStore(dir); !errors.Is(err, ErrLogStore) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second open: %v", err)
	}
	if err := errors.Join(s.StoreLogs(entries(1, 500, 200)), s.Close()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(logPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for name, damage := range map[string]func([]byte) []byte{
		"no pages":   func(b []byte) []byte { return b[:page/2] },
		"meta pages": func(b []byte) []byte { return append(make([]byte, 2*page), b[2*page:]...) },
		"all but the meta pages": func(b []byte) []byte {
			for i := 2 * page; i < len(b); i++ {
				b[i] = 0xA5
			}
			return b
		},
	} {
		if err := os.WriteFile(logPath(dir), damage(append([]byte{}, good...)), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openLogStore(dir)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrLogStore) || !strings.Contains(err.Error(), logPath(dir)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSnapshotKeepsTheLogWithinItsBytes(t *testing.T) {
	const budget = 64 << 10
	virtual(t, func(c *Config, _ *Deps) {
		c.Join, c.BootstrapExpect = nil, 1
		c.Snapshots = SnapshotPolicy{TrailingBytes: budget, Age: 50 * time.Millisecond}
	}, []string{"c1"}, func(t *testing.T, r *rig) {
		r.start("c1")
		h := r.leader()
		for range 400 {
			h.propose(t, strings.Repeat("x", 1024))
		}
		eventually(t, "a snapshot by age to compact the log", func() bool {
			s := h.node.Stats()
			return s.SnapshotIndex == s.LastIndex && s.LogBytes <= max(budget, minTrailingLogs*1200)
		})
		r.stop("c1")
		r.start("c1")
		h = r.leader()
		if h.state.total() != 400 {
			t.Errorf("%d commands after the restart", h.state.total())
		}
	})
}

func TestSnapshotByBytesOfLog(t *testing.T) {
	virtual(t, func(c *Config, _ *Deps) {
		c.Join, c.BootstrapExpect = nil, 1
		c.Snapshots = SnapshotPolicy{LogBytes: 4 << 20}
	}, []string{"c1"}, func(t *testing.T, r *rig) {
		r.start("c1")
		h := r.leader()
		for range 8 {
			h.propose(t, strings.Repeat("x", 1<<20))
		}
		eventually(t, "a snapshot", func() bool { return h.node.Stats().SnapshotIndex > 0 })
	})
}

func TestDeadlinesOfRaftCountFromTheLastProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := &streams{timeout: time.Second, conns: map[*raftConn]struct{}{}}
		c := &raftConn{Conn: near, owner: s, lost: func() {}}
		const chunks = 10
		go func() {
			buf := make([]byte, writeChunk)
			for range chunks { // a slow link: one chunk in 0.9 s
				time.Sleep(900 * time.Millisecond)
				for read := 0; read < len(buf); {
					n, err := far.Read(buf[read:])
					if err != nil {
						t.Error(err)
						return
					}
					read += n
				}
			}
			time.Sleep(900 * time.Millisecond)
			far.Write([]byte("k"))
		}()
		c.SetDeadline(time.Now().Add(time.Second))
		if n, err := c.Write(make([]byte, chunks*writeChunk)); n != chunks*writeChunk || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Errorf("the answer: %v", err)
		}
		start := time.Now()
		c.SetDeadline(time.Now().Add(time.Minute)) // as for a large snapshot
		if _, err := c.Write(make([]byte, writeChunk)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("a dead link was given %v: %v", time.Since(start), err)
		}
		c.Close()
		far.Close()
	})
}

func TestOnlyThePeersEndOfAConnectionCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		open := func() (*raftConn, net.Conn) {
			near, far := net.Pipe()
			s := &streams{timeout: time.Second, conns: map[*raftConn]struct{}{}}
			return &raftConn{Conn: near, owner: s, lost: func() { lost++ }}, far
		}
		c, _ := open()
		c.SetReadDeadline(time.Now().Add(time.Second))
		c.Read(make([]byte, 1))
		c.Close()
		c.Read(make([]byte, 1))
		if lost != 0 {
			t.Error("a timeout or our own close was taken for the peer's")
		}
		c, far := open()
		far.Close()
		c.Read(make([]byte, 1))
		if lost != 1 {
			t.Error("the peer's close was missed")
		}
	})
}

func TestMachineWaitsForAnIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{waiting: map[chan struct{}]uint64{}}
		m.advance(5)
		if err := m.wait(t.Context(), 5); err != nil {
			t.Error(err)
		}
		reached := make(chan error, 1)
		go func() { reached <- m.wait(t.Context(), 7) }()
		synctest.Wait()
		m.advance(6)
		synctest.Wait()
		if len(reached) != 0 {
			t.Error("woke too early")
		}
		m.advance(8) // a restore jumps
		if err := <-reached; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.wait(ctx, 9); !errors.Is(err, context.DeadlineExceeded) || len(m.waiting) != 0 {
			t.Errorf("%v, %d left waiting", err, len(m.waiting))
		}
	})
}

func TestHaltedMachineAppliesAndSavesNothingMore(t *testing.T) {
	entry := func(index uint64, text string) *raft.Log {
		data, err := command.EncodeEntry(1, 0, [][]byte{[]byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		return &raft.Log{Index: index, Term: 1, Data: data}
	}
	state, halts := newTally(), 0
	m := &machine{
		inner: state, onHalt: func(error) { halts++ }, beforeSnap: func() {}, logger: discard, waiting: map[chan struct{}]uint64{},
	}
	m.Apply(entry(1, beginPrefix))
	if got := m.Apply(entry(2, "a")).(applied); got.err != nil || len(got.results) != 1 {
		t.Fatalf("%+v", got)
	}
	for index, text := range []string{"poison", "b", "poison"} {
		if got := m.Apply(entry(uint64(index)+3, text)).(applied); !errors.Is(got.err, ErrHalted) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if halts != 1 || state.count("b") != 0 || m.current() != 2 {
		t.Errorf("halted %d times, b applied %d times, index %d", halts, state.count("b"), m.current())
	}
	if _, err := m.Snapshot(); !errors.Is(err, ErrHalted) {
		t.Errorf("snapshot: %v", err)
	}
}

// TestOldAnswersDoNotVouchForALeader: a process that was stopped finds answers
// in its sockets that were given before others elected a new leader.
func TestOldAnswersDoNotVouchForALeader(t *testing.T) {
	now := time.Now()
	tr := &transport{acks: map[string]ack{
		"c2": {term: 3, sentAt: now.Add(-time.Millisecond), accepted: true},
		"c3": {term: 3, sentAt: now, accepted: true},
		"c4": {term: 2, sentAt: now.Add(time.Second), accepted: true},
		"c5": {term: 3, sentAt: now.Add(time.Second), accepted: false},
	}}
	if n := tr.ackedSince([]string{"c2", "c3", "c4", "c5", "c6"}, 3, now); n != 1 {
		t.Errorf("%d peers vouch, want only c3", n)
	}
}

// TestUnreadableSnapshotStopsTheNodeInWords: raft would fall back to the
// snapshot before, whose log is gone, and panic.
func TestUnreadableSnapshotStopsTheNodeInWords(t *testing.T) {
	r := newRig(t, func(c *Config, d *Deps) {
		single(c, d)
		c.Snapshots.TrailingBytes = 1
	}, "c1")
	r.start("c1")
	h := r.leader()
	for range 2 {
		for range 2 * minTrailingLogs {
			h.propose(t, "x")
		}
		if err := h.node.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	newest := h.node.Stats().SnapshotIndex
	deps, config := h.node.deps, h.node.config
	r.stop("c1")
	files, err := filepath.Glob(filepath.Join(raftDir(h.dir), "snapshots", fmt.Sprintf("*-%d-*", newest), "state.bin"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	deps.StateMachine = newTally()
	port := bubble.NewNetwork()
	inner, err := port.Listen("c1:1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := mux.NewListener(inner, mux.Config{ClusterKey: deps.Dialer.Key, Self: deps.Identity.Self})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	deps.Streams = l
	if n, err := Open(config, deps); err == nil {
		n.Close()
		t.Error("it started")
	} else if !strings.Contains(err.Error(), h.dir) || !strings.Contains(err.Error(), "rejoin as a new node") {
		t.Errorf("got %v", err)
	}
}
