package spool

import (
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
)

// Resume goes on with a spool whose Writer is gone, as Create would have left it: at its length, under the same rule of what is kept, with a torn tail
// cut off. An empty directory, or none, is an empty output. It does not sync. The spool of a job is never resumed, since its output went on meanwhile;
// this is for copies, which fetch the rest.
func Resume(dir string, bound int64) (*Writer, error) {
	w, err := newWriter(dir, bound)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("resume spool: %w", err)
	}
	starts, err := segmentStarts(dir)
	if err != nil {
		return nil, err
	}
	if w.gaps, err = readGaps(dir); err != nil {
		return nil, err
	}
	var left []span
	for len(starts) > 0 {
		last := len(starts) - 1
		name := filepath.Join(dir, segmentName(starts[last]))
		remains, digest, err := measureSegment(name, starts[last], false)
		if err == nil {
			left = []span{{from: starts[last], to: remains.Length}}
			w.length, w.digest = remains.Length, digest
			w.current = &openSegment{name: name, start: starts[last]}
			break
		}
		if !errors.Is(err, errFormat) {
			return nil, err
		}
		// Nothing in it can be read, and its name is in the way.
		if err := os.Remove(name); err != nil {
			return nil, fmt.Errorf("resume spool: %w", err)
		}
		starts = starts[:last]
	}
	for i := len(starts) - 2; i >= 0; i-- {
		left = append(left, span{from: starts[i], to: starts[i+1]})
	}
	slices.Reverse(left)
	for i := range left {
		info, err := os.Stat(filepath.Join(dir, segmentName(left[i].from)))
		if err != nil {
			return nil, fmt.Errorf("resume spool: %w", err)
		}
		left[i].size = info.Size()
		if w.current != nil {
			w.current.size = info.Size() // the last one's stays
		}
	}
	w.kept.restore(left)
	for _, g := range w.gaps {
		if g.To > w.length {
			w.leap(g.To)
		}
	}
	return w, nil
}

// Skip says that the next bytes of the output, up to an offset, exist nowhere any more: they are a Gap with this cause, and from then on the digest is
// not known. An error means that the disk does not take it, and nothing has changed.
func (w *Writer) Skip(to int64, cause string) error {
	if to <= w.length {
		return nil
	}
	gaps, stale := slices.Clone(w.gaps), w.gapsStale
	w.miss(w.length, to, cause)
	if err := w.writeGaps(); err != nil {
		w.gaps, w.gapsStale = gaps, stale
		return err
	}
	w.leap(to)
	return nil
}

// leap goes on at another offset.
func (w *Writer) leap(to int64) {
	if w.current != nil {
		w.closeSegment()
	}
	w.length, w.digest = to, hash.Hash(nil)
}

// Pause gives the open file back until something is appended again.
func (w *Writer) Pause() {
	if w.current != nil && w.current.file != nil {
		_ = w.current.file.Close()
		w.current.file = nil
	}
}

// Size returns what the spool takes on disk in bytes, record headers included.
func (w *Writer) Size() int64 { return w.kept.headSize + w.kept.tailSize }

// HasGaps reports whether anything of the output is missing so far.
func (w *Writer) HasGaps() bool { return len(w.gaps) > 0 }
