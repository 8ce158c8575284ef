package spool

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrExists says that the directory already holds a spool: a spool is written once, by one Writer.
var ErrExists = errors.New("spool exists")

// Bounds of a spool, in bytes on disk, record headers included.
const (
	// DefaultBound is the bound of a log job.
	DefaultBound = 1 << 30
	// MinBound is the least that leaves room for a few segments.
	MinBound = 256 << 10

	// maxSegment is the size of a segment in a large spool: what a bounded spool drops at a time.
	maxSegment = 8 << 20
	// retryPause is how long a Writer goes without the disk after a failed write before it tries again.
	retryPause = 100 * time.Millisecond
	// gapLimit bounds the gaps on record. A disk that is full again and again makes one each time; the last one then grows over what follows, and
	// Readers still deliver what is on disk inside it.
	gapLimit = 1000
)

// Writer appends to a spool. It is not safe for concurrent use: the order of Append calls is the order of the output.
type Writer struct {
	dir     string
	segment int64 // size at which a segment is full
	disk    disk

	digest hash.Hash // nil: a part of the output never came by, so that nobody can tell
	length int64
	buf    []byte

	kept    kept
	current *openSegment
	dirty   []string // closed segments that were not synced

	gaps      []Gap
	gapsStale bool      // the file of gaps misses something
	failedAt  time.Time // zero: the disk takes what it is given
}

// openSegment is the segment that is being written.
type openSegment struct {
	file  segmentFile // nil after Pause, until something is appended
	name  string
	start int64
	size  int64
}

type segmentFile interface {
	io.WriteCloser
	Truncate(size int64) error
	Sync() error
}

// disk is what a test replaces to make writes fail.
type disk interface {
	create(path string) (segmentFile, error)
	reopen(path string) (segmentFile, error)
	replace(path string, data []byte) error
}

// Create begins a spool in dir, which is made if it is missing. bound is the most it may take on disk in bytes, 0 for DefaultBound, at least
// MinBound: the first quarter of it keeps the head of the output, the rest the tail. ErrExists if dir holds a spool.
func Create(dir string, bound int64) (*Writer, error) {
	w, err := newWriter(dir, bound)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	starts, err := segmentStarts(dir)
	if err != nil {
		return nil, err
	}
	if len(starts) > 0 {
		return nil, fmt.Errorf("create spool %q: %w", dir, ErrExists)
	}
	return w, nil
}

// newWriter returns a Writer of an empty output.
func newWriter(dir string, bound int64) (*Writer, error) {
	if bound == 0 {
		bound = DefaultBound
	}
	if bound < MinBound {
		return nil, fmt.Errorf("create spool: bound of %d bytes is below %d", bound, MinBound)
	}
	w := &Writer{dir: dir, segment: min(maxSegment, bound/16), disk: realDisk{}, digest: sha256.New()}
	w.kept.headLimit = bound / 4
	w.kept.tailLimit = bound - w.kept.headLimit
	w.kept.floor = math.MaxInt64
	return w, nil
}

// Append adds p to the output, as the next len(p) bytes. It always succeeds in that sense: length and digest cover p whatever happens. The error says
// that p, or an earlier part of the output, is not on disk; those bytes are a Gap, and the next Append tries the disk again after a while. The
// Writer keeps nothing of p.
func (w *Writer) Append(stream Stream, p []byte) error {
	var failed error
	for len(p) > 0 {
		n := min(len(p), maxPayload)
		err := w.store(stream, p[:n])
		// The state before these bytes went into the segment header that store may have written.
		w.count(p[:n])
		if err != nil {
			failed = err
			w.miss(w.length, w.length+int64(n), CauseWrite)
		}
		w.length += int64(n)
		p = p[n:]
	}
	return failed
}

// Length returns how many bytes were appended, dropped ones included.
func (w *Writer) Length() int64 { return w.length }

// Digest returns the SHA-256 over everything that was appended, dropped ranges included, in lower-case hex; "" after a Skip, and where a Resume could
// not know it.
func (w *Writer) Digest() string {
	if w.digest == nil {
		return ""
	}
	return hex.EncodeToString(w.digest.Sum(nil))
}

// count takes p into the digest.
func (w *Writer) count(p []byte) {
	if w.digest != nil {
		_, _ = w.digest.Write(p)
	}
}

func (w *Writer) store(stream Stream, p []byte) error {
	if !w.failedAt.IsZero() {
		if time.Since(w.failedAt) < retryPause {
			return fmt.Errorf("append to spool %q: waiting for the disk", w.dir)
		}
		w.failedAt = time.Time{}
	}
	w.buf = appendRecord(w.buf[:0], w.length, stream, p)
	size := int64(len(w.buf))
	if w.current != nil && w.full(size) {
		w.closeSegment()
	}
	if w.current == nil {
		if w.gapsStale {
			// Before the segment, so that a Reader that sees the hole sees its cause. Tried again at the next segment and at Sync.
			_ = w.writeGaps()
		}
		if err := w.openSegment(); err != nil {
			w.failedAt = time.Now()
			return err
		}
	}
	if w.current.file == nil {
		file, err := w.disk.reopen(w.current.name)
		if err != nil {
			w.failedAt = time.Now()
			return fmt.Errorf("append to spool: %w", err)
		}
		w.current.file = file
	}
	if _, err := w.current.file.Write(w.buf); err != nil {
		w.failedAt = time.Now()
		w.cutSegment()
		return fmt.Errorf("append to spool: %w", err)
	}
	w.current.size += size
	w.kept.grow(size)
	return nil
}

