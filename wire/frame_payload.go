package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"rcd/internal/codec"
)

// StreamOpen is the payload of FrameOpen, the first frame of a stream that
// was not opened by an HTTP request.
type StreamOpen struct {
	// Job is the job's ID.
	Job string `cbor:"1,keyasint"`
	// Follow asks for what is yet to come as well; without it the stream ends
	// with what is there.
	Follow bool `cbor:"2,keyasint,omitempty"`
	// Writer is the number under which this connection sends input, 0 if it
	// only reads. A take-over raises it; input under a lower number than the
	// highest seen is refused.
	Writer uint64 `cbor:"3,keyasint,omitempty"`
	// Attach says that the reader is attached to the job's terminal or pipe:
	// what it acks lets the job go on, and while it is there the job is
	// attended. Only to agents of protocol 3 on, like the next.
	Attach bool `cbor:"4,keyasint,omitempty"`
	// TakeOver asks, instead of Writer, for a number above all that have written
	// to the job so far. The first ack of input tells it.
	TakeOver bool `cbor:"5,keyasint,omitempty"`
	// InputOnly says that the writer reads no output here: none is sent, only
	// the end of the job ends the stream, and others' reading lets the job go on.
	InputOnly bool `cbor:"6,keyasint,omitempty"`
	// Window is how many bytes of input the writer would like to have under way
	// without an ack, 0 for InputWindow. What it may is in the acks. Only to
	// agents of protocol 4 on.
	Window uint32 `cbor:"7,keyasint,omitempty"`
}

// How many bytes of input may be under way without an ack: what the process's
// side takes in advance. A writer that sends more is cut off.
const (
	// InputWindow is for one whom no ack on its link has granted more.
	InputWindow = 64 << 10
	// MaxInputWindow is the most that is granted, and what makes an upload over
	// a long line as fast as a download, which has a window of 1 MiB too.
	MaxInputWindow = 1 << 20
)

// StreamGap is the payload of FrameGap: the output from the frame's offset up
// to To, which is above it, is gone for the given cause.
type StreamGap struct {
	To    int64
	Cause string
}

// StreamEnd is the payload of FrameEnd.
type StreamEnd struct {
	// State is the job's state when the stream ended.
	State string `cbor:"1,keyasint"`
	// Digest is the SHA-256 in hexadecimal of all output ever written, in
	// offset order, or empty where it is not known.
	Digest string `cbor:"2,keyasint,omitempty"`
	// Complete is true if the job is over and the frame's offset is the length
	// of its output. If it is false, Reason says what is missing.
	Complete bool   `cbor:"3,keyasint,omitempty"`
	Reason   string `cbor:"4,keyasint,omitempty"`
}

// StreamAck is the payload of FrameAck. Writer is the number that input is
// accepted from at present; in acks of output it is 0. Window is how many bytes
// of input behind the frame's offset may be sent, and is there only if the
// writer has asked for one: 0 means InputWindow.
type StreamAck struct {
	Writer uint64
	Window uint32
}

// StreamResize is the payload of FrameResize: a terminal's size in characters.
type StreamResize struct {
	Rows, Cols uint16
}

// StreamMoved is the payload of FrameMoved. Hint is the address of the node to
// ask next, as the node itself announces it, or empty if not known.
type StreamMoved struct {
	Hint string `cbor:"1,keyasint"`
}

// StreamError is the payload of FrameError: a code and a sentence that says
// what to do next. Retry is true if asking again, perhaps another node, may
// give the stream; without it the answer is final.
type StreamError struct {
	Code    string `cbor:"1,keyasint"`
	Message string `cbor:"2,keyasint"`
	Retry   bool   `cbor:"3,keyasint,omitempty"`
}

// Error returns code and sentence.
func (e *StreamError) Error() string {
	return e.Code + ": " + e.Message
}

// OpenFrame returns the frame that asks for output from offset on.
func OpenFrame(offset int64, open StreamOpen) Frame {
	return Frame{Type: FrameOpen, Offset: offset, Payload: codec.MustMarshal(open)}
}

// GapFrame returns the frame for the range from (included) to gap.To
// (excluded). A cause over the bound is cut.
func GapFrame(from int64, gap StreamGap) Frame {
	payload := binary.BigEndian.AppendUint64(nil, uint64(gap.To))
	return Frame{Type: FrameGap, Offset: from, Payload: append(payload, cutText(gap.Cause)...)}
}

// EndFrame returns the frame that ends a stream at length. A reason over the
// bound is cut.
func EndFrame(length int64, end StreamEnd) Frame {
	end.Reason = cutText(end.Reason)
	return Frame{Type: FrameEnd, Offset: length, Payload: codec.MustMarshal(end)}
}

