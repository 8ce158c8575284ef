package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// The frames of rc-stream/1: how a job's bytes travel between any two
// processes. A frame is a fixed header and a payload:
//
//	0      1      2        3       4              8                16
//	| mark | type | stream | flags | length (u32) | offset (u64)   | payload …
//
// All numbers are big-endian. Every frame has exactly one encoding: flags
// follow from the type, fields that mean nothing to a type are zero.
const (
	// frameMark opens every frame. Its low nibble is the version of the
	// format; a peer of another version is refused, never guessed at.
	frameMark = 0xB1

	// FrameHeaderLen is the length of the fixed header in bytes.
	FrameHeaderLen = 16

	// MaxFramePayload bounds what one frame can make a reader hold.
	MaxFramePayload = 256 << 10

	// maxFrameText bounds the payload of frames that explain something.
	maxFrameText = 8 << 10

	// flagMust says that a reader who does not know the type must refuse the
	// stream; a frame without it may be read past.
	flagMust = 1
)

// What can be wrong with a frame. None of them can be cured on the same
// connection: the reader no longer knows where the next frame begins.
var (
	ErrFrameVersion   = errors.New("frame of another version or no frame at all")
	ErrFrameUnknown   = errors.New("frame of an unknown type that must be understood")
	ErrFrameTooLarge  = errors.New("frame payload over the limit")
	ErrFrameMalformed = errors.New("malformed frame")
)

// FrameType says what a frame means. The numbers are part of the wire format
// and are never used again for something else.
type FrameType uint8

const (
	// FrameOpen asks for a job's output from Offset on; payload StreamOpen.
	FrameOpen FrameType = 1
	// FrameData carries output that begins at Offset.
	FrameData FrameType = 2
	// FrameGap says that output from Offset on exists nowhere any more;
	// payload StreamGap.
	FrameGap FrameType = 3
	// FrameEnd ends the stream at Offset; payload StreamEnd.
	FrameEnd FrameType = 4
	// FrameKeepAlive says only that the sender is there.
	FrameKeepAlive FrameType = 5
	// FrameAck says that everything before Offset has been taken: output
	// (StreamNone, by the reader) or input (StreamStdin, by the process's
	// side); payload StreamAck.
	FrameAck FrameType = 6
	// FrameInput carries input that begins at Offset of the input's own
	// offset space.
	FrameInput FrameType = 7
	// FrameResize gives the terminal a size, after the input before Offset;
	// payload StreamResize.
	FrameResize FrameType = 8
	// FrameEOF says that the input ends at Offset.
	FrameEOF FrameType = 9
	// FrameMoved says that this node no longer serves the stream and where to
	// ask next; payload StreamMoved.
	FrameMoved FrameType = 10
	// FrameError says that the stream cannot be had; payload StreamError.
	FrameError FrameType = 11
)

// Stream names the stream of the process that a frame's bytes belong to.
type Stream uint8

const (
	StreamNone   Stream = 0
	StreamStdout Stream = 1
	StreamStderr Stream = 2
	StreamStdin  Stream = 3
)

// frameRule is what the decoder holds a known type to.
type frameRule struct {
	name     string
	must     bool
	streams  []Stream
	offset   bool // whether Offset means something
	min, max int  // payload length
}

var frameRules = [...]frameRule{
	FrameOpen:      {"open", true, []Stream{StreamNone}, true, 1, maxFrameText},
	FrameData:      {"data", true, []Stream{StreamStdout, StreamStderr}, true, 1, MaxFramePayload},
	FrameGap:       {"gap", true, []Stream{StreamNone}, true, 8, 8 + maxFrameText},
	FrameEnd:       {"end", true, []Stream{StreamNone}, true, 1, maxFrameText},
	FrameKeepAlive: {"keepalive", false, []Stream{StreamNone}, false, 0, 0},
	FrameAck:       {"ack", false, []Stream{StreamNone, StreamStdin}, true, 8, 16},
	FrameInput:     {"input", true, []Stream{StreamStdin}, true, 1, MaxFramePayload},
	FrameResize:    {"resize", false, []Stream{StreamStdin}, true, 4, 4},
	FrameEOF:       {"eof", true, []Stream{StreamStdin}, true, 0, 0},
	FrameMoved:     {"moved", true, []Stream{StreamNone}, false, 1, maxFrameText},
	FrameError:     {"error", true, []Stream{StreamNone}, false, 1, maxFrameText},
}

// String returns the type's name for messages, or its number if it has none.
func (t FrameType) String() string {
	if t.known() {
		return frameRules[t].name
	}
	return fmt.Sprintf("type %d", uint8(t))
}

func (t FrameType) known() bool {
	return t != 0 && int(t) < len(frameRules)
}

