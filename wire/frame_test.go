package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

var updateFrames = flag.Bool("update-frames", false, "rewrite testdata/frames.golden")

// everyFrame holds at least one frame of each type, with its edges.
func everyFrame() []struct {
	name  string
	frame Frame
} {
	return []struct {
		name  string
		frame Frame
	}{
		{"open", OpenFrame(48213, StreamOpen{Job: "j-1", Follow: true})},
		{"open writer", OpenFrame(0, StreamOpen{Job: "j-1", Writer: 7})},
		{"open attached writer", OpenFrame(9, StreamOpen{Job: "j-1", Follow: true, Writer: 7, Attach: true})},
		{"open to take over", OpenFrame(0, StreamOpen{Job: "j-1", Follow: true, Attach: true, TakeOver: true, InputOnly: true})},
		{"open with a window", OpenFrame(9, StreamOpen{Job: "j-1", Follow: true, Writer: 7, Attach: true, Window: MaxInputWindow})},
		{"data stdout", Frame{Type: FrameData, Stream: StreamStdout, Offset: 1 << 40, Payload: []byte("line\n")}},
		{"data stderr", Frame{Type: FrameData, Stream: StreamStderr, Payload: []byte{0, 255}}},
		{"gap", GapFrame(10, StreamGap{To: 20, Cause: "spool bound"})},
		{"gap without cause", GapFrame(0, StreamGap{To: math.MaxInt64})},
		{"end complete", EndFrame(99, StreamEnd{State: "succeeded", Digest: "ab12", Complete: true})},
		{"end incomplete", EndFrame(0, StreamEnd{State: "running", Reason: "the job is still running"})},
		{"keepalive", Frame{Type: FrameKeepAlive}},
		{"ack output", AckFrame(StreamNone, 65536, StreamAck{})},
		{"ack input", AckFrame(StreamStdin, 12, StreamAck{Writer: 3})},
		{"ack input with a window", AckFrame(StreamStdin, 12, StreamAck{Writer: 3, Window: MaxInputWindow})},
		{"input", Frame{Type: FrameInput, Stream: StreamStdin, Offset: 3, Payload: []byte("q")}},
		{"resize", ResizeFrame(4, StreamResize{Rows: 24, Cols: 80})},
		{"eof", Frame{Type: FrameEOF, Stream: StreamStdin, Offset: 4}},
		{"moved", MovedFrame(StreamMoved{Hint: "127.0.0.1:7401"})},
		{"error", ErrorFrame(StreamError{Code: "not_found", Message: "no such job", Retry: true})},
	}
}

// Agents, controllers and clients of different builds meet: what a frame looks
// like on the wire never changes under one version.
func TestFrameEncodingIsFrozen(t *testing.T) {
	var out strings.Builder
	for _, c := range everyFrame() {
		data, err := AppendFrame(nil, c.frame)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		fmt.Fprintf(&out, "%s: %s %s\n", c.name, hex.EncodeToString(data[:FrameHeaderLen]), hex.EncodeToString(data[FrameHeaderLen:]))
	}
	const path = "testdata/frames.golden"
	if *updateFrames {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Fatalf("got\n%swant\n%s", out.String(), want)
	}
}

func TestFrameComesBackAsItWasWritten(t *testing.T) {
	for _, c := range everyFrame() {
		var wireBytes bytes.Buffer
		if err := WriteFrame(&wireBytes, c.frame); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		wireBytes.WriteString("next")
		// One byte at a time: short reads are what a network does.
		got, err := ReadFrame(iotest.OneByteReader(&wireBytes), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got.Type != c.frame.Type || got.Stream != c.frame.Stream || got.Offset != c.frame.Offset || !bytes.Equal(got.Payload, c.frame.Payload) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.frame)
		}
		if wireBytes.String() != "next" {
			t.Errorf("%s: read past its end, %q is left", c.name, wireBytes.String())
		}
	}
}

func TestFramePayloadComesBackAsItWas(t *testing.T) {
	open, err := OpenFrame(0, StreamOpen{Job: "j-1", Follow: true, Writer: 9}).Open()
	if err != nil || open != (StreamOpen{Job: "j-1", Follow: true, Writer: 9}) {
		t.Errorf("open: %+v, %v", open, err)
	}
	gap, err := GapFrame(5, StreamGap{To: 6, Cause: "host lost"}).Gap()
	if err != nil || gap != (StreamGap{To: 6, Cause: "host lost"}) {
		t.Errorf("gap: %+v, %v", gap, err)
	}
	wantEnd := StreamEnd{State: "failed", Digest: "00", Complete: true, Reason: "r"}
	if end, err := EndFrame(5, wantEnd).End(); err != nil || end != wantEnd {
		t.Errorf("end: %+v, %v", end, err)
	}
	if ack, err := AckFrame(StreamStdin, 5, StreamAck{Writer: 4}).Ack(); err != nil || ack.Writer != 4 {
		t.Errorf("ack: %+v, %v", ack, err)
	}
	wide := StreamAck{Writer: 4, Window: math.MaxUint32}
	if ack, err := AckFrame(StreamStdin, 5, wide).Ack(); err != nil || ack != wide {
		t.Errorf("ack with a window: %+v, %v", ack, err)
	}
	if size, err := ResizeFrame(0, StreamResize{Rows: 50, Cols: 132}).Resize(); err != nil || size != (StreamResize{50, 132}) {
		t.Errorf("resize: %+v, %v", size, err)
	}
	if moved, err := MovedFrame(StreamMoved{Hint: "h"}).Moved(); err != nil || moved.Hint != "h" {
		t.Errorf("moved: %+v, %v", moved, err)
	}
	wantErr := StreamError{Code: "c", Message: "m", Retry: true}
	if e, err := ErrorFrame(wantErr).Failure(); err != nil || e != wantErr {
		t.Errorf("error: %+v, %v", e, err)
	}
	if _, err := EndFrame(5, wantEnd).Gap(); !errors.Is(err, ErrFrameMalformed) {
		t.Errorf("the gap of an end: %v", err)
	}
}

