package copies

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"rcd/relay"
	"rcd/wire"
)

// A turned bit in the length, or in whether there are gaps, was believed: the
// copy was never completed, or served by a node that could not serve it.
func TestATurnedBitInAHeaderIsNeverBelieved(t *testing.T) {
	dir, output := t.TempDir(), random(1000)
	if err := put(open(t, dir, 1<<30), 1, output, 10); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "1", headerName)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			turned := bytes.Clone(raw)
			turned[i] ^= 1 << bit
			if err := os.WriteFile(path, turned, 0o600); err != nil {
				t.Fatal(err)
			}
			if h, err := readHeader(filepath.Dir(path)); err == nil {
				t.Errorf("bit %d of byte %d: %+v", bit, i, h)
			}
		}
	}
}

// Between the look at a copy and the claim of it the copy can go, for room: what
// had been asked for went to the beginning of a new one.
func TestACopyTakesOnlyWhatGoesOnWhereItEnds(t *testing.T) {
	s, output := open(t, t.TempDir(), 1<<30), random(1000)
	if err := put(s, 1, output[:500], 0); err != nil {
		t.Fatal(err)
	}
	s.Drop(1)
	w, err := s.Begin(Key{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []relay.Record{
		relay.Data{Offset: 500, Stream: wire.StreamStderr, Bytes: output[500:]},
		relay.Gap{From: 500, To: 1000, Cause: "lost"},
	} {
		if err := w.Take(t.Context(), record); !errors.Is(err, ErrNotNext) || w.Length() != 0 {
			t.Errorf("%T: %v, length %d", record, err, w.Length())
		}
	}
	w.Close()
	if err := put(s, 1, output, 10); err != nil {
		t.Fatal(err)
	}
	w, err = s.Begin(Key{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Take(t.Context(), relay.Data{Offset: 1000, Stream: wire.StreamStderr, Bytes: output}); !errors.Is(err, ErrNotNext) {
		t.Errorf("behind a complete copy: %v", err)
	}
	if data, _, end, err := read(s, 1, Mode{}); err != nil || !end.Complete || !bytes.Equal(data, output) {
		t.Errorf("%d bytes, %+v, %v", len(data), end, err)
	}
}

// What could not be set aside stays until the next start.
func TestACopyBegunAnewHasNothingOfTheOneBefore(t *testing.T) {
	dir, output := t.TempDir(), random(1000)
	s := open(t, dir, 1<<30)
	if err := put(s, 1, output, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "gone-1", "x"), 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	s.Drop(1)
	if _, err := os.Stat(filepath.Join(dir, "1")); err != nil {
		t.Fatal("it was set aside: the test shows nothing")
	}
	if err := put(s, 1, output, 10); err != nil {
		t.Fatal(err)
	}
	if data, _, end, err := read(s, 1, Mode{}); err != nil || !end.Complete || !bytes.Equal(data, output) {
		t.Errorf("%d bytes, %+v, %v", len(data), end, err)
	}
}
