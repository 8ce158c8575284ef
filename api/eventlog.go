package api

import (
	"slices"
	"sync"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// What an EventLog keeps. An event takes about 300 bytes, one of a device with
// many labels some thousands; a busy cluster makes a few hundred a second, so
// that a reader may be away for about a minute, and for hours on a quiet one.
const (
	maxEvents     = 16384
	maxEventBytes = 32 << 20
)

// EventLog is the replicated event log: what the latest entries changed, kept
// by each node while it applies them, so that every node has the same events
// under the same IDs. It is bounded, and a node that was started from a
// snapshot has none from before it; whoever asks for more is told so.
//
// Applied and Restored are for the state machine's goroutine and never block;
// the other methods may be called concurrently.
type EventLog struct {
	mu         sync.Mutex // guards what follows
	records    []*record  // ascending by ID
	bytes      int
	lost       eventID // of what is above it nothing is missing
	last       uint64  // index of the last entry
	generation uint64
	news       chan struct{} // closed at the next event; nil while nobody waits
	jobs       map[uint64]map[chan struct{}]struct{}
}

// record is one event as the log keeps it. It is never written again.
type record struct {
	id    eventID
	kind  command.EventKind
	atMS  int64 // the cluster's now
	term  uint64
	bytes int

	job    uint64
	state  string // of the job; "" when it is not known
	owner  string // submitter of the job, "" when it is not known
	hold   uint64 // that the job runs inside
	device string // that it is about, of a job the one it has or is pinned to
	host   string
	reason string
	shown  *deviceFacts // the device after the entry, for events about one
}

// NewEventLog returns a log for a node that has applied nothing.
func NewEventLog() *EventLog {
	return &EventLog{generation: 1, lost: after(0), jobs: map[uint64]map[chan struct{}]struct{}{}}
}

// Applied takes the events of an entry, with the state right after it.
func (l *EventLog) Applied(table *fsm.View, events []command.Event) {
	records := recordsOf(table, events)
	l.mu.Lock()
	defer l.mu.Unlock()
	if table.Generation() != l.generation {
		l.begin(table) // IDs of another generation mean nothing in this one
		return
	}
	l.last = table.Index()
	if len(records) == 0 {
		return
	}
	l.records = append(l.records, records...)
	for _, r := range records {
		l.bytes += r.bytes
		if r.job != 0 {
			wake(l.jobs[r.job])
		}
	}
	l.shrink()
	l.announce()
}

// Restored takes a state that came whole: nothing tells what led to it.
func (l *EventLog) Restored(table *fsm.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(table)
}

// begin makes the log one that knows of nothing before a state.
func (l *EventLog) begin(table *fsm.View) {
	l.records, l.bytes = nil, 0
	l.last, l.generation, l.lost = table.Index(), table.Generation(), after(table.Index())
	for _, waiters := range l.jobs {
		wake(waiters)
	}
	l.announce()
}

// shrink drops the oldest events above the bounds, a batch at a time, so that
// the others are moved seldom.
func (l *EventLog) shrink() {
	const batch = maxEvents / 8
	if len(l.records) <= maxEvents && l.bytes <= maxEventBytes {
		return
	}
	n := 0
	for len(l.records)-n > maxEvents-batch || l.bytes > maxEventBytes-maxEventBytes/8 {
		l.bytes -= l.records[n].bytes
		n++
	}
	l.lost = l.records[n-1].id
	l.records = slices.Clone(l.records[n:])
}

func (l *EventLog) announce() {
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
}

func wake(waiters map[chan struct{}]struct{}) {
	for ch := range waiters {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// excerpt is a piece of the log.
type excerpt struct {
	records    []*record
	whole      bool    // nothing is missing between what was asked for and it
	next       eventID // what to ask for next
	generation uint64
	news       <-chan struct{} // closed when there is more than this
}

// after returns up to n events above id. Without whole there are none: events
// above id have been dropped, and next is the end of the log.
func (l *EventLog) after(id eventID, n int) excerpt {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := excerpt{whole: id.compare(l.lost) >= 0, generation: l.generation}
	end := after(l.last)
	if !p.whole {
		p.next = end
		return p
	}
	from, _ := slices.BinarySearchFunc(l.records, id, func(r *record, id eventID) int {
		if r.id.compare(id) <= 0 {
			return -1
		}
		return 1
	})
	to := min(from+n, len(l.records))
	p.records = l.records[from:to:to] // neither moved nor written while it is read
	if to < len(l.records) {
		p.next, p.news = p.records[len(p.records)-1].id, closed
		return p
	}
	p.next = end
	if id.compare(end) > 0 {
		p.next = id // of an entry that this node has yet to apply
	}
	if l.news == nil {
		l.news = make(chan struct{})
	}
	p.news = l.news
	return p
}

var closed = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// end returns the place behind the last entry, and the generation.
func (l *EventLog) end() (eventID, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return after(l.last), l.generation
}

// watchJob returns a channel that receives after events of a job, several in
// one when the reader is slow, and the function that ends the watch.
func (l *EventLog) watchJob(job uint64) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs[job] == nil {
		l.jobs[job] = map[chan struct{}]struct{}{}
	}
	l.jobs[job][ch] = struct{}{}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.jobs[job], ch)
		if len(l.jobs[job]) == 0 {
			delete(l.jobs, job)
		}
	}
}

