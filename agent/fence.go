package agent

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// fence is what keeps a job from being started twice or after a later lease.
// It outlives every job's record.
type fence struct {
	// Begun is the highest lease begun for each device, by name.
	Begun map[string]uint64 `cbor:"1,keyasint"`
	// Inside are the jobs that have begun inside a hold, by device. It is left out
	// while there are none: an agent of an earlier release refuses a fence with it,
	// and makes one of the jobs' records.
	Inside map[string]begunInside `cbor:"2,keyasint,omitempty"`
}

// begunInside are the jobs that have begun under a lease beside its own one.
type begunInside struct {
	// Lease may be above what has begun: a job inside may be killed before its
	// hold comes.
	Lease uint64 `cbor:"1,keyasint"`
	// Floor: this job and all before it count as begun.
	Floor uint64   `cbor:"2,keyasint"`
	Jobs  []uint64 `cbor:"3,keyasint"` // above Floor, sorted
}

// maxInside bounds the jobs that are told apart of one lease. Those below the
// floor that never came are not started any more; there are none, for the lease
// table has 64 live jobs inside a hold at most, and numbers rise.
const maxInside = 256

func (b begunInside) has(job uint64) bool {
	_, found := slices.BinarySearch(b.Jobs, job)
	return found || job <= b.Floor
}

// with returns the set with a job added.
func (b begunInside) with(job uint64) begunInside {
	at, found := slices.BinarySearch(b.Jobs, job)
	if found || job <= b.Floor {
		return b
	}
	b.Jobs = slices.Insert(slices.Clone(b.Jobs), at, job)
	if over := len(b.Jobs) - maxInside; over > 0 {
		b.Floor, b.Jobs = b.Jobs[over-1], b.Jobs[over:]
	}
	return b
}

// begun returns the highest lease begun for a device.
func (s *state) begun(device string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fence.Begun[device]
}

// begunDevices returns the names of all devices on which a lease has begun, in the
// order of their numbers.
func (s *state) begunDevices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.fence.Begun), byNumber)
}

// fenceVerdict says whether a job may still begin.
type fenceVerdict int

const (
	fenceOpen  fenceVerdict = iota // the lease is above everything begun, or the job one that may begin inside it
	fenceBegun                     // begun already, on one of the devices at least
	fenceStale                     // a later lease has begun
)

// claim is what is to begin: a lease with its own job, or a job inside it.
type claim struct {
	lease  uint64
	inside uint64 // the number of a job inside; 0: the lease's own
}

func (j *job) claim() claim {
	if j.hold == 0 {
		return claim{lease: j.lease}
	}
	return claim{j.lease, j.job}
}

// look compares a claim with what its devices have begun.
func (s *state) look(devices []string, c claim) fenceVerdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fence.look(devices, c)
}

func (f fence) look(devices []string, c claim) fenceVerdict {
	verdict := fenceOpen
	for _, d := range devices {
		begun, inside := f.Begun[d], f.Inside[d]
		switch {
		case c.lease < begun || c.lease < inside.Lease:
			return fenceStale
		case c.inside == 0 && c.lease == begun, c.inside != 0 && c.lease == inside.Lease && inside.has(c.inside):
			verdict = fenceBegun
		}
	}
	return verdict
}

// clone returns a copy to be changed.
func (f fence) clone() fence {
	next := fence{Begun: make(map[string]uint64, len(f.Begun)+1), Inside: maps.Clone(f.Inside)}
	maps.Copy(next.Begun, f.Begun)
	return next
}

// raised returns the fence with a claim begun on devices.
func (f fence) raised(devices []string, c claim) fence {
	next := f.clone()
	for _, d := range devices {
		inside := next.Inside[d]
		switch {
		case c.inside != 0:
			if inside.Lease != c.lease {
				inside = begunInside{Lease: c.lease}
			}
			if next.Inside == nil {
				next.Inside = map[string]begunInside{}
			}
			next.Inside[d] = inside.with(c.inside)
		default:
			next.Begun[d] = c.lease
			if inside.Lease < c.lease {
				delete(next.Inside, d)
			}
		}
	}
	return next
}

// begin puts down that a claim begins on devices, if the fence is open. With
// fenceOpen and no error it is this caller's alone to start.
func (s *state) begin(devices []string, c claim) (fenceVerdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.fence.look(devices, c); v != fenceOpen {
		return v, nil
	}
	next := s.fence.raised(devices, c)
	if err := s.writeFence(next); err != nil {
		return fenceOpen, err
	}
	s.fence = next
	return fenceOpen, nil
}

// raise is begin for what is known to have begun. After an error the fence is
// that high for as long as this process runs.
func (s *state) raise(devices []string, c claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.fence
	for _, d := range devices {
		if next.Begun[d] < c.lease { // a job inside has begun only after its lease
			next = next.raised([]string{d}, claim{lease: c.lease})
		}
		if c.inside != 0 && next.look([]string{d}, c) == fenceOpen {
			next = next.raised([]string{d}, c)
		}
	}
	if maps.Equal(next.Begun, s.fence.Begun) && maps.EqualFunc(next.Inside, s.fence.Inside, begunInside.equal) {
		return nil
	}
	s.fence = next
	return s.writeFence(next)
}

func (b begunInside) equal(c begunInside) bool {
	return b.Lease == c.Lease && b.Floor == c.Floor && slices.Equal(b.Jobs, c.Jobs)
}

// unbegin takes back what is known not to have begun: the fence knows nothing of
// a job inside any more, or is lowered below the lease of another one. inside: it
// is one, even if it has not come to the fence. After an error that is so for as
// long as this process runs, or until something begins.
func (s *state) unbegin(k key, inside bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := s.fence.clone(), false
	for d, in := range s.fence.Inside {
		if at, found := slices.BinarySearch(in.Jobs, k.job); found && in.Lease == k.lease {
			in.Jobs = slices.Delete(slices.Clone(in.Jobs), at, at+1)
			next.Inside[d], changed, inside = in, true, true
		}
	}
	for d, lease := range s.fence.Begun {
		if !inside && lease == k.lease {
			next.Begun[d], changed = lease-1, true
		}
	}
	if !changed {
		return nil
	}
	s.fence = next
	return s.writeFence(next)
}

// writeFence puts a fence on disk. The caller holds mu.
func (s *state) writeFence(f fence) error {
	if err := writeRecord(filepath.Join(s.dir, fenceFile), kindFence, f); err != nil {
		return fmt.Errorf("write fence: %w", err)
	}
	return nil
}
