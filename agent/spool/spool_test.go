package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// output is a job's output as the test knows it.
type output struct {
	data    []byte
	streams []Stream
}

func (o *output) digest() string {
	sum := sha256.Sum256(o.data)
	return hex.EncodeToString(sum[:])
}

func (o *output) append(t *testing.T, w *Writer, stream Stream, p []byte) {
	t.Helper()
	if err := w.Append(stream, p); err != nil {
		t.Fatal(err)
	}
	o.note(stream, p)
}

func (o *output) note(stream Stream, p []byte) {
	o.data = append(o.data, p...)
	for range p {
		o.streams = append(o.streams, stream)
	}
}

func create(t *testing.T, bound int64) (*Writer, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	w, err := Create(dir, bound)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, dir
}

// drain reads to the end or to nothing yet, checks that every offset comes once, in order and as it was written, and returns the gaps.
func drain(t *testing.T, r *Reader, o *output) (gaps []Gap, end error) {
	t.Helper()
	at := r.Offset()
	for {
		rec, err := r.Next()
		if err != nil {
			return gaps, err
		}
		if rec.Offset != at {
			t.Fatalf("record at %d, want %d", rec.Offset, at)
		}
		if rec.Gap != nil {
			if rec.Gap.From != at || rec.Gap.To <= at || rec.Gap.Cause == "" || len(rec.Data) > 0 {
				t.Fatalf("gap %+v at %d", rec.Gap, at)
			}
			gaps = append(gaps, *rec.Gap)
		} else {
			if len(rec.Data) == 0 {
				t.Fatalf("empty record at %d", at)
			}
			if end := rec.End(); end > int64(len(o.data)) || !bytes.Equal(rec.Data, o.data[at:end]) {
				t.Fatalf("wrong bytes at %d", at)
			}
			for _, s := range o.streams[at:rec.End()] {
				if s != rec.Stream {
					t.Fatalf("stream %d at %d, want %d", rec.Stream, at, s)
				}
			}
		}
		at = rec.End()
		if r.Offset() != at {
			t.Fatalf("cursor at %d after a record that ends at %d", r.Offset(), at)
		}
	}
}

func random(rng *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte('a' + rng.IntN(26))
	}
	return p
}

