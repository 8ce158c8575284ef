// Package codec is the one binary encoding of the project: CBOR in core
// deterministic form, behind a fixed five-byte header where it is persisted.
//
// Log entries, snapshot rows, digests and the messages between processes all
// go through it, so two replicas that hold equal values hold equal bytes. It
// must never accept what it would not write itself by accident: duplicate or
// unknown keys, tags, indefinite lengths, non-finite floats, invalid UTF-8 and
// trailing bytes are refused, and everything that can grow is bounded. It must
// never guess: what cannot be decoded is an error for the caller to judge.
//
// Start with Marshal and Unmarshal in codec.go; header.go has the header of
// persisted records and stream.go the length-delimited messages of a stream.
package codec
