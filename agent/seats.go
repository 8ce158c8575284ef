package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rcd/agent/shim"
	"rcd/model"
)

// The reason of a job that ended because nobody was attached to its terminal, or
// to its pipe, begins with one of these.
const (
	reasonUnattended     = "terminal unattended for "
	reasonUnattendedPipe = "pipe unattended for "
)

// seats is who is attached to one job, guarded by agent.mu.
type seats struct {
	readers int       // streams that read, the writers' included
	writers int       // streams that have the input, or want it
	seen    int64     // how far those have read who only look on
	empty   time.Time // since when nobody is attached
	changed chan struct{}
}

// seatsOf returns the seats of a job, which it has from the first look on until
// it has ended and nobody is attached. The caller holds mu.
func (a *agent) seatsOf(job uint64) *seats {
	s := a.seats[job]
	if s == nil {
		if a.seats == nil {
			a.seats = map[uint64]*seats{}
		}
		s = &seats{empty: time.Now(), changed: make(chan struct{})}
		a.seats[job] = s
	}
	return s
}

// sit counts a stream in that is attached to a job, and returns how it leaves.
func (a *agent) sit(job uint64, writes bool) (leave func()) {
	move := func(by int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		s := a.seatsOf(job)
		s.readers += by
		if writes {
			s.writers += by
		}
		if s.readers == 0 {
			s.empty = time.Now()
			if !a.supervises(job) {
				delete(a.seats, job)
			}
		}
		close(s.changed)
		s.changed = make(chan struct{})
	}
	move(1)
	return func() { move(-1) }
}

// supervises reports whether a job is here and has not ended. The caller holds
// mu.
func (a *agent) supervises(job uint64) bool {
	for _, j := range a.jobs {
		if j.key.job == job && j.outcome == nil {
			return true
		}
	}
	return false
}

// lookedOn notes how far one has read who only looks on, and returns how far
// any of them has for the job to go on by, 0 while somebody writes to it.
func (a *agent) lookedOn(job uint64, offset int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.seats[job]
	if s == nil {
		return 0
	}
	if s.seen = max(s.seen, offset); s.writers > 0 {
		return 0
	}
	return s.seen
}

// attend ends a job on a terminal, or on a pipe that asks for it, to which
// nobody has been attached for too long, counted from its start, or from the
// agent's. It returns when the job has ended, is being ended, or the agent
// stops; at once for another job.
func (a *agent) attend(j *job, h *shim.Handle) {
	patience := detachTimeout(h.Spec())
	if patience == 0 {
		return
	}
	reason := reasonUnattended
	if h.Spec().Stdio == shim.StdioPipe {
		reason = reasonUnattendedPipe
	}
	defer a.leaveEmpty(j.key.job)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		a.mu.Lock()
		s := a.seatsOf(j.key.job)
		changed := s.changed
		var due <-chan time.Time
		if s.readers == 0 {
			left := patience - time.Since(s.empty)
			if left <= 0 {
				a.kill(j, fmt.Sprint(reason, patience))
				a.mu.Unlock()
				return
			}
			timer.Reset(left)
			due = timer.C
		}
		a.mu.Unlock()
		select {
		case <-changed:
		case <-due:
		case <-h.Done():
			return
		case <-a.ctx.Done():
			return
		}
	}
}

// leaveEmpty forgets the seats of a job that has ended.
func (a *agent) leaveEmpty(job uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.seats[job]; s != nil && s.readers == 0 {
		delete(a.seats, job)
	}
}

// detachTimeout returns for how long a job may go unattended, 0 for ever. A
// terminal has a default; a pipe has not, for the output of one may be read at
// any time.
func detachTimeout(spec shim.Spec) time.Duration {
	if spec.Stdio == shim.StdioLog {
		return 0
	}
	for _, entry := range spec.Env {
		if text, ok := strings.CutPrefix(entry, model.DetachTimeoutEnv+"="); ok {
			if d, err := model.DetachTimeout(text); err == nil {
				return d
			}
		}
	}
	if spec.Stdio == shim.StdioPipe {
		return 0
	}
	return model.DefaultDetachTimeout
}

// waitOpened waits for the source's handle.
func (o *output) waitOpened(ctx context.Context) (*shim.Handle, bool) {
	select {
	case <-o.opened:
		return o.handle, true
	case <-ctx.Done():
		return nil, false
	}
}
