package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// ErrNothingYet says that the Writer has not written further yet, as far as can be told from the disk.
var ErrNothingYet = errors.New("nothing in the spool yet")

// readAhead is how much a Reader takes from a file at a time. It holds at least one whole record.
const readAhead = 256 << 10

// Record is a piece of output, or the statement that a piece is missing.
type Record struct {
	Offset int64
	Stream Stream
	Data   []byte // empty for a gap; good until the next call
	Gap    *Gap   // nil for data
}

// End returns the offset behind the record.
func (r Record) End() int64 {
	if r.Gap != nil {
		return r.Gap.To
	}
	return r.Offset + int64(len(r.Data))
}

// Reader is a cursor in a spool. It may read while a Writer in any process appends, and after that process is gone. Not safe for concurrent use.
type Reader struct {
	dir    string
	offset int64
	final  int64 // length of the output once it is known, else -1
	cur    *cursor
}

// cursor reads the records of one segment in sequence.
type cursor struct {
	file   *os.File
	start  int64
	offset int64  // offset of the record at pos
	pos    int64  // position in the file of the unread part of buf
	buf    []byte // unread
	room   []byte
}

// Open puts a cursor at an offset, which may lie ahead of the output. The spool need not have a segment yet, but its directory must exist.
func Open(dir string, offset int64) (*Reader, error) {
	if offset < 0 {
		return nil, fmt.Errorf("open spool: offset %d", offset)
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open spool: %q is no directory", dir)
	}
	return &Reader{dir: dir, offset: offset, final: -1}, nil
}

// Offset returns where the next record begins.
func (r *Reader) Offset() int64 { return r.offset }

// Finish tells the Reader that the Writer is gone and how long the output was. From then on what is missing is a Gap and the end is io.EOF.
func (r *Reader) Finish(length int64) { r.final = length }

// Close ends the Reader.
func (r *Reader) Close() error {
	r.leave()
	return nil
}

// Next returns what stands at the cursor and moves it behind: data of one stream, or a Gap, cut to begin at the cursor. ErrNothingYet if the Writer
// has not come here yet, io.EOF at the length told to Finish; the cursor then stays. Other errors come from the disk and may pass.
func (r *Reader) Next() (Record, error) {
	if r.final >= 0 && r.offset >= r.final {
		return Record{}, io.EOF
	}
	rec, err := r.read()
	if err == nil {
		return rec, nil
	}
	if !errors.Is(err, ErrNothingYet) {
		return Record{}, err
	}
	// What stands here is not in the segment at hand. Another look at that segment comes last, for the Writer may have gone on in it and begun
	// others between the two looks.
	next, err := r.segmentAfter(r.offset)
	if err != nil {
		return Record{}, err
	}
	rec, err = r.read()
	if err == nil || !errors.Is(err, ErrNothingYet) {
		return rec, err
	}
	return r.missing(next)
}

// missing answers for an offset that no segment holds. next is where a later segment begins, or -1.
func (r *Reader) missing(next int64) (Record, error) {
	gaps, err := readGaps(r.dir)
	if err != nil && !errors.Is(err, errFormat) {
		return Record{}, err
	}
	i := slices.IndexFunc(gaps, func(g Gap) bool { return g.From <= r.offset && r.offset < g.To })
	to, cause := int64(-1), ""
	switch {
	case i >= 0:
		to, cause = gaps[i].To, gaps[i].Cause
	case next >= 0:
		to, cause = next, CauseCorrupt
	case r.final >= 0:
		to, cause = r.final, CauseLost
	default:
		return Record{}, ErrNothingYet
	}
	// A segment inside the range is still to be delivered, and so is a recorded gap behind an unrecorded one, with its own cause.
	if next >= 0 {
		to = min(to, next)
	}
	if r.final >= 0 {
		to = min(to, r.final)
	}
	for _, g := range gaps {
		if i < 0 && g.From > r.offset {
			to = min(to, g.From)
		}
	}
	rec := Record{Offset: r.offset, Gap: &Gap{From: r.offset, To: to, Cause: cause}}
	r.offset = to
	r.leave() // the next offset stands in another segment
	return rec, nil
}

