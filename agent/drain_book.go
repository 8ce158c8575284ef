package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"rcd/model"
	"rcd/session"
	"rcd/wire"
)

// A drain takes every device of the host out of the pool and leaves the jobs
// alone, or ends them. It is a record on disk, so that the next agent goes on
// with it, and the faults in it are said to the leader like any others.
//
// What was placed before the leader took the fault may still be on its way. Of
// each device that is one lease at most: an operator cannot clear a device that
// is under one. It is started as ever, or ended before it begins if the drain is
// closed, until it cannot come any more (see heard). What was placed after an
// operator has returned the device is told by its lease number, or, as long as no
// leader has said which that is, by coming after that.

const (
	drainFile = "drain.cbor"
	// kindDrain leaves room for kinds beside the first ones in state.go.
	kindDrain = 16
	// drainSettle is how long a session must last after the fault is in the log
	// until every order from before it has been written: the leader compares what
	// is placed with what runs at each heartbeat. It has come with the next word
	// of the leader after that.
	drainSettle = session.HeartbeatEvery + 500*time.Millisecond
	// maxDrainReason bounds an operator's words, in bytes.
	maxDrainReason = 256
)

// Stations of a drained device, on disk: append only.
const (
	drainUnsettled = 0 // the leader has not taken it, or an order may still come
	drainSettled   = 1 // nothing comes any more
)

// drainRecord is the drain as it is on disk.
type drainRecord struct {
	SinceMS int64            `cbor:"1,keyasint"`
	Reason  string           `cbor:"2,keyasint"`
	Closed  bool             `cbor:"3,keyasint"` // nothing begins
	Devices map[string]uint8 `cbor:"4,keyasint"` // stations, by name
	// Rest: devices that only an agent finds belong to it as well.
	Rest bool `cbor:"5,keyasint"`
	// Leases are, by device that the leader has taken, the highest lease number
	// that there was then: what is ordered above it was placed after an operator
	// has returned the device, and the leader need not be told again.
	Leases map[string]uint64 `cbor:"6,keyasint,omitempty"`
}

// drainState is the record, and what this process knows beside it. It is never
// changed, only replaced.
type drainState struct {
	drainRecord
	told    map[string]drainAck // by device
	refused map[string]string   // what the leader said instead, by device
}

// drainAck is a leader's word: that the fault of a device is in the log, or
// only how far its table is.
type drainAck struct {
	index uint64
	at    time.Time
}

func (s *drainState) clone() *drainState {
	next := *s
	next.Devices, next.told, next.refused = maps.Clone(s.Devices), maps.Clone(s.told), maps.Clone(s.refused)
	next.Leases = maps.Clone(s.Leases)
	return &next
}

// later reports whether a lease is known to have been placed after the drain of
// a device; known is false while only time can tell.
func (s *drainState) later(device string, lease uint64) (later, known bool) {
	last, known := s.Leases[device]
	return known && lease > last, known
}

// settled reports whether no order from before the drain can come any more.
func (s *drainState) settled() bool {
	for _, station := range s.Devices {
		if station != drainSettled {
			return false
		}
	}
	return !s.Rest
}

// drainBook holds the drain of a host. Readers never wait for the disk.
type drainBook struct {
	dir, host string
	state     atomic.Pointer[drainState] // nil: the host is not drained

	mu      sync.Mutex // serialises changes; never taken under agent.mu
	session time.Time  // since when the session with the leader lasts
	last    drainAck   // the leader's last word
}

// openDrain reads the drain of a data directory. A record that cannot be read
// is set aside and named in the error, and the host is not drained then.
func openDrain(dir, host string) (*drainBook, error) {
	b := &drainBook{dir: dir, host: host}
	state, err := readDrain(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return b, nil
	case errors.Is(err, errCorrupt):
		path := filepath.Join(dir, drainFile)
		if moved := os.Rename(path, path+".corrupt"); moved != nil {
			return nil, fmt.Errorf("set a corrupt file aside: %w", moved)
		}
		return b, fmt.Errorf("%w; if the host is to be drained, say so again", err)
	case err != nil:
		return nil, err
	}
	b.state.Store(state)
	return b, nil
}

