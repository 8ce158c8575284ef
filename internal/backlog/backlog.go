// Package backlog keeps the bytes of a stream that have been taken on and may
// be wanted again: input that the far side has not acked, or has not read. It
// knows no offsets and no bound; whoever has one keeps both.
package backlog

// Memory comes in pieces, and goes with the last byte in them: a stream that
// stands still with nothing on the way holds none. A key that is typed costs
// the smallest.
const (
	smallest = 1 << 10
	largest  = 64 << 10
)

// Bytes is such a backlog. The zero value is empty. Not safe for concurrent
// use.
type Bytes struct {
	pieces [][]byte // in order, none empty; what is in them is never written over
	length int
}

// Len returns how many bytes there are.
func (b *Bytes) Len() int { return b.length }

// Add puts a copy of p at the end.
func (b *Bytes) Add(p []byte) {
	b.length += len(p)
	for len(p) > 0 {
		last := len(b.pieces) - 1
		if last < 0 || len(b.pieces[last]) == cap(b.pieces[last]) {
			b.pieces = append(b.pieces, make([]byte, 0, min(max(len(p), smallest), largest)))
			last++
		}
		piece := b.pieces[last]
		n := min(len(p), cap(piece)-len(piece))
		b.pieces[last] = append(piece, p[:n]...)
		p = p[n:]
	}
}

// Drop forgets the first n bytes, which must be there.
func (b *Bytes) Drop(n int) {
	b.length -= n
	for n > 0 {
		if n < len(b.pieces[0]) {
			b.pieces[0] = b.pieces[0][n:]
			return
		}
		n -= len(b.pieces[0])
		b.pieces[0] = nil
		b.pieces = b.pieces[1:]
	}
	if len(b.pieces) == 0 {
		b.pieces = nil
	}
}

// From returns bytes from the one on that has at others before it: at least
// one if there is one, and at most limit. They are not a copy, and stay as they
// are whatever becomes of the backlog; the caller must not change them.
func (b *Bytes) From(at, limit int) []byte {
	for _, piece := range b.pieces {
		if at < len(piece) {
			end := min(len(piece), at+limit)
			return piece[at:end:end]
		}
		at -= len(piece)
	}
	return nil
}