// read returns the record at the cursor if a segment holds it.
func (r *Reader) read() (Record, error) {
	for {
		if r.cur != nil {
			rec, err := r.cur.next(r.offset)
			if err == nil {
				r.offset = rec.End()
				return rec, nil
			}
			if !errors.Is(err, errTorn) {
				return Record{}, err
			}
		}
		moved, err := r.enter()
		if err != nil {
			return Record{}, err
		}
		if !moved {
			return Record{}, ErrNothingYet
		}
	}
}

// enter opens the segment that may hold the cursor's offset, false if the present one still is that.
func (r *Reader) enter() (bool, error) {
	start := r.offset // while reading on, the next segment has exactly this name
	if _, err := os.Lstat(filepath.Join(r.dir, segmentName(start))); errors.Is(err, os.ErrNotExist) {
		if r.cur != nil {
			return false, nil
		}
		starts, err := segmentStarts(r.dir)
		if err != nil {
			return false, err
		}
		i, found := slices.BinarySearch(starts, r.offset)
		if !found {
			i--
		}
		if i < 0 {
			return false, nil
		}
		start = starts[i]
	} else if err != nil {
		return false, fmt.Errorf("read spool: %w", err)
	}
	file, err := os.Open(filepath.Join(r.dir, segmentName(start)))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // dropped meanwhile; the gap is on record
	}
	if err != nil {
		return false, fmt.Errorf("read spool: %w", err)
	}
	if r.cur != nil && r.cur.start == start && sameFile(r.cur.file, file) {
		_ = file.Close()
		return false, nil
	}
	header := make([]byte, segmentHeaderSize)
	if _, err := file.ReadAt(header, 0); err != nil {
		_ = file.Close()
		if errors.Is(err, io.EOF) {
			return false, nil // torn by a power cut
		}
		return false, fmt.Errorf("read spool: %w", err)
	}
	if at, _, err := decodeSegmentHeader(header); err != nil || at != start {
		_ = file.Close()
		return false, nil // never to be read: what it held becomes a gap
	}
	r.leave()
	r.cur = &cursor{file: file, start: start, offset: start, pos: segmentHeaderSize}
	return true, nil
}

func (r *Reader) leave() {
	if r.cur != nil {
		_ = r.cur.file.Close()
		r.cur = nil
	}
}

// segmentAfter returns where the first segment behind offset begins, -1 if there is none.
func (r *Reader) segmentAfter(offset int64) (int64, error) {
	starts, err := segmentStarts(r.dir)
	if err != nil {
		return -1, err
	}
	for _, s := range starts {
		if s > offset {
			return s, nil
		}
	}
	return -1, nil
}

// next returns the record that holds offset, skipping those before it; errTorn if the segment does not hold it, or not yet.
func (c *cursor) next(offset int64) (Record, error) {
	for {
		stream, payload, size, short, err := decodeRecord(c.buf, c.offset)
		if short {
			more, ferr := c.fill()
			if ferr != nil {
				return Record{}, ferr
			}
			if more {
				continue
			}
		}
		if err != nil {
			// What was read may be half a record that the Writer is completing, or cutting off: read it again next time.
			c.buf = nil
			return Record{}, err
		}
		at := c.offset
		c.buf = c.buf[size:]
		c.pos += int64(size)
		c.offset += int64(len(payload))
		if c.offset <= offset {
			continue
		}
		if at < offset {
			payload = payload[offset-at:]
			at = offset
		}
		return Record{Offset: at, Stream: stream, Data: payload}, nil
	}
}

// fill reads on behind the unread part; false if there is no more.
func (c *cursor) fill() (bool, error) {
	if c.room == nil {
		c.room = make([]byte, readAhead)
	}
	have := copy(c.room, c.buf)
	n, err := c.file.ReadAt(c.room[have:], c.pos+int64(have))
	c.buf = c.room[:have+n]
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read spool: %w", err)
	}
	return n > 0, nil
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}