func TestEveryByteIsReadOnceInOrderFromAnyOffset(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	w, dir := create(t, 0)
	w.segment = 20_000
	o := &output{}
	follower, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 400 {
		size := 1 + rng.IntN(300)
		if rng.IntN(20) == 0 {
			size = 1 + rng.IntN(3*maxPayload)
		}
		o.append(t, w, Stream(1+rng.IntN(2)), random(rng, size))
		if rng.IntN(3) == 0 {
			if gaps, err := drain(t, follower, o); !errors.Is(err, ErrNothingYet) || gaps != nil {
				t.Fatalf("gaps %v, error %v", gaps, err)
			}
			if follower.Offset() != w.Length() {
				t.Fatalf("follower at %d of %d", follower.Offset(), w.Length())
			}
		}
	}
	if w.Length() != int64(len(o.data)) || w.Digest() != o.digest() {
		t.Fatalf("length %d digest %s, want %d %s", w.Length(), w.Digest(), len(o.data), o.digest())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{0, 1, int64(len(o.data)) - 1, int64(len(o.data)), int64(len(o.data)) + 5, rng.Int64N(int64(len(o.data)))} {
		r, err := Open(dir, from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := drain(t, r, o); !errors.Is(err, ErrNothingYet) {
			t.Errorf("from %d: error %v, want nothing yet", from, err)
		}
		r.Finish(w.Length())
		if gaps, err := drain(t, r, o); !errors.Is(err, io.EOF) || gaps != nil {
			t.Errorf("from %d: gaps %v, error %v", from, gaps, err)
		}
		if want := max(from, w.Length()); r.Offset() != want {
			t.Errorf("from %d: ended at %d, want %d", from, r.Offset(), want)
		}
		_ = r.Close()
	}
	_ = follower.Close()
}

func TestBoundKeepsHeadAndTail(t *testing.T) {
	const bound = MinBound
	rng := rand.New(rand.NewPCG(7, 7))
	w, dir := create(t, bound)
	o := &output{}
	early, err := Open(dir, 100_000) // in the head's reach now, dropped later
	if err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	for len(o.data) < 4*bound {
		o.append(t, w, Stdout, random(rng, 1+rng.IntN(2000)))
		if got := diskUse(t, dir); got > bound {
			t.Fatalf("%d bytes on disk, bound %d", got, bound)
		} else {
			most = max(most, got)
		}
	}
	if most < bound*8/10 {
		t.Errorf("never more than %d bytes on disk of %d allowed", most, bound)
	}
	if w.Digest() != o.digest() {
		t.Error("digest does not cover what was dropped")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Finish(w.Length())
	gaps, err := drain(t, r, o)
	if !errors.Is(err, io.EOF) || len(gaps) != 1 || gaps[0].Cause != CauseBound {
		t.Fatalf("gaps %+v, error %v", gaps, err)
	}
	if head := gaps[0].From; head < bound/4*9/10 || head > bound/4 {
		t.Errorf("head of %d bytes, want about %d", head, bound/4)
	}
	if tail := w.Length() - gaps[0].To; tail < bound/2 {
		t.Errorf("tail of %d bytes", tail)
	}
	early.Finish(w.Length())
	if gaps, err := drain(t, early, o); !errors.Is(err, io.EOF) || len(gaps) != 1 || gaps[0].From != 100_000 {
		t.Fatalf("from inside the gap: %+v, error %v", gaps, err)
	}
	left, err := Recover(dir)
	if err != nil || left.Length != w.Length() || left.Digest != w.Digest() || left.Cut != 0 {
		t.Fatalf("recovered %+v, %v; want %d %s", left, err, w.Length(), w.Digest())
	}
}

func diskUse(t *testing.T, dir string) (sum int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), segmentSuffix) {
			sum += info.Size()
		}
	}
	return sum
}

