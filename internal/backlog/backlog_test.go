package backlog

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestABacklogIsTheBytesThatWereAddedWithoutThoseDropped compares it with a
// plain slice; what was handed out before must not change afterwards.
func TestABacklogIsTheBytesThatWereAddedWithoutThoseDropped(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	type out struct{ got, want []byte }
	var b Bytes
	var want []byte
	var handed []out
	next := byte(0)
	for range 5000 {
		if rng.IntN(2) == 0 {
			p := make([]byte, rng.IntN([]int{3, 3000, 200_000}[rng.IntN(3)]))
			for i := range p {
				next = next*5 + 3
				p[i] = next
			}
			b.Add(p)
			want = append(want, p...)
			clear(p) // it kept nothing of it
		}
		if n := rng.IntN(len(want) + 1); len(want) > 1<<20 || rng.IntN(2) == 0 {
			b.Drop(n)
			want = append([]byte(nil), want[n:]...)
		}
		if b.Len() != len(want) {
			t.Fatalf("%d bytes, want %d", b.Len(), len(want))
		}
		at, limit := rng.IntN(len(want)+1), 1+rng.IntN(100_000)
		got := b.From(at, limit)
		if len(got) > limit || len(got) == 0 && at < len(want) || !bytes.Equal(got, want[at:at+len(got)]) {
			t.Fatalf("%d bytes from %d of %d on, limit %d, or other ones", len(got), at, len(want), limit)
		}
		if rng.IntN(20) == 0 {
			handed = append(handed, out{got, append([]byte(nil), got...)})
		}
	}
	for _, h := range handed {
		if !bytes.Equal(h.got, h.want) {
			t.Fatal("bytes that were handed out have changed")
		}
	}
}

func TestAnEmptyBacklogHoldsNoMemory(t *testing.T) {
	var b Bytes
	b.Add(make([]byte, 300_000))
	b.Drop(299_999)
	if len(b.pieces) != 1 {
		t.Errorf("%d pieces for one byte", len(b.pieces))
	}
	b.Drop(1)
	if b.pieces != nil || b.From(0, 9) != nil {
		t.Error("something is kept")
	}
}
