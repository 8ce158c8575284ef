package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrTooLarge says that a message is longer than the limit of its stream.
// Nothing was written, or nothing after the length was read; a reader that
// gets it can no longer find the next message and has to end the stream.
var ErrTooLarge = errors.New("message over its size limit")

// lengthSize is the big-endian length before each message.
const lengthSize = 4

// WriteMessage writes the length of v's encoding and the encoding in one
// Write, so that a message is never split by another writer's. limit is the
// largest encoding allowed in bytes, without the length; above it the error
// wraps ErrTooLarge and nothing was written. After any other error part of the
// message may have gone out. Deadlines are the caller's.
func WriteMessage(w io.Writer, v any, limit int) error {
	data, err := Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message %T: %w", v, err)
	}
	return WriteRaw(w, data, limit)
}

// ReadMessage reads one message into v, by the rules of Unmarshal. It returns
// a bare io.EOF only when the stream ends between two messages, and
// io.ErrUnexpectedEOF when it ends inside one. Errors of r come unwrapped.
func ReadMessage(r io.Reader, v any, limit int) error {
	data, err := ReadRaw(r, limit)
	if err != nil {
		return err
	}
	if err := Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode message %T: %w", v, err)
	}
	return nil
}

// WriteRaw is WriteMessage for bytes that are already encoded, or opaque.
func WriteRaw(w io.Writer, data []byte, limit int) error {
	if len(data) > limit || len(data) > math.MaxUint32 {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(data), limit)
	}
	buf := make([]byte, 0, lengthSize+len(data))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(data)))
	buf = append(buf, data...)
	_, err := w.Write(buf)
	return err
}

// ReadRaw returns the bytes of the next message, which the caller owns, with
// the errors of ReadMessage. It reads not one byte past the message.
func ReadRaw(r io.Reader, limit int) ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, n, limit)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return data, nil
}
