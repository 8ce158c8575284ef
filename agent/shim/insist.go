package shim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

const (
	// takeBound is how long a kill may take before its shim is looked after, and the pause between two such looks. A shim in health takes the order in
	// milliseconds, and most trees are gone by then.
	takeBound = 3 * time.Second
	// answerBound is how long a shim that was just told to go on may take to say hello. On a host that swaps, seconds.
	answerBound = 5 * time.Second
	// sweepBound is what one sweep of a shim may take beyond the grace: 5 s for SIGKILL to take effect, and the rest for the looks.
	sweepBound = 8 * time.Second
	// redialPause lies between two tries to reach a shim that is being looked after.
	redialPause = 50 * time.Millisecond
)

// insist sees to it that a kill comes to its end whatever has become of the shim: one that was stopped is made to go on and obeys by itself; one that stays
// silent, or answers and does not get on, is put down together with its job. It returns when ctx ends, which the end of the job brings about.
func (h *Handle) insist(ctx context.Context) {
	select {
	case <-h.wished:
	case <-ctx.Done():
		return
	}
	for since := time.Now(); ; {
		select {
		case <-time.After(takeBound):
		case <-ctx.Done():
			return
		}
		if h.stuck(ctx, since) && ctx.Err() == nil {
			h.putDown(ctx)
		}
	}
}

// stuck wakes the shim up and tells whether nothing is to be expected of it any more. since is when the kill was wished for. A shim that answers is
// trusted for as long as its sweeps may take, and for ever once nobody of the tree is left: what it does then is to write down the job's own exit
// code, which a full disk may keep it from and which is lost with it.
func (h *Handle) stuck(ctx context.Context, since time.Time) bool {
	shim := h.livingShim()
	if shim.Zero() {
		return false // dead: run buries it
	}
	// Nothing happens to a shim that was not stopped.
	if err := proc.Signal(shim, unix.SIGCONT); err != nil && !errors.Is(err, proc.ErrGone) {
		h.log.Error("wake shim", "shim", shim.PID, "dir", h.dir, "error", err)
	}
	if !h.answers(ctx, shim) {
		return true
	}
	if time.Since(since) < sweepTries*(h.order.Spec.Grace+sweepBound) {
		return false
	}
	found, err := proc.Find(h.Tree())
	return err == nil && len(found) > 0
}

// answers tells whether the shim has anything to say within answerBound, its own end included.
func (h *Handle) answers(ctx context.Context, shim proc.ID) bool {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	for proc.Alive(shim) {
		if conn, err := dial(h.dir); err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			// A shim with too many agents hangs up, which is an answer too.
			_, err = receive(conn)
			stop()
			_ = conn.Close()
			if err == nil || ctx.Err() == nil {
				return true
			}
		}
		select {
		case <-time.After(redialPause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// putDown ends the job over the head of its shim, and then the shim; run finds it dead and writes the result. The job goes first: as long as the shim is
// there, whoever has left the session and lost the environment is still known as its descendant. The job's own exit code is lost with the shim.
func (h *Handle) putDown(ctx context.Context) {
	shim := h.livingShim()
	h.log.Error("the shim of a job does not obey; ending the job and the shim", "job", h.order.Spec.JobID, "shim", shim.PID, "dir", h.dir)
	sw := sweepTree(ctx, h.Tree(), h.order.Spec.Grace)
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || h.status.Phase == Ended {
		return
	}
	// Under the lock, so that whoever finds the shim dead knows why.
	err := proc.Signal(shim, unix.SIGKILL)
	if err == nil {
		h.putDownSweep = &sw
	} else if !errors.Is(err, proc.ErrGone) {
		h.log.Error("kill shim", "shim", shim.PID, "dir", h.dir, "error", err)
	}
}

// endedBy adds to the result of a dead shim's job what putDown knows, if it came to that.
func (h *Handle) endedBy(result *Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.putDownSweep == nil {
		return
	}
	result.Reason = reasonPutDown
	// Those below the dead shim that carry no mark are strangers to a later sweep.
	named := make(map[proc.ID]bool)
	for _, p := range result.Survivors {
		named[p.ID] = true
	}
	for _, p := range h.putDownSweep.survivors {
		if !named[p.ID] && proc.Alive(p.ID) {
			result.Survivors = append(result.Survivors, p)
		}
	}
	if result.Unverified == "" && h.putDownSweep.problem != "" {
		result.Unverified = clip(fmt.Sprintf("before the shim was ended: %s", h.putDownSweep.problem))
	}
}

// livingShim returns the process that supervises the job, zero if it is not known or does not run. An identity holds only until the host restarts.
func (h *Handle) livingShim() proc.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shim.Zero() {
		var rec processRecord
		if readRecord(h.dir, processName, kindProcess, &rec) == nil {
			h.shim = rec.Shim.id()
		}
	}
	if boot, err := proc.BootID(); err != nil || boot != h.order.Boot || !proc.Alive(h.shim) {
		return proc.ID{}
	}
	return h.shim
}