func TestLongExplanationIsCutAndNeverCostsTheFrame(t *testing.T) {
	long := strings.Repeat("é\xff", MaxFramePayload)
	for _, f := range []Frame{
		GapFrame(0, StreamGap{To: 1, Cause: long}),
		EndFrame(0, StreamEnd{State: "lost", Reason: long}),
		MovedFrame(StreamMoved{Hint: long}),
		ErrorFrame(StreamError{Code: long, Message: long}),
	} {
		data, err := AppendFrame(nil, f)
		if err != nil {
			t.Fatalf("%s: %v", f.Type, err)
		}
		if f, err = ReadFrame(bytes.NewReader(data), nil); err != nil {
			t.Fatal(err)
		}
		switch f.Type {
		case FrameGap:
			_, err = f.Gap()
		case FrameEnd:
			_, err = f.End()
		case FrameMoved:
			_, err = f.Moved()
		case FrameError:
			_, err = f.Failure()
		}
		if err != nil {
			t.Errorf("%s: %v", f.Type, err)
		}
	}
}

// rawFrame builds one by hand, so that it can be wrong.
func rawFrame(mark, typ, stream, flags byte, length uint32, offset uint64) []byte {
	h := binary.BigEndian.AppendUint32([]byte{mark, typ, stream, flags}, length)
	return binary.BigEndian.AppendUint64(h, offset)
}

func TestBadFrameIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, io.EOF},
		{"half a header", rawFrame(frameMark, 5, 0, 0, 0, 0)[:9], io.ErrUnexpectedEOF},
		{"no payload", rawFrame(frameMark, 2, 1, 1, 4, 0), io.ErrUnexpectedEOF},
		{"half a payload", append(rawFrame(frameMark, 2, 1, 1, 4, 0), 'a', 'b'), io.ErrUnexpectedEOF},
		{"next version", rawFrame(frameMark+1, 5, 0, 0, 0, 0), ErrFrameVersion},
		{"plain text", []byte("HTTP/1.1 400 Bad Request\r\n"), ErrFrameVersion},
		{"unknown, must", rawFrame(frameMark, 99, 0, 1, 0, 0), ErrFrameUnknown},
		{"unknown, must and more", rawFrame(frameMark, 99, 0, 0x81, 0, 0), ErrFrameUnknown},
		{"type zero", rawFrame(frameMark, 0, 0, 1, 0, 0), ErrFrameUnknown},
		{"payload over the limit", rawFrame(frameMark, 2, 1, 1, MaxFramePayload+1, 0), ErrFrameTooLarge},
		{"payload of 4 GiB", rawFrame(frameMark, 99, 0, 0, math.MaxUint32, 0), ErrFrameTooLarge},
		{"payload over the type's limit", append(rawFrame(frameMark, 9, 3, 1, 1, 0), 0), ErrFrameTooLarge},
		{"must missing", append(rawFrame(frameMark, 2, 1, 0, 1, 0), 'a'), ErrFrameMalformed},
		{"must too much", rawFrame(frameMark, 5, 0, 1, 0, 0), ErrFrameMalformed},
		{"flags of the future", append(rawFrame(frameMark, 2, 1, 3, 1, 0), 'a'), ErrFrameMalformed},
		{"optional with flags of the future", rawFrame(frameMark, 5, 0, 0x80, 0, 0), ErrFrameMalformed},
		{"data on no stream", append(rawFrame(frameMark, 2, 0, 1, 1, 0), 'a'), ErrFrameMalformed},
		{"data on stdin", append(rawFrame(frameMark, 2, 3, 1, 1, 0), 'a'), ErrFrameMalformed},
		{"empty data", rawFrame(frameMark, 2, 1, 1, 0, 0), ErrFrameMalformed},
		{"negative offset", append(rawFrame(frameMark, 2, 1, 1, 1, 1<<63), 'a'), ErrFrameMalformed},
		{"offset that overflows", append(rawFrame(frameMark, 2, 1, 1, 1, math.MaxInt64), 'a'), ErrFrameMalformed},
		{"offset where there is none", rawFrame(frameMark, 5, 0, 0, 0, 1), ErrFrameMalformed},
	} {
		if f, err := ReadFrame(bytes.NewReader(c.data), nil); !errors.Is(err, c.want) {
			t.Errorf("%s: got %+v, %v, want %v", c.name, f, err, c.want)
		}
	}
}