// recordsOf turns the events of an entry into records. Of several about the
// state of one device only the last is kept: all of them show it as it is
// after the entry.
func recordsOf(table *fsm.View, events []command.Event) []*record {
	var records []*record
	at := map[string]int{} // device → its record
	for i, e := range events {
		if e.Kind == command.EventCheckpoint {
			continue // of interest to controllers alone
		}
		r := newRecord(table, e, i)
		if e.Kind == command.EventDeviceState || e.Kind == command.EventLabels {
			if j, known := at[e.Device]; known {
				if records[j].kind == command.EventDeviceState {
					r.kind = command.EventDeviceState // it says more than that labels changed
				}
				records[j] = nil
			}
			at[e.Device] = len(records)
		}
		records = append(records, r)
	}
	return slices.DeleteFunc(records, func(r *record) bool { return r == nil })
}

// recordBytes is about what a record takes without what it refers to.
const recordBytes = 256

func newRecord(table *fsm.View, e command.Event, position int) *record {
	r := &record{
		id: eventID{e.Index, position}, kind: e.Kind, atMS: table.NowMS(), term: e.Term,
		job: e.Job, device: e.Device, host: e.Host, reason: e.Reason,
	}
	if job := table.Job(e.Job); job != nil {
		r.state, r.owner, r.hold = job.State.String(), job.Submitter, job.Hold
		if r.device == "" {
			r.device = job.Device()
		}
		if r.device == "" {
			r.device = job.Pinned
		}
		if r.host == "" {
			r.host = job.Host
		}
	}
	switch e.Kind { // what the state after the entry may have gone past
	case command.EventJobQueued, command.EventJobRequeued:
		r.state = model.JobQueued.String()
	case command.EventJobPlaced:
		r.state = model.JobAssigned.String()
	case command.EventJobStarted:
		r.state = model.JobRunning.String()
	}
	if device := table.Device(e.Device); device != nil && eventKinds[e.Kind].of == kindDevices {
		v := &view{View: table, now: time.UnixMilli(table.NowMS())}
		facts := v.factsOf(device)
		if agent := table.Agent(device.Host); agent != nil && !agent.Silent {
			// Rows do not follow heartbeats, and what nodes have heard differs:
			// a host that nobody has found silent was in contact.
			facts.heard = v.now
		}
		r.shown = &facts
	}
	r.bytes = recordBytes + len(r.reason) + r.shown.bytes()
	return r
}
