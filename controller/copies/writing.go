package copies

import (
	"context"
	"errors"
	"fmt"
	"os"

	"rcd/agent/spool"
	"rcd/relay"
)

// recordCost is what a record takes beside its bytes, at the most.
const recordCost = 32

// Writing is the claim to write one copy. It is for one goroutine, which closes it.
type Writing struct {
	store *Store
	held  *held
}

// Begin claims the copy of an output, begun or not. What is there under an earlier lease is removed, and so is a damaged copy. Errors: ErrBusy, ErrNone
// if there is a copy of a later lease, or what the disk answered.
func (s *Store) Begin(key Key) (*Writing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.copies[key.Job]
	switch {
	case s.claims[key.Job]:
		return nil, ErrBusy
	case h != nil && h.key.Lease > key.Lease:
		return nil, fmt.Errorf("%w: lease %d is not the latest", ErrNone, key.Lease)
	case h != nil && (h.key.Lease < key.Lease || h.damaged):
		s.remove(h)
		h = nil
	}
	if h == nil {
		if s.look(); s.low != "" {
			return nil, fmt.Errorf("%w: %s", ErrNoRoom, s.low)
		}
		dir := s.dirOf(key.Job)
		err := os.RemoveAll(dir) // what remove could not set aside is not gone on with
		var w *spool.Writer
		if err == nil {
			w, err = spool.Resume(dir, s.options.PerJob)
		}
		if err == nil {
			err = s.header(key).write(dir)
		}
		if err != nil {
			s.failed = fmt.Sprintf("the disk of %s takes no copies of output: %v", s.options.Dir, err)
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		h = &held{key: key, writer: w, bytes: overhead}
		s.copies[key.Job] = h
		s.bytes += h.bytes
	}
	h.claimed, s.claims[key.Job] = true, true
	return &Writing{store: s, held: h}, nil
}

func (s *Store) header(key Key) header {
	return header{Version: headerVersion, Cluster: s.options.Cluster, Generation: s.options.Generation, Job: key.Job, Lease: key.Lease}
}

// Close ends the claim; what was taken stays.
func (w *Writing) Close() {
	if w.held.writer != nil {
		w.held.writer.Pause()
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.held.claimed = false
	delete(w.store.claims, w.held.key.Job)
	w.held.wake()
}

// Length returns where the next record begins.
func (w *Writing) Length() int64 {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.held.length
}

// Take implements relay.Sink for data and gaps; an End is the caller's to judge. After an error some of the record may have been taken: Length says.
// What does not begin there is refused: the copy may have been removed, and begun anew, since whoever writes it asked for the rest of it.
func (w *Writing) Take(_ context.Context, record relay.Record) error {
	switch r := record.(type) {
	case relay.Data:
		if err := w.due(r.Offset); err != nil {
			return err
		}
		if err := w.store.take(w.held, int64(len(r.Bytes))+recordCost); err != nil {
			return err
		}
		_, err := w.held.writer.Offer(spool.Stream(r.Stream), r.Bytes)
		return w.taken(err)
	case relay.Gap:
		if err := w.due(r.From); err != nil {
			return err
		}
		if err := w.store.take(w.held, 0); err != nil {
			return err
		}
		return w.taken(w.held.writer.Skip(r.To, causeOf(r.Cause)))
	}
	return nil
}

// due refuses what is not the next of the copy, and anything more of one that is complete.
func (w *Writing) due(offset int64) error {
	if w.held.writer == nil || offset != w.held.writer.Length() {
		return fmt.Errorf("%w: offset %d where %d is next", ErrNotNext, offset, w.Length())
	}
	return nil
}

// causeOf tells what was lost before it came here from what is lost here, which readers look for.
func causeOf(cause string) string {
	if cause == spool.CauseCorrupt || cause == spool.CauseLost {
		return cause + " on its host"
	}
	return cause
}

// taken publishes how far the copy is now.
func (w *Writing) taken(err error) error {
	s, h := w.store, w.held
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.gone {
		return ErrNone // what was written is removed with the rest, or left behind for the next start to remove
	}
	s.failed = ""
	if err != nil {
		s.failed = fmt.Sprintf("the disk of %s takes no copies of output: %v", s.options.Dir, err)
	}
	bytes := h.writer.Size() + overhead // the bound may have dropped some
	s.bytes += bytes - h.bytes
	h.bytes, h.length = bytes, h.writer.Length()
	h.wake()
	return err
}

// Complete says that the copy has all there is: its job ended at endedMS, with as many bytes as are here and this digest, "" if that is not known. A
// copy that says otherwise is damaged and removed. It is the last call before Close.
func (w *Writing) Complete(digest string, endedMS int64) error {
	s, h := w.store, w.held
	if h.complete {
		return nil
	}
	dir := s.dirOf(h.key.Job)
	if own := h.writer.Digest(); own != "" && digest != "" && own != digest {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !h.gone {
			s.remove(h)
		}
		return fmt.Errorf("%w: its digest is %s and not %s", ErrDamaged, own, digest)
	}
	h.writer.Pause()
	bytes, err := segmentBytes(dir)
	if err != nil {
		return err
	}
	head := s.header(h.key)
	head.Complete, head.Length, head.Digest, head.DiskBytes, head.EndedMS = true, h.writer.Length(), digest, bytes, endedMS
	head.Gaps = h.writer.HasGaps()
	if err := head.write(dir); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.complete, h.gaps, h.endedMS, h.writer = true, head.Gaps, endedMS, nil
	s.oldest = nil
	h.wake()
	return nil
}
