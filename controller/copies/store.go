package copies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"rcd/agent/spool"
	"rcd/model"
)

var (
	// ErrNone: there is no copy of this job and lease here, or none any more.
	ErrNone = errors.New("no copy of this output here")
	// ErrBusy: somebody else writes the copy.
	ErrBusy = errors.New("the copy is being written")
	// ErrNoRoom: the limit or the watermark allows no more; Usage says which.
	ErrNoRoom = errors.New("no room for copies of output")
	// ErrDamaged: the copy is not what it was said to be.
	ErrDamaged = errors.New("copy of output damaged")
	// ErrNotNext: what is offered does not go on where the copy ends.
	ErrNotNext = errors.New("not the next of the copy")
)

// statEvery is how long the last look at the disk is good for.
const statEvery = time.Second

// Key names an output: a job under the lease that it ran under.
type Key struct{ Job, Lease uint64 }

// Options are what a Store needs.
type Options struct {
	Dir        string // holds nothing but copies
	Cluster    string
	Generation uint64
	Limit      Limit
	// PerJob bounds one copy in bytes on disk; 0 means as a spool, 1 GiB. At most a quarter of the limit.
	PerJob int64
	// Disk tells the size of the disk and what is free on it; nil asks the system.
	Disk   func(dir string) (size, free int64, err error)
	Logger *slog.Logger
}

// Store is all copies of one controller. Its methods may be called concurrently; none waits for more than a write of a few files.
type Store struct {
	options Options
	log     *slog.Logger

	mu     sync.Mutex       // guards what follows and every copy; never held over a write
	copies map[uint64]*held // by job
	bytes  int64            // what they take
	oldest *held            // the first to go; nil: not known
	limit  int64
	stat   time.Time // of the last look at the disk
	low    string    // why nothing is written, "" while there is room
	failed string    // why the last write was not taken, "" if it was

	claims map[uint64]bool // jobs whose copy, or one removed meanwhile, somebody writes
	trash  []string        // directories to remove
	trashN int             // names the next one
}

// held is one copy.
type held struct {
	key     Key
	length  int64 // what is there, gaps included
	bytes   int64 // that it takes
	endedMS int64 // when the job ended; 0: it has not, as far as is known
	// complete: nothing more is to be fetched. gaps: some of it is not there.
	complete, gaps bool
	damaged        bool // found when it was read
	gone           bool
	writer         *spool.Writer // nil once complete; the claim owns it
	claimed        bool
	changed        chan struct{} // of those who wait; closed when there is more, or the claim ends
}

// Open reads what is in the directory, which is made if it is missing: about 0.1 ms a copy. What belongs to another cluster or generation, or is damaged,
// is removed. When ctx ends first, that is the error.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Disk == nil {
		o.Disk = statDisk
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open copies of output: %w", err)
	}
	s := &Store{options: o, log: o.Logger, copies: map[uint64]*held{}, claims: map[uint64]bool{}}
	size, _, err := o.Disk(o.Dir)
	if err != nil {
		return nil, err
	}
	s.limit = o.Limit.of(size)
	if s.options.PerJob == 0 {
		s.options.PerJob = spool.DefaultBound
	}
	s.options.PerJob = max(min(s.options.PerJob, s.limit/4), spool.MinBound)
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open copies of output: %w", err)
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		dir := filepath.Join(o.Dir, e.Name())
		h, err := s.load(dir, e.Name())
		if err == nil {
			s.copies[h.key.Job] = h
			s.bytes += h.bytes
			continue
		}
		if !errors.Is(err, errOthers) {
			s.log.Info("a damaged copy of output is removed and fetched again", "dir", dir, "err", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("open copies of output: %w", err)
		}
	}
	s.mu.Lock()
	s.evict(nil)
	s.mu.Unlock()
	s.Clean()
	return s, nil
}

// errOthers: what is there is left over, and nobody's loss.
var errOthers = errors.New("not of this cluster, or removed before")

func (s *Store) load(dir, name string) (*held, error) {
	job, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return nil, errOthers
	}
	head, err := readHeader(dir)
	if err != nil {
		return nil, err
	}
	if head.Cluster != s.options.Cluster || head.Generation != s.options.Generation || head.Job != job {
		return nil, errOthers
	}
	bytes, err := segmentBytes(dir)
	if err != nil {
		return nil, err
	}
	h := &held{
		key: Key{Job: job, Lease: head.Lease}, length: head.Length, bytes: bytes + overhead, endedMS: head.EndedMS,
		complete: head.Complete, gaps: head.Gaps,
	}
	if head.Complete && bytes != head.DiskBytes {
		return nil, fmt.Errorf("%w: %d bytes of segments where %d were written", ErrDamaged, bytes, head.DiskBytes)
	}
	if !head.Complete {
		// What is there is for readers too, also when there is nothing more to come.
		if h.writer, err = spool.Resume(dir, s.options.PerJob); err != nil {
			return nil, err
		}
		h.length, h.bytes = h.writer.Length(), h.writer.Size()+overhead
	}
	return h, nil
}

func (s *Store) dirOf(job uint64) string {
	return filepath.Join(s.options.Dir, strconv.FormatUint(job, 10))
}

// State is what a copy has.
type State struct {
	Lease    uint64
	Length   int64 // gaps included
	Complete bool
	Gaps     bool // some of it is not there
	Damaged  bool // it is to be fetched again; what can be read of it still is
}

// State tells what the copy of a job has; false if there is none.
func (s *Store) State(job uint64) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.copies[job]
	if h == nil {
		return State{}, false
	}
	return State{Lease: h.key.Lease, Length: h.length, Complete: h.complete && !h.damaged, Gaps: h.gaps, Damaged: h.damaged}, true
}

// Jobs lists the jobs that there are copies of, in no order. The caller owns the slice.
func (s *Store) Jobs() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := make([]uint64, 0, len(s.copies))
	for job := range s.copies {
		jobs = append(jobs, job)
	}
	return jobs
}

// Drop removes the copy of a job. A reader of it then fails with ErrNone.
func (s *Store) Drop(job uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.copies[job]; h != nil {
		s.remove(h)
	}
}

// remove takes a copy away; mu is held. Clean frees the disk.
func (s *Store) remove(h *held) {
	delete(s.copies, h.key.Job)
	s.bytes -= h.bytes
	if s.oldest == h {
		s.oldest = nil
	}
	h.gone = true
	h.wake()
	// Under another name at once, so that a new copy of the job may begin. What a crash leaves behind goes at the next start, as does what cannot be
	// set aside.
	s.trashN++
	dir := s.dirOf(h.key.Job)
	gone := filepath.Join(s.options.Dir, fmt.Sprintf("gone-%d", s.trashN))
	if err := os.Rename(dir, gone); err == nil {
		s.trash = append(s.trash, gone)
	} else if !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("copy of output not set aside", "job", model.JobID(h.key.Job), "err", err)
	}
}

// Clean frees the disk of what was removed. It may take long, and holds up nobody.
func (s *Store) Clean() {
	s.mu.Lock()
	trash := s.trash
	s.trash = nil
	s.mu.Unlock()
	for _, dir := range trash {
		if err := os.RemoveAll(dir); err != nil {
			s.log.Warn("copy of output not removed", "dir", dir, "err", err)
		}
	}
}

func (h *held) wake() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}