// AckFrame returns the frame that says everything of a stream (StreamNone for
// output, StreamStdin) before offset has been taken.
func AckFrame(stream Stream, offset int64, ack StreamAck) Frame {
	payload := binary.BigEndian.AppendUint64(nil, ack.Writer)
	if ack.Window > 0 {
		payload = binary.BigEndian.AppendUint64(payload, uint64(ack.Window))
	}
	return Frame{Type: FrameAck, Stream: stream, Offset: offset, Payload: payload}
}

// ResizeFrame returns the frame that sets a terminal's size after the input
// before offset.
func ResizeFrame(offset int64, size StreamResize) Frame {
	payload := binary.BigEndian.AppendUint16(nil, size.Rows)
	payload = binary.BigEndian.AppendUint16(payload, size.Cols)
	return Frame{Type: FrameResize, Stream: StreamStdin, Offset: offset, Payload: payload}
}

// MovedFrame returns the frame that sends the reader elsewhere.
func MovedFrame(moved StreamMoved) Frame {
	moved.Hint = cutText(moved.Hint)
	return Frame{Type: FrameMoved, Payload: codec.MustMarshal(moved)}
}

// ErrorFrame returns the frame that refuses or breaks off a stream. Texts over
// the bound are cut.
func ErrorFrame(e StreamError) Frame {
	e.Code, e.Message = cutText(e.Code), cutText(e.Message)
	return Frame{Type: FrameError, Payload: codec.MustMarshal(e)}
}

// Open decodes the payload of a FrameOpen.
func (f Frame) Open() (StreamOpen, error) {
	return decodePayload[StreamOpen](f, FrameOpen)
}

// Gap decodes the payload of a FrameGap and checks that the range is not empty.
func (f Frame) Gap() (StreamGap, error) {
	if err := f.is(FrameGap); err != nil {
		return StreamGap{}, err
	}
	to, cause := binary.BigEndian.Uint64(f.Payload), f.Payload[8:]
	if to > math.MaxInt64 || int64(to) <= f.Offset || !utf8.Valid(cause) {
		return StreamGap{}, fmt.Errorf("%w: gap from %d to %d", ErrFrameMalformed, f.Offset, to)
	}
	return StreamGap{To: int64(to), Cause: string(cause)}, nil
}

// End decodes the payload of a FrameEnd.
func (f Frame) End() (StreamEnd, error) {
	return decodePayload[StreamEnd](f, FrameEnd)
}

// Ack decodes the payload of a FrameAck.
func (f Frame) Ack() (StreamAck, error) {
	if err := f.is(FrameAck); err != nil {
		return StreamAck{}, err
	}
	ack := StreamAck{Writer: binary.BigEndian.Uint64(f.Payload)}
	if rest := f.Payload[8:]; len(rest) > 0 {
		if len(rest) != 8 || f.Stream != StreamStdin {
			return StreamAck{}, fmt.Errorf("%w: ack with %d bytes of a window on stream %d", ErrFrameMalformed, len(rest), f.Stream)
		}
		window := binary.BigEndian.Uint64(rest)
		if window == 0 || window > math.MaxUint32 {
			return StreamAck{}, fmt.Errorf("%w: ack with a window of %d", ErrFrameMalformed, window)
		}
		ack.Window = uint32(window)
	}
	return ack, nil
}

// Resize decodes the payload of a FrameResize.
func (f Frame) Resize() (StreamResize, error) {
	if err := f.is(FrameResize); err != nil {
		return StreamResize{}, err
	}
	return StreamResize{Rows: binary.BigEndian.Uint16(f.Payload), Cols: binary.BigEndian.Uint16(f.Payload[2:])}, nil
}

// Moved decodes the payload of a FrameMoved.
func (f Frame) Moved() (StreamMoved, error) {
	return decodePayload[StreamMoved](f, FrameMoved)
}

// Failure decodes the payload of a FrameError.
func (f Frame) Failure() (StreamError, error) {
	return decodePayload[StreamError](f, FrameError)
}

// is guards the fixed payloads against a frame of another type or one that
// never went through ReadFrame.
func (f Frame) is(want FrameType) error {
	if f.Type != want {
		return fmt.Errorf("%w: %s where %s was expected", ErrFrameMalformed, f.Type, want)
	}
	return f.check()
}

func decodePayload[T any](f Frame, want FrameType) (T, error) {
	var v, none T
	if err := f.is(want); err != nil {
		return none, err
	}
	if err := codec.Unmarshal(f.Payload, &v); err != nil {
		return none, fmt.Errorf("%w: %s: %w", ErrFrameMalformed, want, err)
	}
	return v, nil
}

// cutText keeps an explanation well within what its frame may hold, so that a
// long message never costs the frame. Bytes that are no UTF-8, a character cut
// in the middle included, become a question mark: the reader would refuse them.
func cutText(s string) string {
	const limit = maxFrameText / 4 // an error frame holds two texts
	return strings.ToValidUTF8(s[:min(len(s), limit)], "?")
}
