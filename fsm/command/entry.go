package command

import (
	"errors"
	"fmt"

	"rcd/internal/codec"
)

// Bounds of one entry. A single command may be as large as MaxCommandBytes and
// then travels alone; smaller ones are combined up to MaxEntryBytes.
const (
	MaxCommandsPerEntry = 256
	MaxEntryBytes       = 128 << 10
	MaxCommandBytes     = 1 << 20
)

// ErrUndecodable means bytes of the log are not an entry of a format this
// build knows. A node that meets it must halt: going on would diverge.
var ErrUndecodable = errors.New("undecodable log entry")

// ErrUnknownKind means a mandatory command kind that this build does not know.
var ErrUnknownKind = errors.New("unknown mandatory command kind")

// Entry is the payload of one Raft log entry.
type Entry struct {
	Term     uint64   `cbor:"1,keyasint"` // the term its proposer believed in
	Stamp    int64    `cbor:"2,keyasint"` // Unix nanoseconds: wall clock at the epoch's start plus monotonic time since
	Commands [][]byte `cbor:"3,keyasint"` // each as Encode returned it
}

// EncodeEntry returns the bytes of an entry. The commands are copied.
func EncodeEntry(term uint64, stampUnixNano int64, commands [][]byte) ([]byte, error) {
	body, err := codec.Marshal(Entry{Term: term, Stamp: stampUnixNano, Commands: commands})
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	return codec.Seal(codec.Header{Kind: uint16(KindEntry), Flags: codec.FlagMandatory, Version: 1}, body), nil
}

// DecodeEntry returns the entry in data. Every error wraps ErrUndecodable.
func DecodeEntry(data []byte) (Entry, error) {
	h, body, err := codec.Open(data)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	if h.Kind != uint16(KindEntry) || h.Version != 1 {
		return Entry{}, fmt.Errorf("%w: kind %d version %d", ErrUndecodable, h.Kind, h.Version)
	}
	var e Entry
	if err := codec.Unmarshal(body, &e); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	return e, nil
}

// Request names an effect that must happen at most once. The zero value means
// that the command has no request ID.
type Request struct {
	Scope  string `cbor:"1,keyasint"` // identity of the caller
	ID     string `cbor:"2,keyasint"` // at most MaxRequestID bytes
	Digest []byte `cbor:"3,keyasint"` // SHA-256 of the request body
	// Strict refuses another body under the same ID (header Idempotency-Key);
	// without it the earlier result comes back whatever the body says.
	Strict bool `cbor:"4,keyasint"`
}

// MaxRequestID bounds the length of a request ID in bytes.
const MaxRequestID = 256

// Command is one command of an entry, decoded.
type Command struct {
	Kind    Kind
	Request Request
	// Also is a second request ID of the same command, or the zero value: a
	// submit may carry one in its header and one in its body.
	Also Request
	Body any // one of the pointer types in body.go
	// Skip is set for an optional kind that this build does not know: Body is
	// nil and the command changes nothing.
	Skip bool
}

type frame struct {
	Request *Request         `cbor:"1,keyasint"`
	Body    codec.RawMessage `cbor:"2,keyasint"`
	Also    *Request         `cbor:"3,keyasint,omitempty"`
}

// Encode returns the bytes of one command. Body must be the pointer type that
// belongs to a kind; anything else is an error, and so is a command above
// MaxCommandBytes (ErrTooLarge). What Decode would refuse is refused here
// (ErrUnencodable): in the log it would halt every node for good.
func Encode(request Request, body any) ([]byte, error) {
	return EncodeBoth(request, Request{}, body)
}

// EncodeBoth is Encode for a command with two request IDs; either may be zero.
func EncodeBoth(request, also Request, body any) ([]byte, error) {
	if request.ID == "" {
		request, also = also, Request{}
	}
	kind, ok := kindOf(body)
	if !ok {
		return nil, fmt.Errorf("encode command: no kind for %T", body)
	}
	raw, err := codec.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	f := frame{Body: raw}
	if request.ID != "" {
		f.Request = &request
	}
	if also.ID != "" {
		f.Also = &also
	}
	out, err := codec.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	sealed := codec.Seal(codec.Header{Kind: uint16(kind), Flags: codec.FlagMandatory, Version: 1}, out)
	if len(sealed) > MaxCommandBytes {
		return nil, ErrTooLarge
	}
	if _, err := Decode(sealed); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnencodable, kind, err)
	}
	return sealed, nil
}

// ErrUnencodable means a command that no node could decode: text that is not
// UTF-8, or a list or map above the bounds of the encoding.
var ErrUnencodable = errors.New("command cannot be encoded")

// ErrTooLarge means a command above MaxCommandBytes.
var ErrTooLarge = errors.New("command above 1 MiB")

// Decode returns the command in data. Errors wrap ErrUndecodable or, for a
// mandatory kind this build does not know, ErrUnknownKind.
func Decode(data []byte) (Command, error) {
	h, raw, err := codec.Open(data)
	if err != nil {
		return Command{}, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	kind := Kind(h.Kind)
	body := newBody(kind)
	if body == nil || h.Version != 1 {
		if h.Flags&codec.FlagMandatory != 0 {
			return Command{}, fmt.Errorf("%w: %d version %d", ErrUnknownKind, h.Kind, h.Version)
		}
		return Command{Kind: kind, Skip: true}, nil
	}
	var f frame
	if err := codec.Unmarshal(raw, &f); err != nil {
		return Command{}, fmt.Errorf("%w: %s: %w", ErrUndecodable, kind, err)
	}
	if err := codec.Unmarshal(f.Body, body); err != nil {
		return Command{}, fmt.Errorf("%w: %s: %w", ErrUndecodable, kind, err)
	}
	c := Command{Kind: kind, Body: body}
	if f.Request != nil {
		c.Request = *f.Request
	}
	if f.Also != nil {
		c.Also = *f.Also
	}
	return c, nil
}