// readDrain returns what is on disk. The error wraps os.ErrNotExist or
// errCorrupt.
func readDrain(dir string) (*drainState, error) {
	var record drainRecord
	if err := readRecord(filepath.Join(dir, drainFile), kindDrain, &record); err != nil {
		return nil, err
	}
	s := newDrainState(record)
	for d := range s.Leases {
		if s.Devices[d] != drainSettled {
			s.told[d] = drainAck{at: time.Now()} // whatever the index was, the next leader is past it
		}
	}
	return s, nil
}

func newDrainState(record drainRecord) *drainState {
	return &drainState{drainRecord: record, told: map[string]drainAck{}, refused: map[string]string{}}
}

// begin drains devices, also those that a drain before has settled: they may be
// back. closed: nothing begins. rest: see drainRecord. Without a reason that of a
// drain which is not settled stands, so that a device has one fault of it and not
// two. It is on disk when it returns without an error, and nothing has changed
// after one.
func (b *drainBook) begin(devices []string, reason string, closed, rest bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	record := drainRecord{SinceMS: time.Now().UnixMilli(), Reason: oneLine(reason), Closed: closed, Rest: rest, Devices: map[string]uint8{}}
	if old := b.state.Load(); old != nil && !old.settled() {
		record.SinceMS, record.Closed, record.Rest = old.SinceMS, closed || old.Closed, rest || old.Rest
		record.Reason = cmp.Or(record.Reason, old.Reason)
		for d := range old.Devices {
			record.Devices[d] = drainUnsettled
		}
	}
	for _, d := range devices {
		record.Devices[d] = drainUnsettled
	}
	return b.put(newDrainState(record))
}

// found adds the devices that only an agent knows, if the record waits for them.
func (b *drainBook) found(devices []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.state.Load()
	if old == nil || !old.Rest {
		return nil
	}
	next := old.clone()
	next.Rest = false
	for _, d := range devices {
		if _, ok := next.Devices[d]; !ok {
			next.Devices[d] = drainUnsettled
		}
	}
	return b.put(next)
}

// close ends the starts of what was placed before, if idle says that nothing
// runs once no start is taken any more. Without a drain it does nothing.
func (b *drainBook) close(idle func(closing func()) bool) (closed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.state.Load()
	if old == nil {
		return false, nil
	}
	next := old.clone()
	next.Closed = true
	if !idle(func() { b.state.Store(next) }) {
		return false, nil
	}
	if err := b.put(next); err != nil {
		b.state.Store(old)
		return false, err
	}
	return true, nil
}

// cancel forgets the drain and returns it as it was, nil if there was none.
// What the leader has taken stays with it.
func (b *drainBook) cancel() (*drainState, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.state.Load()
	return old, b.put(nil)
}

// returned drops devices for which a lease has come that was placed after the
// drain: an operator has returned them.
func (b *drainBook) returned(devices []string, lease uint64) error {
	back := func(s *drainState, d string) bool {
		station, ok := s.Devices[d]
		if later, known := s.later(d, lease); known {
			return ok && later
		}
		return ok && station == drainSettled
	}
	if s := b.state.Load(); s == nil || !slices.ContainsFunc(devices, func(d string) bool { return back(s, d) }) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.state.Load()
	if old == nil {
		return nil
	}
	next := old.clone()
	for _, d := range devices {
		if back(old, d) {
			next.forget(d)
		}
	}
	if len(next.Devices) == 0 {
		next = nil
	}
	return b.put(next)
}

func (s *drainState) forget(device string) {
	delete(s.Devices, device)
	delete(s.Leases, device)
	delete(s.told, device)
}

