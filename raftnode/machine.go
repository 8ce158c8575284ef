package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rcd/fsm/command"
)

// StateMachine is what the node replicates. Apply, Snapshot and Restore are
// called from one goroutine at a time; Index from any.
type StateMachine interface {
	// Apply applies one entry and returns a result for each of its commands,
	// in order. An error means that the entry cannot be decoded or holds a
	// mandatory command this build does not know: the node halts.
	Apply(index, term uint64, data []byte) (results []command.Result, events []command.Event, err error)
	// Snapshot returns the state as it is now, cheaply.
	Snapshot() (Snapshot, error)
	// Restore replaces the state. It must not keep the reader. An error that
	// wraps ErrHalted means that this build must not go on: the node halts.
	Restore(io.Reader) error
	// Index returns the index of the last entry applied, also after Restore.
	Index() uint64
}

// Snapshot is a state that is written while Apply goes on.
type Snapshot interface {
	WriteTo(io.Writer) (int64, error)
}

// slowApply is above which an apply is logged: it holds up every other.
const slowApply = 100 * time.Millisecond

// applied is what raft's future carries for an entry.
type applied struct {
	term    uint64 // of the entry in the log
	results []command.Result
	err     error // the node halted at or before this entry
}

// machine is the state machine as raft sees it, and what waits for an index.
type machine struct {
	inner      StateMachine
	onApply    func(index, term uint64, events []command.Event) // may be nil
	onHalt     func(error)
	beforeSnap func()
	logger     *slog.Logger

	mu      sync.Mutex // guards what follows
	index   uint64
	waiting map[chan struct{}]uint64 // each closed when its index is reached
	halted  error
	raising bool // raft is being started; who starts it asks whether it halted
}

var _ raft.FSM = (*machine)(nil)

// Apply implements raft.FSM. After a halt it does nothing more: what would
// follow the entry that could not be applied would be another history.
func (m *machine) Apply(entry *raft.Log) any {
	if err := m.haltError(); err != nil {
		return applied{term: entry.Term, err: err}
	}
	start := time.Now()
	results, events, err := m.inner.Apply(entry.Index, entry.Term, entry.Data)
	if err != nil {
		err = fmt.Errorf("%w: entry %d of term %d: %w", ErrHalted, entry.Index, entry.Term, err)
		m.stop(err)
		return applied{term: entry.Term, err: err}
	}
	if took := time.Since(start); took > slowApply {
		m.logger.Warn("slow apply", "index", entry.Index, "took", took, "bytes", len(entry.Data))
	}
	if m.onApply != nil {
		m.onApply(entry.Index, entry.Term, events)
	}
	m.advance(entry.Index)
	return applied{term: entry.Term, results: results}
}

// Snapshot implements raft.FSM. A halted node takes none: raft would file it
// under the index of entries that were not applied.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := m.haltError(); err != nil {
		return nil, err
	}
	s, err := m.inner.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("snapshot the state: %w", err)
	}
	m.beforeSnap()
	return persistent{s}, nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	if err := m.haltError(); err != nil {
		return err
	}
	if err := m.inner.Restore(r); err != nil {
		err = fmt.Errorf("restore a snapshot: %w", err)
		if errors.Is(err, ErrHalted) {
			m.stop(err)
		}
		return err
	}
	m.advance(m.inner.Index())
	return nil
}

// stop makes the state machine stand still for good and says so, once.
func (m *machine) stop(why error) {
	m.mu.Lock()
	first, raising := m.halted == nil, m.raising
	if first {
		m.halted = why
	}
	m.mu.Unlock()
	if first && !raising {
		m.onHalt(why)
	}
}

// raise tells that raft is being started, or has been: a halt in that time is
// the error of the start.
func (m *machine) raise(begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raising = begins
}

func (m *machine) haltError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.halted
}

func (m *machine) current() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index
}

func (m *machine) advance(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = index
	for reached, at := range m.waiting {
		if at <= index {
			close(reached)
			delete(m.waiting, reached)
		}
	}
}

// wait returns when index is applied, or the error of ctx.
func (m *machine) wait(ctx context.Context, index uint64) error {
	m.mu.Lock()
	if m.index >= index {
		m.mu.Unlock()
		return nil
	}
	reached := make(chan struct{})
	m.waiting[reached] = index
	m.mu.Unlock()
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		m.mu.Lock()
		delete(m.waiting, reached)
		m.mu.Unlock()
		return ctx.Err()
	}
}

// persistent is a Snapshot as raft sees it.
type persistent struct{ inner Snapshot }

func (p persistent) Persist(sink raft.SnapshotSink) error {
	if _, err := p.inner.WriteTo(sink); err != nil {
		sink.Cancel()
		return fmt.Errorf("write snapshot %s: %w", sink.ID(), err)
	}
	return sink.Close()
}

func (p persistent) Release() {
	if r, ok := p.inner.(interface{ Release() }); ok {
		r.Release()
	}
}
