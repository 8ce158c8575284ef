package copies

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// slack is the part of the limit that one eviction frees beyond what is needed, so that not every new copy looks at all others.
const slack = 64

// Usage is how a store stands.
type Usage struct {
	Bytes, Limit     int64
	Copies, Complete int
	// Stopped says, in a sentence, why nothing is copied now; "" while it is.
	Stopped string
}

// Stopped is Usage's, for whoever asks often.
func (s *Store) Stopped() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped()
}

func (s *Store) stopped() string {
	if s.look(); s.low != "" {
		return s.low
	}
	return s.failed
}

// Usage tells how the store stands. It looks at every copy.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Usage{Stopped: s.stopped(), Bytes: s.bytes, Limit: s.limit, Copies: len(s.copies)}
	for _, h := range s.copies {
		if h.complete && !h.damaged {
			u.Complete++
		}
	}
	return u
}

// look notes whether the disk is below its watermark; mu is held.
func (s *Store) look() {
	if time.Since(s.stat) < statEvery {
		return
	}
	s.stat = time.Now()
	size, free, err := s.options.Disk(s.options.Dir)
	if err != nil {
		s.low = err.Error()
		return
	}
	s.limit = s.options.Limit.of(size)
	if least := watermark(size); free < least {
		s.low = fmt.Sprintf("only %d MB are free on the disk of %s, and copies of output leave %d MB: make room, or give --output-copies less", free>>20, s.options.Dir, least>>20)
		return
	}
	s.low = ""
}

// Fits reports whether a copy of an output of so many bytes is worth to be begun: not if it would be the first to go. endedMS is when its job ended.
func (s *Store) Fits(endedMS int64, length int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	if s.low != "" {
		return false
	}
	if s.bytes+min(length, s.options.PerJob)+overhead <= s.limit {
		return true
	}
	if s.oldest == nil {
		for _, h := range s.copies {
			if h.endedMS > 0 && (s.oldest == nil || older(h, s.oldest) < 0) {
				s.oldest = h
			}
		}
	}
	return s.oldest != nil && (endedMS == 0 || endedMS > s.oldest.endedMS)
}

// Ended notes when the job of a copy ended, which makes it one that may go.
func (s *Store) Ended(job uint64, ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.copies[job]; h != nil && h.endedMS == 0 {
		h.endedMS = ms
		s.oldest = nil
	}
}

func older(a, b *held) int {
	return cmp.Or(cmp.Compare(a.endedMS, b.endedMS), cmp.Compare(a.key.Job, b.key.Job))
}

// evict removes the copies of the jobs that ended first until all fit the limit, but not the one that is being written; mu is held.
func (s *Store) evict(but *held) {
	if s.bytes <= s.limit {
		return
	}
	var ended []*held
	for _, h := range s.copies {
		if h.endedMS > 0 && h != but {
			ended = append(ended, h)
		}
	}
	slices.SortFunc(ended, older)
	for _, h := range ended {
		if s.bytes <= s.limit-s.limit/slack {
			break
		}
		s.remove(h)
	}
	s.oldest = nil
}

// take makes room for n bytes more of a copy.
func (s *Store) take(h *held, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.gone {
		return ErrNone
	}
	if s.look(); s.low != "" {
		return fmt.Errorf("%w: %s", ErrNoRoom, s.low)
	}
	h.bytes += n
	s.bytes += n
	if s.evict(h); s.bytes > s.limit {
		h.bytes -= n
		s.bytes -= n
		s.failed = fmt.Sprintf("the output of jobs that have not ended takes all of the %d MB that --output-copies allows", s.limit>>20)
		return fmt.Errorf("%w: %s", ErrNoRoom, s.failed)
	}
	return nil
}
