package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Stream says where a record came from.
type Stream uint8

// The streams of a job. Numbers are on disk.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Gap is a range of offsets that exists nowhere any more.
type Gap struct {
	From, To int64 // From is missing, To is there or is the end
	Cause    string
}

// Causes of a gap. Readers show them to people.
const (
	CauseBound   = "spool bound"
	CauseWrite   = "spool write failed"
	CauseLost    = "lost with its writer"
	CauseCorrupt = "spool corrupt"
)

// A segment begins with a header of 160 bytes, big endian:
//
//	0   8  "RCSPOOL" and the format version, 1
//	8   8  offset of the first byte
//	16  2  length of the digest state, 0 if it is not known
//	18  6  zero
//	24 128 state of the SHA-256 over everything before this segment, dropped ranges included, as crypto/sha256 marshals it
//	152 4  CRC-32C of the above
//	156 4  zero
//
// and goes on with records:
//
//	0   4  length of the payload, 1 to 65536
//	4   1  stream
//	5   3  zero
//	8   8  offset of the first byte of the payload
//	16  4  CRC-32C of the above and the payload
//	20     payload
//
// The offset in each record makes a record that was left over from something else visible.
const (
	segmentHeaderSize = 160
	stateRoom         = 128
	recordHeaderSize  = 20
	maxPayload        = 64 << 10

	segmentSuffix = ".seg"
	gapsName      = "gaps"
	tempSuffix    = ".tmp"
)

var (
	segmentMagic = [8]byte{'R', 'C', 'S', 'P', 'O', 'O', 'L', 1}
	gapsMagic    = [8]byte{'R', 'C', 'G', 'A', 'P', 'S', 0, 1}

	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	// errTorn says that the bytes are not, or not yet, a whole record.
	errTorn = errors.New("no whole record")
	// errFormat says that a file is not what its name says.
	errFormat = errors.New("not a spool file of this version")
)

func segmentName(start int64) string { return fmt.Sprintf("%020d%s", start, segmentSuffix) }

// segmentStarts lists the first offsets of the segments in dir, ascending.
func segmentStarts(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list spool: %w", err)
	}
	var starts []int64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		if !ok {
			continue
		}
		if start, err := strconv.ParseInt(digits, 10, 64); err == nil && start >= 0 {
			starts = append(starts, start)
		}
	}
	slices.Sort(starts)
	return starts, nil
}

func encodeSegmentHeader(start int64, state []byte) []byte {
	b := make([]byte, segmentHeaderSize)
	copy(b, segmentMagic[:])
	binary.BigEndian.PutUint64(b[8:], uint64(start))
	if len(state) <= stateRoom {
		binary.BigEndian.PutUint16(b[16:], uint16(len(state)))
		copy(b[24:], state)
	}
	binary.BigEndian.PutUint32(b[152:], crc32.Checksum(b[:152], castagnoli))
	return b
}

func decodeSegmentHeader(b []byte) (start int64, state []byte, err error) {
	if len(b) < segmentHeaderSize || !bytes.Equal(b[:8], segmentMagic[:]) {
		return 0, nil, errFormat
	}
	if binary.BigEndian.Uint32(b[152:]) != crc32.Checksum(b[:152], castagnoli) {
		return 0, nil, fmt.Errorf("%w: checksum of the header", errFormat)
	}
	n := int(binary.BigEndian.Uint16(b[16:]))
	if n > stateRoom {
		return 0, nil, fmt.Errorf("%w: digest state of %d bytes", errFormat, n)
	}
	return int64(binary.BigEndian.Uint64(b[8:])), b[24 : 24+n], nil
}

// appendRecord encodes one record behind buf. The payload has 1 to maxPayload bytes.
func appendRecord(buf []byte, offset int64, stream Stream, payload []byte) []byte {
	at := len(buf)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(payload)))
	buf = append(buf, byte(stream), 0, 0, 0)
	buf = binary.BigEndian.AppendUint64(buf, uint64(offset))
	sum := crc32.Update(crc32.Checksum(buf[at:], castagnoli), castagnoli, payload)
	buf = binary.BigEndian.AppendUint32(buf, sum)
	return append(buf, payload...)
}

// decodeRecord reads the record that begins b and must begin at offset. errTorn with short true means that b ends inside the record; with short
// false that these bytes will never be a record. size counts header and payload; the payload is part of b.
func decodeRecord(b []byte, offset int64) (stream Stream, payload []byte, size int, short bool, err error) {
	if len(b) < recordHeaderSize {
		return 0, nil, 0, true, errTorn
	}
	n := int(binary.BigEndian.Uint32(b))
	if n < 1 || n > maxPayload || int64(binary.BigEndian.Uint64(b[8:])) != offset {
		return 0, nil, 0, false, errTorn
	}
	if len(b) < recordHeaderSize+n {
		return 0, nil, 0, true, errTorn
	}
	payload = b[recordHeaderSize : recordHeaderSize+n]
	sum := crc32.Update(crc32.Checksum(b[:16], castagnoli), castagnoli, payload)
	if binary.BigEndian.Uint32(b[16:]) != sum {
		return 0, nil, 0, false, errTorn
	}
	return Stream(b[4]), payload, recordHeaderSize + n, false, nil
}

// The file of gaps: magic and version, the number of gaps (4), for each From (8), To (8), length of the cause (2) and the cause, and a CRC-32C of
// everything before it (4). It is replaced as a whole.
func encodeGaps(gaps []Gap) []byte {
	b := append([]byte(nil), gapsMagic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(gaps)))
	for _, g := range gaps {
		b = binary.BigEndian.AppendUint64(b, uint64(g.From))
		b = binary.BigEndian.AppendUint64(b, uint64(g.To))
		b = binary.BigEndian.AppendUint16(b, uint16(len(g.Cause)))
		b = append(b, g.Cause...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeGaps(b []byte) ([]Gap, error) {
	if len(b) < 16 || !bytes.Equal(b[:8], gapsMagic[:]) {
		return nil, errFormat
	}
	body := b[:len(b)-4]
	if binary.BigEndian.Uint32(b[len(b)-4:]) != crc32.Checksum(body, castagnoli) {
		return nil, fmt.Errorf("%w: checksum of the gaps", errFormat)
	}
	n := binary.BigEndian.Uint32(body[8:])
	body = body[12:]
	var gaps []Gap
	for range n {
		if len(body) < 18 {
			return nil, errFormat
		}
		g := Gap{From: int64(binary.BigEndian.Uint64(body)), To: int64(binary.BigEndian.Uint64(body[8:]))}
		size := int(binary.BigEndian.Uint16(body[16:]))
		if len(body) < 18+size {
			return nil, errFormat
		}
		g.Cause = string(body[18 : 18+size])
		gaps, body = append(gaps, g), body[18+size:]
	}
	return gaps, nil
}

// readGaps returns the recorded gaps of a spool, none if there is no file.
func readGaps(dir string) ([]Gap, error) {
	raw, err := os.ReadFile(filepath.Join(dir, gapsName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read gaps: %w", err)
	}
	return decodeGaps(raw)
}
