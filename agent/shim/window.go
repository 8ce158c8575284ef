package shim

import (
	"sync"
	"time"
)

const (
	// outputWindow is how much of a terminal's or a pipe's output may wait for its readers before the job is held back (DESIGN section 7: bulk windows are
	// 1 to 4 MiB). What stands in the kernel's buffers at that moment comes on top.
	outputWindow = 1 << 20
	// tellEvery is how far the readers get before the shim is told. It must be well below the window, or the job would stand still without need.
	tellEvery = outputWindow / 4
	// stowPause lies between two tries to store what must not be dropped on a disk that does not take it.
	stowPause = 100 * time.Millisecond
)

// readers is how far those have got who read a job's output, for a job that is held back by them.
type readers struct {
	mu       sync.Mutex
	consumed int64  // guarded by mu; everything before it has been read
	wake     func() // guarded by mu; called when consumed has grown, nil for nobody
}

// advance notes that everything before offset has been read.
func (r *readers) advance(offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset <= r.consumed {
		return
	}
	r.consumed = offset
	if r.wake != nil {
		r.wake()
	}
}

func (r *readers) at() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.consumed
}

func (r *readers) onAdvance(wake func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = wake
}

// Consumed says that everything before offset of the output has reached whoever reads it, so that a terminal or pipe job may say more: one that nobody
// reads is held back after 1 MiB. The highest offset said counts. It returns at once; without effect for a log job, which is never held back.
func (h *Handle) Consumed(offset int64) {
	if h.order.Spec.Stdio == StdioLog {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if offset <= h.consumed {
		return
	}
	h.consumed = offset
	if h.consumed-h.consumedTold < tellEvery {
		return
	}
	h.consumedTold = h.consumed
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}
