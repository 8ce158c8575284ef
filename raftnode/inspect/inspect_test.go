package inspect

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// write makes a data directory with the given entries, still open.
func write(t *testing.T, logs ...*raft.Log) (string, *raftboltdb.BoltStore) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "raft"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(dir, "raft", "raft.db"), BoltOptions: &bbolt.Options{NoFreelistSync: true}, MsgpackUseNewTimeFormat: true,
	})
	if err == nil {
		err = s.StoreLogs(logs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, s
}

var appended = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sample() []*raft.Log {
	servers := raft.Configuration{Servers: []raft.Server{{ID: "c1", Address: "h1:1"}, {ID: "c2", Address: "h2:1", Suffrage: raft.Nonvoter}}}
	return []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(servers)},
		{Index: 2, Term: 2, Type: raft.LogNoop, AppendedAt: appended},
		{Index: 3, Term: 2, Type: raft.LogCommand, Data: []byte("a"), AppendedAt: appended},
		{Index: 4, Term: 2, Type: raft.LogBarrier, AppendedAt: appended},
		{Index: 5, Term: 2, Type: raft.LogCommand, Data: []byte("b"), AppendedAt: appended},
	}
}

func TestEntriesOfAClosedDirectoryAndOfARunningNode(t *testing.T) {
	dir, s := write(t, sample()...)
	if _, err := Open(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("open while a node holds it: %v", err)
	}
	check := func(store Store) {
		t.Helper()
		got, err := Entries(store, 1, 100, 4)
		if err != nil || len(got) != 5 {
			t.Fatalf("%d entries, %v", len(got), err)
		}
		for i, want := range []Kind{Configuration, Noop, Command, Barrier, Command} {
			e := got[i]
			if e.Index != uint64(i+1) || e.Kind != want || e.Uncommitted != (i == 4) {
				t.Errorf("entry %+v, want kind %s", e, want)
			}
		}
		if m := got[0].Members; len(m) != 2 || m[0] != (Member{"c1", "h1:1", true}) || m[1] != (Member{"c2", "h2:1", false}) {
			t.Errorf("members %+v", m)
		}
		if string(got[4].Data) != "b" || got[4].Term != 2 || !got[4].Appended.Equal(appended) {
			t.Errorf("command %+v", got[4])
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	check(log)
	if err := log.StoreLog(&raft.Log{Index: 6}); err == nil {
		t.Error("the log of a directory at rest was written to")
	}
}

func TestEntriesStartWhereAsked(t *testing.T) {
	_, s := write(t, sample()...)
	defer s.Close()
	if err := s.DeleteRange(1, 2); err != nil { // compacted
		t.Fatal(err)
	}
	for _, test := range []struct {
		since uint64
		n     int
		want  []uint64
	}{
		{0, 2, []uint64{4, 5}},
		{0, 100, []uint64{3, 4, 5}},
		{1, 2, []uint64{3, 4}},
		{4, 100, []uint64{4, 5}},
		{6, 100, nil},
		{1, 0, nil},
	} {
		got, err := Entries(s, test.since, test.n, 5)
		if err != nil || len(got) != len(test.want) {
			t.Errorf("since %d, %d entries: got %d, %v", test.since, test.n, len(got), err)
			continue
		}
		for i, e := range got {
			if e.Index != test.want[i] {
				t.Errorf("since %d, %d entries: number %d is %d, want %d", test.since, test.n, i, e.Index, test.want[i])
			}
		}
	}
}

func TestDirectoryWithoutALogStaysWithout(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNoLog) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("opening made %v", left)
	}
	if err := os.MkdirAll(filepath.Join(dir, "raft"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "raft", "raft.db"), make([]byte, 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a damaged file was opened")
	}
}
