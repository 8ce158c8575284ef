package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcd/wire"
)

// tape is a whole recorded stream that sources can be opened on at any offset.
type tape struct {
	records []Record
	// pause, if set, is slept before record i is given.
	pause func(i int) time.Duration
	// given counts the bytes that all sources have given.
	given atomic.Int64
}

// newTape records n random pieces and an End.
func newTape(rng *rand.Rand, n int) *tape {
	t := &tape{}
	at := int64(0)
	for range n {
		size := 1 + rng.IntN(60)
		if rng.IntN(12) == 0 {
			t.records = append(t.records, Gap{From: at, To: at + int64(size), Cause: fmt.Sprintf("cause %d", rng.IntN(3))})
		} else {
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(rng.IntN(256))
			}
			t.records = append(t.records, Data{Offset: at, Stream: wire.Stream(1 + rng.IntN(2)), Bytes: b})
		}
		at += int64(size)
	}
	t.records = append(t.records, End{Length: at, StreamEnd: wire.StreamEnd{State: "succeeded", Digest: "d", Complete: true}})
	return t
}

func (t *tape) length() int64 {
	_, to := t.records[len(t.records)-1].span()
	return to
}

// open returns a cursor that begins with the record in which offset lies, as a
// spool does: what is early is the relay's to trim.
func (t *tape) open(offset int64) Source {
	c := &tapeCursor{tape: t}
	for i, r := range t.records {
		if _, to := r.span(); to > offset || i == len(t.records)-1 {
			c.i = i
			break
		}
	}
	return c
}

type tapeCursor struct {
	tape *tape
	i    int
	buf  []byte
}

func (c *tapeCursor) Next(ctx context.Context) (Record, error) {
	if c.tape.pause != nil {
		if d := c.tape.pause(c.i); d > 0 && !sleep(ctx, d) {
			return nil, ctx.Err()
		}
	}
	record := c.tape.records[c.i]
	c.i++
	// What was returned before is no longer valid: a reader that kept it reads
	// rubbish.
	for i := range c.buf {
		c.buf[i] = 0xEE
	}
	if d, isData := record.(Data); isData {
		c.tape.given.Add(int64(len(d.Bytes)))
		c.buf = append([]byte(nil), d.Bytes...)
		d.Bytes = c.buf
		record = d
	}
	return record, nil
}

// deck is a Sink that keeps what it takes and checks each record against the
// promise: the next offset, nothing else.
type deck struct {
	mu      sync.Mutex
	next    int64
	records []Record
	pause   func(i int) time.Duration
	err     error
}

func (d *deck) Take(ctx context.Context, record Record) error {
	if d.pause != nil {
		if p := d.pause(len(d.records)); p > 0 && !sleep(ctx, p) {
			return ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	from, to := record.span()
	if from != d.next {
		d.err = errors.Join(d.err, fmt.Errorf("record at %d where %d was next", from, d.next))
	}
	d.next = to
	if data, isData := record.(Data); isData {
		data.Bytes = append([]byte(nil), data.Bytes...)
		record = data
	}
	d.records = append(d.records, record)
	return nil
}

// check fails unless d took exactly what lies on t from offset from on.
func (d *deck) check(tb testing.TB, t *tape, from int64) {
	tb.Helper()
	if d.err != nil {
		tb.Fatal(d.err)
	}
	want, got := flatten(t.records, from), flatten(d.records, from)
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			tb.Fatalf("piece %d of the stream: got %s, want %s", i, got[i], want[i])
		}
	}
	if len(want) != len(got) {
		tb.Fatalf("got %d pieces, want %d", len(got), len(want))
	}
}

// flatten writes every byte with its offset and stream, every gap with its
// cause and the end, so that two streams compare however they are cut.
func flatten(records []Record, from int64) []string {
	var out []string
	for _, r := range records {
		switch r := r.(type) {
		case Data:
			for i, b := range r.Bytes {
				if at := r.Offset + int64(i); at >= from {
					out = append(out, fmt.Sprintf("%d:%d:%02x", at, r.Stream, b))
				}
			}
		case Gap:
			if r.To > from {
				out = append(out, fmt.Sprintf("gap %d-%d %s", max(r.From, from), r.To, r.Cause))
			}
		case End:
			out = append(out, fmt.Sprintf("end %d %+v", r.Length, r.StreamEnd))
		}
	}
	return out
}

// station is a node that sends a tape to whoever dials it.
type station struct {
	tape *tape
	// serve, if set, is what answers a link instead of Send.
	serve func(ctx context.Context, conn Conn, offset int64)
	// wrap, if set, comes between the sender and its end of each link.
	wrap func(net.Conn) net.Conn

	links sync.WaitGroup
	dials int
}

// dial is a DialFunc; all it started has ended when wait returns.
func (s *station) dial(ctx context.Context, offset int64) (Conn, error) {
	s.dials++
	near, far := net.Pipe()
	if s.wrap != nil {
		far = s.wrap(far)
	}
	s.links.Go(func() {
		if s.serve != nil {
			s.serve(context.Background(), far, offset)
			return
		}
		_ = Send(context.Background(), far, offset, s.tape.open(offset), SendOptions{})
	})
	return near, nil
}

func (s *station) wait() { s.links.Wait() }

// frail is a connection that breaks once it has written budget bytes: it
// closes, or, as a blackhole, swallows everything from there on.
type frail struct {
	net.Conn
	mu        sync.Mutex
	budget    int
	blackhole bool
}

func (f *frail) Write(p []byte) (int, error) {
	f.mu.Lock()
	n := min(len(p), f.budget)
	f.budget -= n
	f.mu.Unlock()
	if n == len(p) {
		return f.Conn.Write(p)
	}
	if n > 0 {
		if wrote, err := f.Conn.Write(p[:n]); err != nil {
			return wrote, err
		}
	}
	if f.blackhole {
		return len(p), nil
	}
	f.Conn.Close()
	return n, errors.New("cable pulled")
}
