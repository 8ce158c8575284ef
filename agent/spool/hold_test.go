package spool

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheBoundTakesNothingThatIsKept(t *testing.T) {
	for _, size := range []int{1, 300} {
		w, dir := create(t, MinBound)
		rng := rand.New(rand.NewPCG(1, uint64(size)))
		o := &output{}
		reader, err := Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Keep(0)
		for range 4 * MinBound / (size + recordHeaderSize) {
			o.append(t, w, Stdout, random(rng, size))
		}
		gaps, err := drain(t, reader, o)
		if !errors.Is(err, ErrNothingYet) || len(gaps) > 0 || reader.Offset() != w.Length() {
			t.Fatalf("records of %d bytes: read to %d of %d, gaps %+v, %v", size, reader.Offset(), w.Length(), gaps, err)
		}
		// What has been read is the bound's again.
		for range 2 * MinBound / (size + recordHeaderSize) {
			w.Keep(w.Length())
			o.append(t, w, Stdout, random(rng, size))
		}
		if used := diskUse(t, dir); used > MinBound {
			t.Errorf("records of %d bytes: %d bytes on disk after everything was read", size, used)
		}
		_ = reader.Close()
	}
}

func TestWhatTheDiskDoesNotTakeCanBeOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := create(t, 0)
		w.segment = 10_000
		disk := &flakyDisk{}
		w.disk = disk
		rng := rand.New(rand.NewPCG(3, 4))
		o := &output{}
		refused := 0
		for range 1000 {
			switch rng.IntN(10) {
			case 0:
				disk.full = true
			case 1, 2, 3:
				disk.full = false
			}
			p := random(rng, 1+rng.IntN(2*maxPayload))
			for at := 0; at < len(p); {
				n, err := w.Offer(Stderr, p[at:])
				o.note(Stderr, p[at:at+n])
				if at += n; err != nil {
					refused++
					time.Sleep(retryPause)
					disk.full = rng.IntN(2) == 0
				} else if at != len(p) {
					t.Fatalf("took %d of %d without an error", at, len(p))
				}
			}
		}
		if refused < 50 {
			t.Fatalf("only refused %d times: nothing was tested", refused)
		}
		if w.Digest() != o.digest() || w.Length() != int64(len(o.data)) {
			t.Errorf("length %d of %d, or the digest, counts what was refused", w.Length(), len(o.data))
		}
		r, err := Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Finish(w.Length())
		if gaps, err := drain(t, r, o); !errors.Is(err, io.EOF) || len(gaps) > 0 {
			t.Errorf("gaps %+v, %v", gaps, err)
		}
		_, _ = r.Close(), w.Close()
	})
}
