package fsm

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"

	"rcd/internal/codec"
	"rcd/model"
	"rcd/scheduler"
)

// ErrSnapshot means that bytes are not a whole, undamaged snapshot that this
// build can read.
var ErrSnapshot = errors.New("unusable snapshot")

// Kinds of the records of a snapshot, beside a table's, which is rowKind plus
// its ID: append only.
const (
	snapshotHeader  uint16 = 1
	snapshotTrailer uint16 = 2
	rowKind         uint16 = 16
)

// snapshotFormat is the version of the layout: header, rows by table and key,
// trailer.
const snapshotFormat = 1

// maxRecord bounds one record: a job of 1 MiB, or a device with all its labels.
const maxRecord = 16 << 20

type headerRecord struct {
	Format  uint32 `cbor:"1,keyasint"`
	Feature uint32 `cbor:"2,keyasint"` // level that the rows are written in
	Index   uint64 `cbor:"3,keyasint"`
	Term    uint64 `cbor:"4,keyasint"` // epoch
}

type trailerRecord struct {
	Rows   uint64 `cbor:"1,keyasint"`
	Digest []byte `cbor:"2,keyasint"`
	Index  uint64 `cbor:"3,keyasint"` // as in the header, which no digest covers
}

// Snapshot is the state at one index, ready to be written. It never changes.
type Snapshot struct{ view *View }

// Snapshot returns the present state; it takes no time that grows with it.
func (m *Machine) Snapshot() *Snapshot { return &Snapshot{view: m.View()} }

// Index returns the index that the snapshot stands for.
func (s *Snapshot) Index() uint64 { return s.view.index }

// WriteTo writes the snapshot and returns the bytes written. The same state
// gives the same bytes on every node.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	out := &recordWriter{w: bufio.NewWriterSize(w, 1<<16)}
	v := s.view
	out.write(snapshotHeader, &headerRecord{Format: snapshotFormat, Feature: v.meta.Feature, Index: v.index, Term: v.meta.Term})
	out.write(rowKind+uint16(tableMeta), &v.meta)
	out.write(rowKind+uint16(tableSettings), &v.settings)
	writeTable(out, &v.jobs)
	writeTable(out, &v.leases)
	writeTable(out, &v.devices)
	writeTable(out, &v.agents)
	writeTable(out, &v.requests)
	writeTable(out, &v.sheets)
	writeTable(out, &v.members)
	writeTable(out, &v.unserved)
	digest := v.digest.Bytes()
	out.write(snapshotTrailer, &trailerRecord{Rows: out.rows, Digest: digest[:], Index: v.index})
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.written, out.err
}

func writeTable[K cmp.Ordered, V any](out *recordWriter, t *table[K, V]) {
	t.scan(func(_ K, row *V) bool {
		out.write(rowKind+uint16(t.id), row)
		return out.err == nil
	})
}

// recordWriter writes records until the first error, and counts.
type recordWriter struct {
	w       *bufio.Writer
	rows    uint64 // records but header and trailer
	written int64
	err     error
}

func (o *recordWriter) write(kind uint16, body any) {
	if o.err != nil {
		return
	}
	data, err := codec.Marshal(body)
	if err == nil {
		data = codec.Seal(codec.Header{Version: 1, Kind: kind, Flags: codec.FlagMandatory}, data)
		err = codec.WriteRaw(o.w, data, maxRecord)
	}
	if err != nil {
		o.err = fmt.Errorf("write snapshot record of kind %d: %w", kind, err)
		return
	}
	const lengthPrefix = 4
	o.written += int64(len(data)) + lengthPrefix
	if kind >= rowKind {
		o.rows++
	}
}

// Restore replaces the whole state by a snapshot, or fails with ErrSnapshot
// (or what r failed with) and changes nothing. The digest is computed again
// from the rows. A machine that had halted is well again.
func (m *Machine) Restore(r io.Reader) error {
	v, sched, err := readSnapshot(r, m.options.Knows)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load(v, sched)
	m.halted = nil
	m.marks.Store(nil)
	return nil
}

// loader builds a state from records.
type loader struct {
	txn
	header headerRecord
	rows   uint64
	last   [int(lastTable) + 1]bool // tables begun, to refuse singles that come twice
}

func readSnapshot(r io.Reader, knows uint32) (*View, *scheduler.Scheduler, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	l := &loader{txn: txn{View: emptyView(), sched: scheduler.New()}}
	kind, body, err := readRecord(in)
	if err != nil {
		return nil, nil, err
	}
	if kind != snapshotHeader || codec.Unmarshal(body, &l.header) != nil || l.header.Format != snapshotFormat {
		return nil, nil, fmt.Errorf("%w: no header of format %d", ErrSnapshot, snapshotFormat)
	}
	if l.header.Feature > knows {
		return nil, nil, fmt.Errorf("%w: %w: it is at %d, this build knows %d", ErrSnapshot, ErrFeatureLevel, l.header.Feature, knows)
	}
	for {
		kind, body, err := readRecord(in)
		if err != nil {
			return nil, nil, err
		}
		if kind == snapshotTrailer {
			return l.finish(in, body)
		}
		if err := l.row(kind, body); err != nil {
			return nil, nil, fmt.Errorf("%w: row %d: %w", ErrSnapshot, l.rows, err)
		}
		l.rows++
	}
}