func TestTornTailIsCutAtEveryByte(t *testing.T) {
	w, dir := create(t, 0)
	o := &output{}
	o.append(t, w, Stdout, []byte("first\n"))
	o.append(t, w, Stderr, []byte("second\n"))
	whole := w.Length()
	wholeDigest := w.Digest()
	o.append(t, w, Stdout, []byte("torn away\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, segmentName(0))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := len(raw) - recordHeaderSize - len("torn away\n")
	for size := last + 1; size <= len(raw); size++ {
		torn := bytes.Clone(raw[:size])
		if size == len(raw) {
			torn[size-1] ^= 1 // written in full, but not with what was meant
		}
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if gaps, err := drain(t, r, o); !errors.Is(err, ErrNothingYet) || gaps != nil || r.Offset() != whole {
			t.Fatalf("size %d: gaps %v, error %v, cursor %d", size, gaps, err, r.Offset())
		}
		left, err := Recover(dir)
		if err != nil || left.Length != whole || left.Digest != wholeDigest || left.Cut != int64(size-last) {
			t.Fatalf("size %d: %+v, %v", size, left, err)
		}
		if again, err := Recover(dir); err != nil || again.Cut != 0 || again.Length != whole {
			t.Fatalf("size %d, again: %+v, %v", size, again, err)
		}
		r.Finish(whole)
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("size %d: after the cut: %v", size, err)
		}
		// The writer had told a greater length: the rest is a gap, not an end.
		r2, _ := Open(dir, 0)
		r2.Finish(w.Length())
		if gaps, err := drain(t, r2, o); !errors.Is(err, io.EOF) || len(gaps) != 1 || gaps[0] != (Gap{whole, w.Length(), CauseLost}) {
			t.Fatalf("size %d: gaps %+v, error %v", size, gaps, err)
		}
		_, _ = r.Close(), r2.Close()
	}
}

func TestDamageInTheMiddleBecomesAGap(t *testing.T) {
	w, dir := create(t, 0)
	w.segment = 4096
	o := &output{}
	for i := range 400 {
		o.append(t, w, Stdout, fmt.Appendf(nil, "line %d of some length\n", i))
	}
	starts, err := segmentStarts(dir)
	if err != nil || len(starts) < 4 {
		t.Fatalf("%v, %v", starts, err)
	}
	damage := func(start, at int64) {
		path := filepath.Join(dir, segmentName(start))
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		raw[at] ^= 0x40
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage(starts[1], 2000) // a record
	damage(starts[2], 9)    // a header
	r, err := Open(dir, 0)  // while the writer still writes
	if err != nil {
		t.Fatal(err)
	}
	gaps, err := drain(t, r, o)
	if !errors.Is(err, ErrNothingYet) || len(gaps) != 2 {
		t.Fatalf("gaps %+v, error %v", gaps, err)
	}
	if g := gaps[0]; g.From <= starts[1] || g.To != starts[2] || g.Cause != CauseCorrupt {
		t.Errorf("gap %+v, want it to end at %d", g, starts[2])
	}
	if g := gaps[1]; g != (Gap{starts[2], starts[3], CauseCorrupt}) {
		t.Errorf("gap %+v, want %d to %d", g, starts[2], starts[3])
	}
	_ = r.Close()
}

func TestDataInsideARecordedGapIsDelivered(t *testing.T) {
	w, dir := create(t, 0)
	o := &output{}
	o.append(t, w, Stdout, []byte("01234"))
	w.closeSegment()
	w.length = 10
	o.note(Stdout, []byte("?????"))
	o.append(t, w, Stdout, []byte("abcde"))
	w.gaps = []Gap{{5, 20, CauseWrite}} // the last on a full list has grown over what came later
	w.gapsStale = true
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Finish(20)
	gaps, err := drain(t, r, o)
	if !errors.Is(err, io.EOF) || len(gaps) != 2 || gaps[0] != (Gap{5, 10, CauseWrite}) || gaps[1] != (Gap{15, 20, CauseWrite}) {
		t.Fatalf("gaps %+v, error %v", gaps, err)
	}
	_ = r.Close()
}

func TestCreateRefusesASecondWriter(t *testing.T) {
	w, dir := create(t, 0)
	if err := w.Append(Stdout, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, 0); !errors.Is(err, ErrExists) {
		t.Fatalf("error %v, want ErrExists", err)
	}
	if _, err := Create(t.TempDir(), MinBound-1); err == nil {
		t.Fatal("a bound too small for segments was taken")
	}
}

func TestEmptyOutput(t *testing.T) {
	w, dir := create(t, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, ErrNothingYet) {
		t.Fatalf("error %v, want nothing yet", err)
	}
	r.Finish(0)
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("error %v, want EOF", err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		if left, err := Recover(d); err != nil || left.Length != 0 || left.Digest != w.Digest() {
			t.Fatalf("recovered %+v, %v", left, err)
		}
	}
}

func TestFormatIsFrozen(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := &output{}
	o.append(t, w, Stdout, []byte("hello\n"))
	o.append(t, w, Stderr, []byte("oops\n"))
	w.closeSegment()
	o.append(t, w, Stdout, []byte("more\n"))
	w.miss(3, 9, CauseBound)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, name := range []string{segmentName(0), segmentName(11), gapsName} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s\n%s", name, hex.Dump(raw))
	}
	golden := filepath.Join("testdata", "spool.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the format on disk changed; spools of running jobs would not be read any more:\n%s", got.String())
	}
	gaps, err := readGaps(dir)
	if err != nil || len(gaps) != 1 || gaps[0] != (Gap{3, 9, CauseBound}) {
		t.Errorf("gaps %+v, %v", gaps, err)
	}
}
