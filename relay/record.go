package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rcd/wire"
)

// ErrProtocol says that the other side, or a source, broke a rule of the
// stream: bytes beyond the next offset, an end at another length, a frame that
// has no business there. Nothing that follows on that link can be trusted.
var ErrProtocol = errors.New("stream protocol violated")

// Record is one piece of a job's output: Data, Gap or End.
type Record interface {
	// span returns the range of offsets the record covers, empty for an End.
	span() (from, to int64)
}

// Data is output that was written to Stream (stdout or stderr). Offset is that
// of its first byte in the job's one offset space. Bytes is never empty.
type Data struct {
	Offset int64
	Stream wire.Stream
	Bytes  []byte
}

// Gap is a range of offsets, From included and To not, whose bytes exist
// nowhere any more, and why.
type Gap struct {
	From, To int64
	Cause    string
}

// End ends a stream at Length. What it ends with is in the embedded fields.
type End struct {
	Length int64
	wire.StreamEnd
}

func (d Data) span() (int64, int64) { return d.Offset, d.Offset + int64(len(d.Bytes)) }
func (g Gap) span() (int64, int64)  { return g.From, g.To }
func (e End) span() (int64, int64)  { return e.Length, e.Length }

// Source is a cursor over a job's output, opened at some offset. Next waits
// for the next record and returns it; records follow each other without a
// hole, and the last one is an End. The first may begin before the offset asked
// for (at a record boundary, say): what is early is trimmed by whoever reads.
//
// The bytes of a Data are valid until Next is called again. Next returns soon
// after ctx ends, and is not called again after an End or an error. It is
// called by one goroutine at a time.
type Source interface {
	Next(ctx context.Context) (Record, error)
}

// Sink takes records, each exactly once and in order, the End included. Take
// may block: that is how a reader holds the writer back. The bytes of a Data
// are valid only until Take returns, which it does soon after ctx ends. A
// record whose Take failed counts as not taken. It is called by one goroutine
// at a time.
type Sink interface {
	Take(ctx context.Context, record Record) error
}

// SinkFunc makes a function a Sink.
type SinkFunc func(ctx context.Context, record Record) error

// Take calls f.
func (f SinkFunc) Take(ctx context.Context, record Record) error { return f(ctx, record) }

// Conn is what a stream runs over: a network connection, a multiplexed stream
// or one end of a net.Pipe. Deadlines must apply to calls that already block.
type Conn interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	Close() error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// cursor is the rule of law 8 in one place: only the next offset is taken.
type cursor struct{ next int64 }

// admit returns the part of record that lies at or after the next offset, or
// nil if all of it came before (a repetition). A record that begins after the
// next offset, or an End anywhere else than at it, is ErrProtocol. The cursor
// itself moves only by advance.
func (c cursor) admit(record Record) (Record, error) {
	from, to := record.span()
	_, isEnd := record.(End)
	switch {
	case from < 0 || to < from || to == from && !isEnd:
		return nil, fmt.Errorf("%w: record from %d to %d", ErrProtocol, from, to)
	case from > c.next:
		return nil, fmt.Errorf("%w: offset %d where %d is next", ErrProtocol, from, c.next)
	case isEnd && from < c.next:
		return nil, fmt.Errorf("%w: end at %d after offset %d", ErrProtocol, from, c.next)
	case to <= c.next && !isEnd:
		return nil, nil
	}
	switch r := record.(type) {
	case Data:
		r.Bytes = r.Bytes[c.next-r.Offset:]
		r.Offset = c.next
		return r, nil
	case Gap:
		r.From = c.next
		return r, nil
	}
	return record, nil
}

// advance moves the cursor past a record that admit returned.
func (c *cursor) advance(record Record) {
	_, c.next = record.span()
}