// Frame is one message of a stream. Offset is in bytes, never negative, and
// zero for types that have none. Payload is nil where the type has none; see
// the type for what it holds.
type Frame struct {
	Type    FrameType
	Stream  Stream
	Offset  int64
	Payload []byte
}

// check reports what makes f impossible to encode, or nil.
func (f Frame) check() error {
	if !f.Type.known() {
		return fmt.Errorf("%w: %s", ErrFrameUnknown, f.Type)
	}
	rule := &frameRules[f.Type]
	if len(f.Payload) > rule.max {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrFrameTooLarge, rule.name, len(f.Payload), rule.max)
	}
	streamOK := false
	for _, s := range rule.streams {
		streamOK = streamOK || s == f.Stream
	}
	switch {
	case !streamOK:
		return fmt.Errorf("%w: %s on stream %d", ErrFrameMalformed, rule.name, f.Stream)
	case f.Offset < 0, f.Offset > math.MaxInt64-int64(len(f.Payload)), f.Offset != 0 && !rule.offset:
		return fmt.Errorf("%w: %s with offset %d", ErrFrameMalformed, rule.name, f.Offset)
	case len(f.Payload) < rule.min:
		return fmt.Errorf("%w: %s of %d bytes, at least %d", ErrFrameMalformed, rule.name, len(f.Payload), rule.min)
	}
	return nil
}

// AppendFrame appends the encoding of f to dst and returns the longer slice.
// It fails for a frame that ReadFrame would refuse, and dst is then unchanged.
func AppendFrame(dst []byte, f Frame) ([]byte, error) {
	if err := f.check(); err != nil {
		return dst, err
	}
	var flags byte
	if frameRules[f.Type].must {
		flags = flagMust
	}
	dst = append(dst, frameMark, byte(f.Type), byte(f.Stream), flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Payload)))
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.Offset))
	return append(dst, f.Payload...), nil
}

// WriteFrame writes f to w in one call of Write. After an error part of the
// frame may have been written, so that w is of no more use for frames.
func WriteFrame(w io.Writer, f Frame) error {
	data, err := AppendFrame(make([]byte, 0, FrameHeaderLen+len(f.Payload)), f)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write %s frame: %w", f.Type, err)
	}
	return nil
}

// ReadFrame reads exactly one frame from r and not a byte more. The payload
// lies in buf if that is large enough, else in new memory; either way it is
// valid only until buf is used again. A frame of a type this reader does not
// know and need not understand comes back as a KeepAlive, which is all that
// it tells: the peer is there.
//
// Errors: io.EOF if r ends before the frame, io.ErrUnexpectedEOF inside it,
// one of the ErrFrame sentinels, or what r returned.
func ReadFrame(r io.Reader, buf []byte) (Frame, error) {
	if cap(buf) < FrameHeaderLen {
		buf = make([]byte, FrameHeaderLen)
	}
	header := buf[:FrameHeaderLen]
	if _, err := io.ReadFull(r, header); err != nil {
		return Frame{}, err
	}
	f := Frame{Type: FrameType(header[1]), Stream: Stream(header[2])}
	mark, flags := header[0], header[3]
	length, offset := binary.BigEndian.Uint32(header[4:]), binary.BigEndian.Uint64(header[8:])
	switch {
	case mark != frameMark:
		return Frame{}, fmt.Errorf("%w: first byte %#02x, want %#02x", ErrFrameVersion, mark, frameMark)
	case length > MaxFramePayload:
		return Frame{}, fmt.Errorf("%w: %s of %d bytes, at most %d", ErrFrameTooLarge, f.Type, length, MaxFramePayload)
	case !f.Type.known() && flags&flagMust != 0:
		return Frame{}, fmt.Errorf("%w: %s", ErrFrameUnknown, f.Type)
	case f.Type.known() && (flags == flagMust) != frameRules[f.Type].must, f.Type.known() && flags > flagMust:
		return Frame{}, fmt.Errorf("%w: %s with flags %#02x", ErrFrameMalformed, f.Type, flags)
	case f.Type.known() && offset > math.MaxInt64:
		return Frame{}, fmt.Errorf("%w: %s with offset %d", ErrFrameMalformed, f.Type, offset)
	}
	f.Offset = int64(offset)
	if length > 0 {
		if cap(buf) < int(length) {
			buf = make([]byte, length)
		}
		f.Payload = buf[:length]
		if _, err := io.ReadFull(r, f.Payload); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
	if !f.Type.known() {
		return Frame{Type: FrameKeepAlive}, nil
	}
	if err := f.check(); err != nil {
		return Frame{}, err
	}
	return f, nil
}
