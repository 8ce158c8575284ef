package spool

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestACopyGoesOnAfterAnyCrash breaks a Writer off again and again, with half a
// record behind it at times, and goes on at what is left.
func TestACopyGoesOnAfterAnyCrash(t *testing.T) {
	for _, bound := range []int64{MinBound, 16 * MinBound} {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, uint64(bound)))
		t.Logf("seed %d bound %d", seed, bound)
		dir := filepath.Join(t.TempDir(), "out")
		o := &output{data: random(rng, 3*MinBound)}
		for range o.data {
			o.streams = append(o.streams, Stdout)
		}
		w, err := Resume(dir, bound)
		if err != nil {
			t.Fatal(err)
		}
		crashes, skipped := 0, false
		for w.Length() < int64(len(o.data)) {
			at := w.Length()
			n, err := w.Offer(Stdout, o.data[at:min(int64(len(o.data)), at+1+rng.Int64N(3000))])
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			switch rng.IntN(20) {
			case 0:
				w.Pause()
			case 1:
				w.Pause()
				crashes++
				tear(t, rng, dir)
				at := w.Length()
				if w, err = Resume(dir, bound); err != nil {
					t.Fatal(err)
				}
				if w.Length() != at {
					t.Fatalf("resumed at %d, was at %d", w.Length(), at)
				}
			}
			if !skipped && bound > MinBound && w.Length() > MinBound {
				skipped = true
				if err := w.Skip(w.Length()+5000, "a cause"); err != nil {
					t.Fatal(err)
				}
			}
			if size := diskUse(t, dir); size > bound+readAhead || w.Size() > bound {
				t.Fatalf("%d bytes on disk, %d counted, bound %d", size, w.Size(), bound)
			}
		}
		w.Pause()
		if crashes == 0 {
			t.Fatal("no crash: nothing was tested")
		}
		want := o.digest()
		if skipped {
			want = ""
		}
		if w.Digest() != want {
			t.Errorf("digest %q, want %q", w.Digest(), want)
		}
		r, err := Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Finish(w.Length())
		gaps, err := drain(t, r, o)
		if !errors.Is(err, io.EOF) || w.HasGaps() != (len(gaps) > 0) {
			t.Fatalf("gaps %+v, error %v", gaps, err)
		}
		for _, g := range gaps {
			if skipped && (g.To-g.From != 5000 || g.Cause != "a cause") || !skipped && g.Cause != CauseBound {
				t.Errorf("gap %+v", g)
			}
		}
		if (len(gaps) == 0) != (!skipped && bound > 3*MinBound) {
			t.Errorf("gaps %+v", gaps)
		}
		_ = r.Close()
	}
}

// tear leaves what a crash leaves: half a record, or a segment without a header.
func tear(t *testing.T, rng *rand.Rand, dir string) {
	t.Helper()
	starts, err := segmentStarts(dir)
	if err != nil || len(starts) == 0 {
		t.Fatal(starts, err)
	}
	name := filepath.Join(dir, segmentName(starts[len(starts)-1]))
	switch rng.IntN(3) {
	case 0:
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.Write(random(rng, 1+rng.IntN(100))); err != nil {
			t.Fatal(err)
		}
	case 1:
		// A length that nothing has, so that the name is in nobody's way but its own.
		if err := os.WriteFile(filepath.Join(dir, segmentName(1<<40)), []byte("RC"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAGapThatTheDiskDoesNotTakeIsNone(t *testing.T) {
	w, dir := create(t, 0)
	o := &output{}
	o.append(t, w, Stdout, []byte("kept\n"))
	disk := &flakyDisk{full: true}
	w.disk = disk
	if err := w.Skip(100, "a cause"); err == nil || w.Length() != 5 || w.HasGaps() {
		t.Fatalf("length %d, error %v", w.Length(), err)
	}
	disk.full = false
	if err := w.Skip(100, "a cause"); err != nil || w.Length() != 100 {
		t.Fatalf("length %d, error %v", w.Length(), err)
	}
	// At the very end too: there is no segment behind it.
	again, err := Resume(dir, 0)
	if err != nil || again.Length() != 100 || again.Digest() != "" {
		t.Fatalf("%+v, error %v", again, err)
	}
}