// full tells whether the current segment must not take another record of that size.
func (w *Writer) full(size int64) bool {
	if w.current.size+size > w.segment {
		return true
	}
	return w.kept.headIsFull(size)
}

// openSegment begins a segment at the present length. It gets its name only with a whole header in it, for readers look at names.
func (w *Writer) openSegment() error {
	var state []byte // none: the digest of a spool whose writer dies is then not known
	if known, ok := w.digest.(encoding.BinaryMarshaler); ok {
		state, _ = known.MarshalBinary()
	}
	name := filepath.Join(w.dir, segmentName(w.length))
	file, err := w.disk.create(name + tempSuffix)
	if err != nil {
		return fmt.Errorf("append to spool: %w", err)
	}
	if _, err = file.Write(encodeSegmentHeader(w.length, state)); err == nil {
		err = os.Rename(name+tempSuffix, name)
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(name + tempSuffix)
		return fmt.Errorf("append to spool: %w", err)
	}
	w.current = &openSegment{file: file, name: name, start: w.length, size: segmentHeaderSize}
	w.dropOldest(w.kept.begin(w.length, segmentHeaderSize, w.segment))
	return nil
}

// dropOldest removes segments that the bound does not allow any more. The gap is put on record first, so that no reader meets a hole without a cause.
func (w *Writer) dropOldest(drop []span) {
	for _, s := range drop {
		w.miss(s.from, s.to, CauseBound)
	}
	if len(drop) > 0 {
		_ = w.writeGaps()
	}
	for _, s := range drop {
		name := filepath.Join(w.dir, segmentName(s.from))
		_ = os.Remove(name)
		for i, d := range w.dirty {
			if d == name {
				w.dirty = append(w.dirty[:i], w.dirty[i+1:]...)
				break
			}
		}
	}
}

func (w *Writer) closeSegment() {
	// Writing back begins now, without waiting, so that the sync at the end of a large output is short.
	if f, ok := w.current.file.(*os.File); ok {
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	w.Pause()
	w.dirty = append(w.dirty, w.current.name)
	w.kept.end(w.length)
	w.current = nil
}

// cutSegment takes what a failed write may have left off the end of the current segment and closes it; one with nothing else in it goes.
func (w *Writer) cutSegment() {
	_ = w.current.file.Truncate(w.current.size)
	if w.current.size > segmentHeaderSize {
		w.closeSegment()
		return
	}
	_ = w.current.file.Close()
	_ = os.Remove(w.current.name)
	w.kept.undo()
	w.current = nil
}

// miss notes that a range is not on disk.
func (w *Writer) miss(from, to int64, cause string) {
	w.gapsStale = true
	for i := range w.gaps {
		// There is one range that the bound took: whatever lies between two dropped segments is missing too.
		if g := &w.gaps[i]; g.Cause == cause && (g.To == from || cause == CauseBound) {
			g.From, g.To = min(g.From, from), max(g.To, to)
			w.swallow(i)
			return
		}
	}
	if len(w.gaps) >= gapLimit {
		w.gaps[len(w.gaps)-1].To = to
		return
	}
	w.gaps = append(w.gaps, Gap{From: from, To: to, Cause: cause})
}

// swallow removes gaps that gap i has grown over: the bound passes ranges that failed writes had left out.
func (w *Writer) swallow(i int) {
	grown := w.gaps[i]
	rest := w.gaps[:0]
	for j, g := range w.gaps {
		if j == i || g.From < grown.From || g.From >= grown.To {
			rest = append(rest, g)
		}
	}
	w.gaps = rest
}

func (w *Writer) writeGaps() error {
	if err := w.disk.replace(filepath.Join(w.dir, gapsName), encodeGaps(w.gaps)); err != nil {
		w.gapsStale = true
		return fmt.Errorf("record gaps: %w", err)
	}
	w.gapsStale = false
	return nil
}

// Sync returns once everything that is on disk at all will survive a power cut.
func (w *Writer) Sync() error {
	var failed error
	if w.gapsStale {
		failed = w.writeGaps()
	}
	if w.current != nil && w.current.file != nil {
		failed = errors.Join(failed, w.current.file.Sync())
	} else if w.current != nil {
		failed = errors.Join(failed, syncPath(w.current.name))
	}
	for _, name := range w.dirty {
		failed = errors.Join(failed, syncPath(name))
	}
	w.dirty = w.dirty[:0]
	if len(w.gaps) > 0 {
		failed = errors.Join(failed, syncPath(filepath.Join(w.dir, gapsName)))
	}
	if failed = errors.Join(failed, syncPath(w.dir)); failed != nil {
		return fmt.Errorf("sync spool: %w", failed)
	}
	return nil
}

// Close syncs and ends the Writer.
func (w *Writer) Close() error {
	err := w.Sync()
	w.Pause()
	w.current = nil
	return err
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

type realDisk struct{}

func (realDisk) create(path string) (segmentFile, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (realDisk) reopen(path string) (segmentFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
}

func (realDisk) replace(path string, data []byte) error {
	if err := os.WriteFile(path+tempSuffix, data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+tempSuffix, path)
}
