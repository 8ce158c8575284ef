package spool

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// flakyDisk is full at times: a write then takes a part of what it is given, as a real one does.
type flakyDisk struct {
	realDisk
	full bool
}

func (d *flakyDisk) create(path string) (segmentFile, error) {
	f, err := d.realDisk.create(path)
	if err != nil {
		return nil, err
	}
	return &flakyFile{File: f.(*os.File), disk: d}, nil
}

func (d *flakyDisk) replace(path string, data []byte) error {
	if d.full {
		return unix.ENOSPC
	}
	return d.realDisk.replace(path, data)
}

type flakyFile struct {
	*os.File
	disk *flakyDisk
}

func (f *flakyFile) Write(p []byte) (int, error) {
	if !f.disk.full {
		return f.File.Write(p)
	}
	n, _ := f.File.Write(p[:len(p)/2])
	return n, unix.ENOSPC
}

func TestFullDiskMakesAGapAndNeverAWrongByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 2))
		t.Logf("seed %d", seed)
		w, dir := create(t, MinBound)
		w.segment = 10_000
		disk := &flakyDisk{}
		w.disk = disk
		o := &output{}
		failures := 0
		follower, err := Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		var seen []Gap
		for range 2000 {
			switch rng.IntN(40) {
			case 0:
				disk.full = true
			case 1, 2:
				disk.full = false
			}
			if rng.IntN(4) == 0 {
				time.Sleep(retryPause)
			}
			p := random(rng, 1+rng.IntN(400))
			if w.Append(Stdout, p) != nil {
				failures++
			}
			o.note(Stdout, p)
			if rng.IntN(10) == 0 {
				gaps, err := drain(t, follower, o)
				if !errors.Is(err, ErrNothingYet) {
					t.Fatal(err)
				}
				seen = append(seen, gaps...)
			}
		}
		if failures == 0 || len(seen) == 0 {
			t.Fatalf("%d failures, %d gaps seen: nothing was tested", failures, len(seen))
		}
		for _, g := range seen {
			if g.Cause != CauseWrite {
				t.Errorf("gap %+v, want cause %q", g, CauseWrite)
			}
		}
		disk.full = false
		if w.Digest() != o.digest() || w.Length() != int64(len(o.data)) {
			t.Error("length or digest miss what the disk refused")
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
		if !errors.Is(err, io.EOF) || len(gaps) == 0 {
			t.Fatalf("gaps %v, error %v", gaps, err)
		}
		for _, g := range gaps {
			if g.Cause != CauseWrite && g.Cause != CauseBound {
				t.Errorf("gap %+v without its cause", g)
			}
		}
		_, _ = r.Close(), follower.Close()
	})
}

func TestDiskThatNeverRecoversStillCounts(t *testing.T) {
	w, dir := create(t, 0)
	o := &output{}
	o.append(t, w, Stdout, []byte("kept\n"))
	disk := &flakyDisk{full: true}
	w.disk = disk
	w.current.file = &flakyFile{File: w.current.file.(*os.File), disk: disk}
	if err := w.Append(Stdout, []byte("refused\n")); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("error %v, want ENOSPC", err)
	}
	if size := diskUse(t, dir); size != segmentHeaderSize+recordHeaderSize+5 {
		t.Errorf("segment of %d bytes: half a record was left in it", size)
	}
	o.note(Stdout, []byte("refused\n"))
	if err := w.Close(); err == nil {
		t.Error("Close hides that the gap is not on record")
	}
	if w.Length() != 13 || w.Digest() != o.digest() {
		t.Errorf("length %d", w.Length())
	}
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Finish(w.Length())
	if gaps, err := drain(t, r, o); !errors.Is(err, io.EOF) || len(gaps) != 1 || gaps[0] != (Gap{5, 13, CauseLost}) {
		t.Fatalf("gaps %+v, error %v", gaps, err)
	}
	_ = r.Close()
}

func TestReaderFollowsAWriterInAnotherGoroutine(t *testing.T) {
	w, dir := create(t, 0)
	w.segment = 8192
	const lines = 30_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range lines {
			if err := w.Append(Stream(1+i%2), []byte("0123456789abcdef0123456789abcde\n")); err != nil {
				t.Error(err)
			}
		}
	}()
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for r.Offset() < lines*32 {
		rec, err := r.Next()
		if errors.Is(err, ErrNothingYet) {
			if time.Now().After(deadline) {
				t.Fatalf("stuck at %d of %d", r.Offset(), lines*32)
			}
			continue
		}
		if err != nil || rec.Gap != nil || len(rec.Data)%32 != 0 {
			t.Fatalf("%+v, %v", rec, err)
		}
	}
	<-done
	_ = r.Close()
}