// refuses reports whether a job that is ordered on devices under a lease must
// not begin: it was placed before a drain that is closed.
func (b *drainBook) refuses(devices []string, lease uint64) bool {
	s := b.state.Load()
	if s == nil || !s.Closed {
		return false
	}
	return s.Rest || slices.ContainsFunc(devices, func(d string) bool {
		station, ok := s.Devices[d]
		later, _ := s.later(d, lease)
		return ok && !later && station != drainSettled
	})
}

// faults returns what the leader is to be told, sorted by device.
func (b *drainBook) faults() (out []wire.DeviceFault) {
	s := b.state.Load()
	if s == nil {
		return nil
	}
	for _, d := range slices.Sorted(maps.Keys(s.Devices)) {
		if _, told := s.told[d]; !told && s.Devices[d] != drainSettled {
			out = append(out, b.fault(s, d))
		}
	}
	return out
}

// fault is what an operator reads of a device.
func (b *drainBook) fault(s *drainState, device string) wire.DeviceFault {
	why := "drained on the host"
	if s.Reason != "" {
		why += ": " + s.Reason
	}
	return wire.DeviceFault{Device: device, Detail: why + "; return it with: rc clear " + model.DeviceID(b.host, device)}
}

// acked takes the leader's answer, and reports whether it was for a drain. An
// agent that starts again says the fault again unless the answer is on disk: a
// leader of an earlier release says no lease number to keep.
func (b *drainBook) acked(ack wire.FaultAck) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.state.Load()
	if old == nil {
		return false
	}
	if _, ok := old.Devices[ack.Device]; !ok || b.fault(old, ack.Device).Detail != ack.Detail {
		return false
	}
	next := old.clone()
	delete(next.refused, ack.Device)
	if ack.Code != "" {
		next.refused[ack.Device] = ack.Message
	} else if _, told := next.told[ack.Device]; !told {
		next.told[ack.Device] = drainAck{index: ack.Index, at: time.Now()}
		if ack.Lease > 0 {
			if next.Leases == nil {
				next.Leases = map[string]uint64{}
			}
			next.Leases[ack.Device] = ack.Lease
		}
	}
	b.state.Store(next)
	if len(next.Leases) > len(old.Leases) {
		_ = b.put(next) // without it the next agent says the fault again
	}
	return true
}

// welcomed notes that a session with a leader begins.
func (b *drainBook) welcomed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session = time.Now()
}

// heard takes a leader's word that its table is at index, and settles devices:
// the session has lasted for drainSettle since their fault is in the log, and no
// job is on them that was placed before.
func (b *drainBook) heard(index uint64, busy func(device string) bool) error {
	if s := b.state.Load(); s == nil || len(s.told) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// The word before this one counts: this one may open another session.
	before := b.last
	b.last = drainAck{index: index, at: time.Now()}
	old := b.state.Load()
	if old == nil {
		return nil
	}
	var done []string
	for d, ack := range old.told {
		since := ack.at
		if b.session.After(since) {
			since = b.session
		}
		if before.index >= ack.index && before.at.Sub(since) >= drainSettle && !busy(d) {
			done = append(done, d)
		}
	}
	if len(done) == 0 {
		return nil
	}
	next := old.clone()
	for _, d := range done {
		next.Devices[d] = drainSettled
		delete(next.told, d)
	}
	return b.put(next)
}

// put makes a state the present one once it is on disk. The caller holds mu.
func (b *drainBook) put(next *drainState) error {
	path := filepath.Join(b.dir, drainFile)
	var err error
	if next == nil {
		if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
			err = nil
		} else if err == nil {
			err = syncDir(b.dir)
		}
	} else {
		err = writeRecord(path, kindDrain, next.drainRecord)
	}
	if err != nil {
		return fmt.Errorf("write drain: %w", err)
	}
	b.state.Store(next)
	return nil
}

// oneLine makes an operator's words fit into a line.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxDrainReason)], "")
}
