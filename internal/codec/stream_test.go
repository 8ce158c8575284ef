package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// countingWriter fails after its budget and counts calls.
type countingWriter struct {
	bytes.Buffer
	calls int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(p)
}

func TestMessagesComeBackInOrder(t *testing.T) {
	var w countingWriter
	want := []sample{full(), {}, {ID: "last"}}
	for _, v := range want {
		if err := WriteMessage(&w, v, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if w.calls != len(want) {
		t.Fatalf("%d writes for %d messages", w.calls, len(want))
	}
	r := iotest.OneByteReader(&w.Buffer)
	for i := range want {
		var got sample
		if err := ReadMessage(r, &got, 1<<20); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(MustMarshal(got), MustMarshal(want[i])) {
			t.Fatalf("message %d: %+v", i, got)
		}
	}
	if err := ReadMessage(r, new(sample), 1<<20); err != io.EOF {
		t.Fatalf("after the last: %v", err)
	}
}

func TestEveryCutInsideAMessageIsUnexpected(t *testing.T) {
	var w bytes.Buffer
	if err := WriteRaw(&w, []byte("hello"), 5); err != nil {
		t.Fatal(err)
	}
	whole := w.Bytes()
	for n := 1; n < len(whole); n++ {
		if _, err := ReadRaw(bytes.NewReader(whole[:n]), 5); err != io.ErrUnexpectedEOF {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if data, err := ReadRaw(bytes.NewReader(whole), 5); err != nil || string(data) != "hello" {
		t.Fatalf("%q %v", data, err)
	}
}

func TestLimitHoldsOnBothSides(t *testing.T) {
	var w bytes.Buffer
	if err := WriteRaw(&w, make([]byte, 6), 5); !errors.Is(err, ErrTooLarge) || w.Len() != 0 {
		t.Fatalf("%v, %d bytes written", err, w.Len())
	}
	if err := WriteMessage(&w, make([]byte, 6), 5); !errors.Is(err, ErrTooLarge) || w.Len() != 0 {
		t.Fatalf("%v, %d bytes written", err, w.Len())
	}
	for _, n := range []uint32{6, 1 << 31, 1<<32 - 1} {
		head := binary.BigEndian.AppendUint32(nil, n)
		if _, err := ReadRaw(bytes.NewReader(head), 5); !errors.Is(err, ErrTooLarge) {
			t.Errorf("length %d: %v", n, err)
		}
	}
}

func TestBrokenMessageIsAnErrorAndNotAnEnd(t *testing.T) {
	var w bytes.Buffer
	if err := WriteRaw(&w, []byte{0xff}, 10); err != nil {
		t.Fatal(err)
	}
	err := ReadMessage(&w, new(sample), 10)
	if err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("%v", err)
	}
	if err := WriteMessage(&w, make(chan int), 10); err == nil {
		t.Fatal("a channel was written")
	}
	want := errors.New("cut")
	if _, err := ReadRaw(iotest.ErrReader(want), 10); err != want {
		t.Fatalf("%v", err)
	}
}