func TestBadPayloadIsRefused(t *testing.T) {
	gap := func(from int64, to uint64, cause string) Frame {
		return Frame{Type: FrameGap, Offset: from, Payload: append(binary.BigEndian.AppendUint64(nil, to), cause...)}
	}
	for name, f := range map[string]Frame{
		"empty gap":       gap(5, 5, ""),
		"gap backwards":   gap(5, 4, ""),
		"gap to nowhere":  gap(5, 1<<63, ""),
		"cause no text":   gap(5, 6, "\xff"),
		"gap too short":   {Type: FrameGap, Payload: []byte{1}},
		"end no cbor":     {Type: FrameEnd, Payload: []byte{0xff}},
		"end more fields": {Type: FrameEnd, Payload: []byte{0xa1, 0x18, 0x63, 0x01}},
	} {
		_, gapErr := f.Gap()
		_, endErr := f.End()
		if !errors.Is(gapErr, ErrFrameMalformed) || !errors.Is(endErr, ErrFrameMalformed) {
			t.Errorf("%s: %v, %v", name, gapErr, endErr)
		}
	}
}

func TestAWindowThatIsNoneIsRefused(t *testing.T) {
	number := func(n ...uint64) (payload []byte) {
		for _, n := range n {
			payload = binary.BigEndian.AppendUint64(payload, n)
		}
		return payload
	}
	for name, f := range map[string]Frame{
		"half a number":    {Type: FrameAck, Stream: StreamStdin, Payload: number(3, 5)[:12]},
		"nothing":          {Type: FrameAck, Stream: StreamStdin, Payload: number(3, 0)}, // that is written without
		"over 32 bits":     {Type: FrameAck, Stream: StreamStdin, Payload: number(3, 1<<32)},
		"in ack of output": {Type: FrameAck, Stream: StreamNone, Payload: number(0, 5)},
		"a third number":   {Type: FrameAck, Stream: StreamStdin, Payload: number(3, 5, 6)},
	} {
		if ack, err := f.Ack(); err == nil {
			t.Errorf("%s: %+v", name, ack)
		}
	}
}

// The way by which a later build adds a frame that old readers may ignore.
func TestUnknownOptionalFrameIsReadPast(t *testing.T) {
	data := append(rawFrame(frameMark, 99, 200, 0x80, 3, math.MaxUint64), "new"...)
	data = append(data, rawFrame(frameMark, 9, 3, 1, 0, 8)...)
	r := bytes.NewReader(data)
	f, err := ReadFrame(r, nil)
	if err != nil || f.Type != FrameKeepAlive || f.Offset != 0 || f.Payload != nil {
		t.Fatalf("got %+v, %v", f, err)
	}
	if f, err = ReadFrame(r, nil); err != nil || f.Type != FrameEOF || f.Offset != 8 {
		t.Fatalf("the frame after it: %+v, %v", f, err)
	}
}

func TestImpossibleFrameIsNotWritten(t *testing.T) {
	var out bytes.Buffer
	for _, f := range []Frame{
		{},
		{Type: FrameData, Stream: StreamStdout, Payload: make([]byte, MaxFramePayload+1)},
		{Type: FrameData, Stream: StreamStdout},
		{Type: FrameData, Payload: []byte("a")},
		{Type: FrameData, Stream: StreamStdout, Offset: -1, Payload: []byte("a")},
		{Type: FrameKeepAlive, Offset: 1},
		{Type: FrameType(99)},
	} {
		if err := WriteFrame(&out, f); err == nil || out.Len() != 0 {
			t.Errorf("%+v: %v, %d bytes written", f, err, out.Len())
		}
	}
}

func TestReadFrameUsesTheGivenBuffer(t *testing.T) {
	data, err := AppendFrame(nil, Frame{Type: FrameData, Stream: StreamStdout, Payload: make([]byte, 1000)})
	if err != nil {
		t.Fatal(err)
	}
	buf, r := make([]byte, 1000), bytes.NewReader(data)
	allocs := testing.AllocsPerRun(100, func() {
		r.Reset(data)
		if _, err := ReadFrame(r, buf); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a frame, want none", allocs)
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, c := range everyFrame() {
		data, err := AppendFrame(nil, c.frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(rawFrame(frameMark, 99, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		got, err := ReadFrame(r, nil)
		if err != nil {
			return
		}
		read := data[:len(data)-r.Len()]
		if FrameType(read[1]) != got.Type {
			return // an unknown frame, read past
		}
		again, err := AppendFrame(nil, got)
		if err != nil || !bytes.Equal(again, read) {
			t.Fatalf("read %x as %+v, which is written %x, %v", read, got, again, err)
		}
		// Decoders must not panic whatever the payload holds.
		_, _ = got.Open()
		_, _ = got.Gap()
		_, _ = got.End()
		_, _ = got.Ack()
		_, _ = got.Resize()
		_, _ = got.Moved()
		_, _ = got.Failure()
	})
}
