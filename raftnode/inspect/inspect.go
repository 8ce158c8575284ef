package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

var (
	// ErrInUse: a running node holds the file; ask that node instead.
	ErrInUse = errors.New("log is in use by a running node")
	// ErrNoLog: the directory has no log.
	ErrNoLog = errors.New("no raft log")
)

const (
	// MaxEntries bounds one answer.
	MaxEntries = 10_000
	// lockTimeout is how long a node may still hold the file.
	lockTimeout = 500 * time.Millisecond
)

// Kind is what an entry is for.
type Kind string

// The kinds of entries. Only commands reach the state machine.
const (
	Command       Kind = "command"
	Noop          Kind = "noop" // the first entry of a leader
	Configuration Kind = "configuration"
	Barrier       Kind = "barrier"
	Unknown       Kind = "unknown"
)

// Entry is one entry of the log.
type Entry struct {
	Index    uint64
	Term     uint64
	Appended time.Time // by the leader's clock; zero when it was not recorded
	Kind     Kind
	Data     []byte // of a command
	// Members are the servers that a configuration entry sets.
	Members []Member
	// Uncommitted: past the commit index as the node knows it; the entry may
	// still be replaced.
	Uncommitted bool
}

// Member is a server of a configuration entry.
type Member struct {
	ID    string
	Addr  string
	Voter bool
}

// Store is a log that can be read; a raft.LogStore is one.
type Store interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
	GetLog(index uint64, log *raft.Log) error
}

// Entries returns up to n entries, at most MaxEntries, from index since on, in
// order; since 0 means the last n. Entries above commit are marked
// uncommitted. An entry that is compacted away while it is read is left out.
func Entries(store Store, since uint64, n int, commit uint64) (out []Entry, err error) {
	defer func() {
		if r := recover(); r != nil { // bbolt panics at a damaged page
			out, err = nil, fmt.Errorf("read the log: the file is damaged: %v", r)
		}
	}()
	first, err := store.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("read the log's first index: %w", err)
	}
	last, err := store.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read the log's last index: %w", err)
	}
	n = min(n, MaxEntries)
	if n <= 0 || last == 0 {
		return nil, nil
	}
	if since == 0 && last >= uint64(n) {
		since = last - uint64(n) + 1
	}
	since = max(since, first)
	for index := since; index <= last && len(out) < n; index++ {
		var log raft.Log
		switch err := store.GetLog(index, &log); {
		case errors.Is(err, raft.ErrLogNotFound):
			continue
		case err != nil:
			return nil, fmt.Errorf("read log entry %d: %w", index, err)
		}
		out = append(out, entry(log, commit))
	}
	return out, nil
}

func entry(log raft.Log, commit uint64) Entry {
	e := Entry{Index: log.Index, Term: log.Term, Appended: log.AppendedAt, Uncommitted: log.Index > commit}
	switch log.Type {
	case raft.LogCommand:
		e.Kind, e.Data = Command, log.Data
	case raft.LogNoop:
		e.Kind = Noop
	case raft.LogBarrier:
		e.Kind = Barrier
	case raft.LogConfiguration:
		e.Kind = Configuration
		for _, s := range decode(log.Data) {
			e.Members = append(e.Members, Member{string(s.ID), string(s.Address), s.Suffrage == raft.Voter})
		}
	default:
		e.Kind = Unknown
	}
	return e
}

// decode returns nil for a damaged configuration, at which raft panics.
func decode(data []byte) (servers []raft.Server) {
	defer func() {
		if recover() != nil {
			servers = nil
		}
	}()
	return raft.DecodeConfiguration(data).Servers
}

// Log is the log of a data directory at rest.
type Log struct{ *raftboltdb.BoltStore }

// Open returns the log of a controller's data directory, read-only, or ErrInUse
// or ErrNoLog. What is committed is not in the log: a directory at rest only
// knows that its entries were written. Close it after use; until then no node
// can start on the directory.
func Open(dir string) (log *Log, err error) {
	path := filepath.Join(dir, "raft", "raft.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNoLog, dir)
	}
	defer func() {
		if r := recover(); r != nil {
			log, err = nil, fmt.Errorf("open %s: the file is damaged: %v", path, r)
		}
	}()
	store, err := raftboltdb.New(raftboltdb.Options{
		Path:                    path,
		BoltOptions:             &bbolt.Options{Timeout: lockTimeout, ReadOnly: true},
		MsgpackUseNewTimeFormat: true,
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &Log{store}, nil
}
