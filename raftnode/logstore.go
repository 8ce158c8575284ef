package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// ErrLogStore is wrapped by errors of opening the log store.
var ErrLogStore = errors.New("log store")

const (
	// lockTimeout is how long to wait for a process that still holds the file.
	lockTimeout = time.Second
	// entryOverhead is what an entry takes besides its data, about.
	entryOverhead = 64
	// logCacheEntries is how many recent entries stay decoded for replication
	// and apply. At 128 KiB each 16 MiB; single commands of 1 MiB are rare.
	logCacheEntries = 128
	// syncSamples is how many writes the p99 of the disk is taken from.
	syncSamples = 256
	// maxSizeGap bounds the zeros that stand for a gap in the log, as one that
	// an installed snapshot leaves.
	maxSizeGap = 1 << 16
)

func raftDir(dir string) string { return filepath.Join(dir, "raft") }
func logPath(dir string) string { return filepath.Join(raftDir(dir), "raft.db") }

// logStore is the bolt store with two things counted on the way: the bytes of
// each entry, for compaction by size, and how long a durable write takes. It
// is as monotonic as bolt, which is not: raft asks by type assertion, and a
// method more or less here would change what a snapshot install does.
type logStore struct {
	*raftboltdb.BoltStore

	mu    sync.Mutex // guards what follows
	first uint64     // index of sizes[0]
	sizes []uint32
	took  [syncSamples]time.Duration // ring
	count uint64                     // writes timed
}

// openLogStore opens the store of a data directory. bbolt panics on some
// damaged files; that becomes an error that names the file.
func openLogStore(dir string) (s *logStore, err error) {
	path := logPath(dir)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %s is damaged (%v): empty the data directory and rejoin as a new node", ErrLogStore, path, r)
		}
	}()
	if err := os.MkdirAll(raftDir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogStore, err)
	}
	if err := walk(path); err != nil {
		return nil, storeError(path, err)
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:        lockTimeout,
			NoGrowSync:     false,
			NoFreelistSync: true, // else every commit rewrites the free list, for ever after one burst
			FreelistType:   bbolt.FreelistMapType,
		},
		NoSync:                  false,
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, storeError(path, err)
	}
	s = &logStore{BoltStore: bolt}
	if err := s.scan(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: read %s: %w", ErrLogStore, path, err), bolt.Close())
	}
	return s, nil
}

func storeError(path string, err error) error {
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return fmt.Errorf("%w: %s is in use by another process", ErrLogStore, path)
	}
	return fmt.Errorf("%w: open %s: %w: if the file is damaged, empty the data directory and rejoin as a new node", ErrLogStore, path, err)
}

// walk visits every page of an existing file, read-only and on this goroutine.
// Without a free list on disk bbolt does the same when it opens the file to
// write, but on goroutines of its own, where a damaged page ends the process
// with a stack trace instead of a sentence.
func walk(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close() // also past a panic: the lock must not outlive it
	return db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			var last []byte
			return b.ForEach(func(key, _ []byte) error {
				if last != nil && bytes.Compare(last, key) >= 0 {
					return fmt.Errorf("keys of bucket %q are out of order", name)
				}
				last = key
				return nil
			})
		})
	})
}

// scan counts what is there; the log is bounded by the trailing budget and
// what came after the last snapshot.
func (s *logStore) scan() error {
	first, err := s.FirstIndex()
	if err != nil || first == 0 {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	var entry raft.Log
	for index := first; index <= last; index++ {
		switch err := s.GetLog(index, &entry); {
		case errors.Is(err, raft.ErrLogNotFound): // the gap of an installed snapshot
		case err != nil:
			return err
		default:
			s.note(index, len(entry.Data))
		}
	}
	return nil
}

func (s *logStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

func (s *logStore) StoreLogs(logs []*raft.Log) error {
	start := time.Now()
	err := s.BoltStore.StoreLogs(logs)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took[s.count%syncSamples] = time.Since(start)
	s.count++
	if err == nil {
		for _, log := range logs {
			s.note(log.Index, len(log.Data))
		}
	}
	return err
}

// note needs s.mu, or to be the only one.
func (s *logStore) note(index uint64, dataBytes int) {
	end := s.first + uint64(len(s.sizes))
	if len(s.sizes) == 0 || index < s.first || index > end+maxSizeGap {
		s.first, s.sizes, end = index, s.sizes[:0], index
	}
	for ; end < index; end++ {
		s.sizes = append(s.sizes, 0)
	}
	s.sizes = append(s.sizes[:index-s.first], uint32(dataBytes+entryOverhead))
}

func (s *logStore) DeleteRange(low, high uint64) error {
	if err := s.BoltStore.DeleteRange(low, high); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.first + uint64(len(s.sizes))
	switch {
	case high < s.first || low >= end:
	case low <= s.first: // compaction
		n := min(high+1, end) - s.first
		s.sizes = slices.Clone(s.sizes[n:])
		s.first += n
	default: // a diverged tail
		s.sizes = s.sizes[:low-s.first]
	}
	return nil
}

// bytesAfter returns the bytes of log past an index, and in all.
func (s *logStore) bytesAfter(index uint64) (after, all int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, size := range s.sizes {
		all += int64(size)
		if s.first+uint64(i) > index {
			after += int64(size)
		}
	}
	return after, all
}

// trailing returns how many of the newest entries fit into a budget.
func (s *logStore) trailing(budget int64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n uint64
	for i := len(s.sizes) - 1; i >= 0; i-- {
		if budget -= int64(s.sizes[i]); budget < 0 {
			break
		}
		n++
	}
	if budget >= 0 {
		return maxTrailingLogs // all of it fits, and more may come
	}
	return min(max(n, minTrailingLogs), maxTrailingLogs)
}

// syncP99 returns the 99th percentile of the recent durable writes, 0 before
// the first.
func (s *logStore) syncP99() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int(min(s.count, syncSamples))
	if n == 0 {
		return 0
	}
	sorted := slices.Clone(s.took[:n])
	slices.Sort(sorted)
	return sorted[(n*99+99)/100-1]
}
