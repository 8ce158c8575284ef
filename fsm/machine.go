package fsm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"rcd/fsm/command"
	"rcd/scheduler"
)

// ErrOrder means that an entry came at or below an index already applied.
var ErrOrder = errors.New("entry applied out of order")

// ErrFeatureLevel means that the cluster is at a feature level that this build
// does not know. The node must halt; another build can go on from its log.
var ErrFeatureLevel = errors.New("feature level of a newer build")

// Options of a Machine.
type Options struct {
	// PanicOnInvariant makes a broken invariant panic instead of aborting the
	// entry: for tests.
	PanicOnInvariant bool
	// Knows is the highest feature level that this machine can apply, 0 for
	// the build's own.
	Knows uint32
}

// Machine applies entries. Apply and Restore are for one goroutine at a time
// (a lock makes sure of it); every other method is safe for concurrent use and
// none of them waits for Apply.
type Machine struct {
	options Options

	mu     sync.Mutex // guards what follows; held by Apply, Restore and the checks
	work   *View      // the state being changed; equal to view between entries
	sched  *scheduler.Scheduler
	halted error
	hash   hasher

	view  atomic.Pointer[View]
	marks atomic.Pointer[[]mark] // newest last; stored under mu

	// afterCommands is called between an entry's commands and its scheduling:
	// for tests that break an invariant on purpose.
	afterCommands func(*txn)
}

// New returns a machine with the empty state of a fresh cluster, at index 0.
func New(options Options) *Machine {
	if options.Knows == 0 {
		options.Knows = featureLevel
	}
	m := &Machine{options: options}
	m.load(emptyView(), scheduler.New())
	return m
}

// load makes v and its scheduler, which the caller gives away, the state.
func (m *Machine) load(v *View, sched *scheduler.Scheduler) {
	v.sealMeta(&m.hash)
	v.sealSettings(&m.hash)
	m.work, m.sched = v, sched
	m.view.Store(v.publish(emptyView()))
}

// rebuildScheduler returns a scheduler for the rows of v.
func rebuildScheduler(v *View) *scheduler.Scheduler {
	s := scheduler.New()
	for _, d := range v.Devices() {
		s.PutDevice(d)
	}
	keepEdges(v, s)
	for j := range v.Queued() {
		s.Add(j)
	}
	settle(s)
	return s
}

// settle lets a scheduler that was built from a whole state find out that
// nothing is left to place.
func settle(s *scheduler.Scheduler) {
	s.Place(func(uint64, string) { broken("a ready device stood beside a queued job it could run") })
}

// View returns the state after the last entry.
func (m *Machine) View() *View { return m.view.Load() }

// Index returns the index of the last entry applied, 0 before any.
func (m *Machine) Index() uint64 { return m.View().Index() }

// Digest returns the digest of the state after the last entry.
func (m *Machine) Digest() Digest { return m.View().Digest() }

// Apply applies the entry with this index that Raft committed in this term.
//
// It returns one result for each command, in their order, and the events of
// the entry; both follow from state and entry alone. An error means that the
// node must halt: the state is as it was, and every later Apply returns the
// error again. It wraps command.ErrUndecodable, command.ErrUnknownKind,
// ErrFeatureLevel or ErrOrder.
func (m *Machine) Apply(index, term uint64, data []byte) ([]command.Result, []command.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.halted != nil {
		return nil, nil, m.halted
	}
	if last := m.work.index; index <= last {
		return nil, nil, m.halt(fmt.Errorf("%w: index %d after %d", ErrOrder, index, last))
	}
	entry, commands, err := decode(data)
	if err != nil {
		return nil, nil, m.halt(fmt.Errorf("apply index %d: %w", index, err))
	}
	m.noteMark(index)
	t := &txn{View: m.work, last: m.view.Load(), hash: &m.hash, sched: m.sched, raftTerm: term, entry: entry, atIndex: index, knows: m.options.Knows}
	m.clearDirty()
	name := m.attempt(t, commands)
	if t.unknownLevel != 0 {
		// Whatever else went wrong: builds that know the level may not have met
		// it, so this one must not go on as if the entry were void.
		m.abort(m.view.Load().index)
		return nil, nil, m.halt(fmt.Errorf("apply index %d: %w: the cluster goes to %d, this build knows %d; upgrade it", index, ErrFeatureLevel, t.unknownLevel, t.knows))
	}
	if name != "" {
		m.abort(index)
		t.abandon(name, len(commands))
	}
	m.view.Store(m.work.publish(m.view.Load()))
	return t.results, t.events, nil
}

func (m *Machine) halt(err error) error {
	m.halted = err
	return err
}

// decode decodes the whole entry before any of it is applied.
func decode(data []byte) (command.Entry, []command.Command, error) {
	entry, err := command.DecodeEntry(data)
	if err != nil {
		return command.Entry{}, nil, err
	}
	commands := make([]command.Command, len(entry.Commands))
	for i, raw := range entry.Commands {
		if commands[i], err = command.Decode(raw); err != nil {
			return command.Entry{}, nil, fmt.Errorf("command %d: %w", i, err)
		}
	}
	return entry, commands, nil
}

// attempt runs the entry and returns the name of the invariant it broke, or "".
func (m *Machine) attempt(t *txn, commands []command.Command) (name string) {
	defer func() {
		if m.options.PanicOnInvariant {
			return
		}
		switch r := recover().(type) {
		case nil:
		case brokenInvariant:
			name = string(r)
		case error:
			// A failure of the program itself, such as a nil row: the same on
			// every replica, and a poison entry all the same.
			name = "panic: " + r.Error()
		default:
			name = fmt.Sprint("panic: ", r)
		}
	}()
	t.index = t.atIndex
	if t.runAll(commands); t.unknownLevel != 0 {
		return "" // what follows has a meaning that this build does not know
	}
	if m.afterCommands != nil {
		m.afterCommands(t)
	}
	t.schedule()
	t.noteUnserved()
	t.answer()
	t.seal()
	t.assertEntry()
	return ""
}

// abort goes back to the state before the entry; only the index moves on.
func (m *Machine) abort(index uint64) {
	m.work.restore(m.view.Load())
	m.work.index = index
	m.sched = rebuildScheduler(m.work)
}

func (m *Machine) clearDirty() {
	w := m.work
	w.jobs.dirty, w.leases.dirty = w.jobs.dirty[:0], w.leases.dirty[:0]
	w.devices.dirty, w.agents.dirty = w.devices.dirty[:0], w.agents.dirty[:0]
	w.requests.dirty, w.sheets.dirty = w.requests.dirty[:0], w.sheets.dirty[:0]
	w.members.dirty, w.unserved.dirty = w.members.dirty[:0], w.unserved.dirty[:0]
}

// brokenInvariant is what broken panics with: the name of the invariant.
type brokenInvariant string

// broken says that an invariant does not hold. The entry in hand is undone.
func broken(name string) { panic(brokenInvariant(name)) }

// assert breaks the named invariant unless ok.
func assert(ok bool, name string) {
	if !ok {
		broken(name)
	}
}
