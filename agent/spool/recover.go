package spool

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// Remains is what a Writer that ended without Close has left.
type Remains struct {
	Length int64
	Digest string // as Writer.Digest; empty if it cannot be known
	Cut    int64  // bytes of a torn record that were cut off the end of the last segment
}

// Recover measures a spool whose Writer is gone for good, cuts a torn tail and syncs. A missing directory is an empty output. What a failing disk
// had refused at the very end is not part of the length: nobody is left who knows of it.
func Recover(dir string) (Remains, error) {
	starts, err := segmentStarts(dir)
	if errors.Is(err, os.ErrNotExist) {
		return Remains{Digest: hex.EncodeToString(sha256.New().Sum(nil))}, nil
	}
	if err != nil {
		return Remains{}, err
	}
	gaps, err := readGaps(dir)
	if err != nil && !errors.Is(err, errFormat) {
		return Remains{}, err
	}
	left := Remains{Digest: hex.EncodeToString(sha256.New().Sum(nil))}
	for i := len(starts) - 1; i >= 0; i-- {
		left, err = recoverSegment(filepath.Join(dir, segmentName(starts[i])), starts[i])
		if err == nil {
			break
		}
		if !errors.Is(err, errFormat) {
			return Remains{}, err
		}
		// A header torn by a power cut: the segment holds nothing that can be read.
		left = Remains{}
	}
	for _, g := range gaps {
		if g.To > left.Length {
			left.Length, left.Digest = g.To, ""
		}
	}
	if err := syncPath(dir); err != nil {
		return Remains{}, fmt.Errorf("recover spool: %w", err)
	}
	return left, nil
}

// recoverSegment measures the last segment, cuts it and syncs. errFormat if it has no header.
func recoverSegment(path string, start int64) (Remains, error) {
	left, digest, err := measureSegment(path, start, true)
	if digest != nil {
		left.Digest = hex.EncodeToString(digest.Sum(nil))
	}
	return left, err
}

// measureSegment is recoverSegment with the digest, nil if it cannot be known, as something to go on with.
func measureSegment(path string, start int64, sync bool) (Remains, hash.Hash, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return Remains{}, nil, fmt.Errorf("recover spool: %w", err)
	}
	defer func() { _ = file.Close() }()
	header := make([]byte, segmentHeaderSize)
	if _, err := file.ReadAt(header, 0); err != nil && !errors.Is(err, io.EOF) {
		return Remains{}, nil, fmt.Errorf("recover spool: %w", err)
	}
	at, state, err := decodeSegmentHeader(header)
	if err != nil {
		return Remains{}, nil, err
	}
	if at != start {
		return Remains{}, nil, fmt.Errorf("%w: %q begins at %d", errFormat, path, at)
	}
	digest := resume(start, state)
	c := &cursor{file: file, start: start, offset: start, pos: segmentHeaderSize}
	for {
		rec, err := c.next(c.offset)
		if errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return Remains{}, nil, err
		}
		if digest != nil {
			_, _ = digest.Write(rec.Data)
		}
	}
	info, err := file.Stat()
	if err != nil {
		return Remains{}, nil, fmt.Errorf("recover spool: %w", err)
	}
	left := Remains{Length: c.offset, Cut: info.Size() - c.pos}
	if left.Cut > 0 {
		if err := file.Truncate(c.pos); err != nil {
			return Remains{}, nil, fmt.Errorf("recover spool: cut torn record: %w", err)
		}
	}
	if sync {
		if err := file.Sync(); err != nil {
			return Remains{}, nil, fmt.Errorf("recover spool: %w", err)
		}
	}
	return left, digest, nil
}

// resume takes a digest up where a segment began; nil if that is not known.
func resume(start int64, state []byte) hash.Hash {
	digest := sha256.New()
	if start == 0 {
		return digest
	}
	if digest.(encoding.BinaryUnmarshaler).UnmarshalBinary(state) != nil {
		return nil
	}
	return digest
}
