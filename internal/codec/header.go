package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrFormat says that the bytes do not begin with a header of this project:
// they are shorter, carry another magic, or set a flag that has no meaning.
var ErrFormat = errors.New("not a record of this format")

const (
	// Format is the first byte of every persisted record. 0xC1 is a CBOR tag
	// (epoch time), which we never write, so a body that lost its header is
	// not taken for a record.
	Format = 0xC1

	// HeaderSize is the length of a header: format u8, version u8, kind u16
	// big-endian, flags u8.
	HeaderSize = 5

	// FlagMandatory marks a record that nobody may skip: a reader that does
	// not know its kind halts.
	FlagMandatory uint8 = 1 << 0

	knownFlags = FlagMandatory
)

// Header says what a record is before its body is decoded. Kinds are counted
// separately by each package that seals records (commands, snapshot rows) and
// are append-only; Version is that of the body's encoding, 0 to 255.
type Header struct {
	Version uint8
	Kind    uint16
	Flags   uint8
}

// Mandatory reports whether a reader that does not know h.Kind must halt.
func (h Header) Mandatory() bool { return h.Flags&FlagMandatory != 0 }

// Seal returns a new slice: the header, then a copy of body. A flag without a
// meaning is a programming error and panics.
func Seal(h Header, body []byte) []byte {
	if h.Flags&^knownFlags != 0 {
		panic(fmt.Sprintf("codec: flags %#x have no meaning", h.Flags))
	}
	data := make([]byte, 0, HeaderSize+len(body))
	data = append(data, Format, h.Version)
	data = binary.BigEndian.AppendUint16(data, h.Kind)
	data = append(data, h.Flags)
	return append(data, body...)
}

// Open returns the header of data and its body, which shares data's memory and
// may be empty. The error wraps ErrFormat. The body is not looked at.
func Open(data []byte) (Header, []byte, error) {
	if len(data) < HeaderSize {
		return Header{}, nil, fmt.Errorf("%w: %d bytes, a header has %d", ErrFormat, len(data), HeaderSize)
	}
	if data[0] != Format {
		return Header{}, nil, fmt.Errorf("%w: first byte %#02x, want %#02x", ErrFormat, data[0], byte(Format))
	}
	h := Header{Version: data[1], Kind: binary.BigEndian.Uint16(data[2:4]), Flags: data[4]}
	if h.Flags&^knownFlags != 0 {
		return Header{}, nil, fmt.Errorf("%w: unknown flags %#02x", ErrFormat, h.Flags)
	}
	return h, data[HeaderSize:], nil
}