func readRecord(in *bufio.Reader) (uint16, []byte, error) {
	data, err := codec.ReadRaw(in, maxRecord)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, nil, fmt.Errorf("%w: it ends early", ErrSnapshot)
	case errors.Is(err, codec.ErrTooLarge):
		return 0, nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	case err != nil:
		return 0, nil, fmt.Errorf("read snapshot: %w", err)
	}
	h, body, err := codec.Open(data)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if h.Version != 1 || h.Flags != codec.FlagMandatory {
		return 0, nil, fmt.Errorf("%w: record of version %d with flags %#x", ErrSnapshot, h.Version, h.Flags)
	}
	return h.Kind, body, nil
}

// row takes one row. Indexes come at the end, when every row is there.
func (l *loader) row(kind uint16, body []byte) error {
	if kind < rowKind || kind > rowKind+uint16(lastTable) {
		return fmt.Errorf("unknown kind %d", kind)
	}
	switch tableID(kind - rowKind) {
	case tableMeta:
		return codec.Unmarshal(body, l.single(tableMeta, &l.meta))
	case tableSettings:
		return codec.Unmarshal(body, l.single(tableSettings, &l.settings))
	case tableJobs:
		return loadRow(&l.View.jobs, body, func(j *model.Job) uint64 { return j.Number })
	case tableLeases:
		return loadRow(&l.View.leases, body, func(r *model.Lease) uint64 { return r.Number })
	case tableDevices:
		return loadRow(&l.View.devices, body, func(d *model.Device) string { return d.ID })
	case tableAgents:
		return loadRow(&l.View.agents, body, func(a *model.Agent) string { return a.Host })
	case tableRequests:
		return loadRow(&l.View.requests, body, func(q *model.Request) string { return requestName(q.Scope, q.ID) })
	case tableSheets:
		return loadRow(&l.View.sheets, body, func(s *model.Sheet) string { return model.DeviceID(s.Host, s.Name) })
	case tableMembers:
		return loadRow(&l.View.members, body, func(m *model.Member) string { return m.ID })
	case tableUnserved:
		return loadRow(&l.View.unserved, body, func(u *model.Unserved) string { return u.Target })
	}
	return fmt.Errorf("unknown kind %d", kind)
}

// single returns target emptied, or a place nobody looks at when it has come
// before: the count and the digest then tell.
func (l *loader) single(id tableID, target any) any {
	l.last[id] = true
	switch t := target.(type) {
	case *metaRow:
		*t = metaRow{}
	case *model.Settings:
		*t = model.Settings{}
	}
	return target
}

func loadRow[K cmp.Ordered, V any](t *table[K, V], body []byte, key func(*V) K) error {
	c := new(cell[V])
	if err := codec.Unmarshal(body, &c.row); err != nil {
		return err
	}
	k := key(&c.row)
	if _, replaced := t.tree.Load(k, c); replaced {
		return fmt.Errorf("row %v twice", k)
	}
	t.changed = true
	c.sum, c.sealed = rowSum(t.id, keyBytes(k), body), true
	return nil
}

// finish checks the trailer and builds what follows from the rows.
func (l *loader) finish(in *bufio.Reader, body []byte) (v *View, s *scheduler.Scheduler, err error) {
	var trailer trailerRecord
	if err := codec.Unmarshal(body, &trailer); err != nil {
		return nil, nil, fmt.Errorf("%w: trailer: %w", ErrSnapshot, err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%w: bytes after the trailer", ErrSnapshot)
	}
	if trailer.Rows != l.rows || !l.last[tableMeta] || !l.last[tableSettings] {
		return nil, nil, fmt.Errorf("%w: %d rows of %d", ErrSnapshot, l.rows, trailer.Rows)
	}
	want, err := digestFrom(trailer.Digest)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	l.index = l.header.Index
	if h := l.header; h.Term != l.meta.Term || h.Feature != l.meta.Feature || h.Index != trailer.Index {
		return nil, nil, fmt.Errorf("%w: header and rows contradict each other", ErrSnapshot)
	}
	l.sumRows()
	if l.digest != want {
		return nil, nil, fmt.Errorf("%w: digest %s, stated %s", ErrSnapshot, l.digest, want)
	}
	defer func() {
		if r := recover(); r != nil {
			v, s, err = nil, nil, fmt.Errorf("%w: its rows contradict each other: %v", ErrSnapshot, r)
		}
	}()
	l.buildIndexes()
	return l.View, l.sched, nil
}

func (l *loader) sumRows() {
	l.sumTables()
	l.sealMeta(new(hasher))
	l.sealSettings(new(hasher))
}

func (l *loader) sumTables() {
	sumTable(&l.View.jobs, &l.digest)
	sumTable(&l.View.leases, &l.digest)
	sumTable(&l.View.devices, &l.digest)
	sumTable(&l.View.agents, &l.digest)
	sumTable(&l.View.requests, &l.digest)
	sumTable(&l.View.sheets, &l.digest)
	sumTable(&l.View.members, &l.digest)
	sumTable(&l.View.unserved, &l.digest)
}

func sumTable[K cmp.Ordered, V any](t *table[K, V], digest *Digest) {
	t.tree.Scan(func(_ K, c *cell[V]) bool {
		digest.add(c.sum)
		return true
	})
}

// buildIndexes fills the indexes and the scheduler from the rows.
func (l *loader) buildIndexes() {
	l.View.devices.scan(func(_ string, d *model.Device) bool {
		l.sched.PutDevice(d)
		return true
	})
	keepEdges(l.View, l.sched)
	l.View.jobs.scan(func(_ uint64, j *model.Job) bool {
		l.indexJob(nil, j)
		return true
	})
	l.View.requests.scan(func(key string, q *model.Request) bool {
		l.requestAge.add(requestKey{q.UptimeMS, key})
		return true
	})
	settle(l.sched)
}
