package fsm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"rcd/internal/codec"
)

// Digest is the sum over all rows of the first 16 bytes of
// SHA-256(table, key length, key, row), as two 64-bit words added without
// carry between them. Equal states have equal digests whatever the order in
// which they came to be; a row is taken out by subtracting its share. It finds
// divergence and damage; it is not made against somebody who picks rows.
type Digest struct{ high, low uint64 }

// String returns 32 hexadecimal digits.
func (d Digest) String() string {
	b := d.Bytes()
	return hex.EncodeToString(b[:])
}

// Bytes returns the digest, most significant byte first.
func (d Digest) Bytes() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], d.high)
	binary.BigEndian.PutUint64(b[8:], d.low)
	return b
}

func digestFrom(b []byte) (Digest, error) {
	if len(b) != 16 {
		return Digest{}, fmt.Errorf("a digest has 16 bytes, not %d", len(b))
	}
	return Digest{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, nil
}

func (d *Digest) add(s Digest) { d.high += s.high; d.low += s.low }
func (d *Digest) sub(s Digest) { d.high -= s.high; d.low -= s.low }

// tableID names a table in digests and snapshots: append only.
type tableID uint8

const (
	tableMeta     tableID = 1
	tableSettings tableID = 2
	tableJobs     tableID = 3
	tableLeases   tableID = 4
	tableDevices  tableID = 5
	tableAgents   tableID = 6
	tableRequests tableID = 7
	tableSheets   tableID = 8
	tableMembers  tableID = 9
	tableUnserved tableID = 10

	lastTable = tableUnserved
)

// rowSum returns the share of one row in the digest.
func rowSum(id tableID, key, row []byte) Digest {
	h := sha256.New()
	var head [5]byte
	head[0] = byte(id)
	binary.BigEndian.PutUint32(head[1:], uint32(len(key)))
	h.Write(head[:])
	h.Write(key)
	h.Write(row)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return Digest{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])}
}

// hasher is rowSum for row after row, in one buffer.
type hasher struct{ buf bytes.Buffer }

func hashRow[K cmp.Ordered](h *hasher, id tableID, key K, row any) Digest {
	const headSize = 5
	h.buf.Reset()
	head := append(h.buf.AvailableBuffer(), byte(id), 0, 0, 0, 0)
	head = appendKey(head, key)
	binary.BigEndian.PutUint32(head[1:], uint32(len(head)-headSize))
	h.buf.Write(head)
	codec.MustMarshalTo(&h.buf, row)
	sum := sha256.Sum256(h.buf.Bytes())
	return Digest{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])}
}

// keyBytes returns the form of a key in the digest: numbers big-endian, text
// as it is.
func keyBytes[K cmp.Ordered](key K) []byte { return appendKey(nil, key) }

func appendKey[K cmp.Ordered](to []byte, key K) []byte {
	switch k := any(key).(type) {
	case uint64:
		return binary.BigEndian.AppendUint64(to, k)
	case string:
		return append(to, k...)
	}
	panic(fmt.Sprintf("fsm: no key form for %T", key))
}
