package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"rcd/agent/proc"
	"rcd/agent/spool"
)

// errNeverBegan is why a job did not start whose shim went down before it had written that it begins.
var errNeverBegan = errors.New("the shim ended before the job began, see shim.log in its directory; submit the job again")

// Texts of a supervisor_died result.
const (
	reasonShimDied = "supervisor_died"
	reasonRestart  = "supervisor_died: the host was restarted"
	// reasonPutDown: the job was to be killed and its shim did not do it.
	reasonPutDown = "supervisor_died: the job was being killed and its shim did not answer, so the shim was killed too; the exit code is lost"
)

// Adopt takes up a job that Start was called for earlier, by this process or another one. The job may run, may have ended, and its shim may have died:
// then the handle ends the tree in the background and gets the outcome SupervisorDied. Errors: ErrNoJob; ErrNotBegun, for which Start is the answer;
// a CorruptError naming a record that cannot be read, and nothing was touched; or one of the disk. Adopt does not wait for processes.
func Adopt(dir string, log *slog.Logger) (*Handle, error) {
	o, err := readOrder(dir)
	if err != nil {
		return nil, err
	}
	h := newHandle(dir, o, log)
	switch result, err := readResult(dir); {
	case err == nil:
		h.end(result)
		return h, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	var rec processRecord
	err = readRecord(dir, processName, kindProcess, &rec)
	switch {
	case err == nil:
		h.status = Status{Phase: Running, Job: rec.Job.id(), StartedAt: wallTime(rec.StartedAt)}
		if rec.StartedAt == 0 {
			h.status.Phase = Starting
		}
		h.shim = rec.Shim.id()
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	default:
		if err := h.notBegun(); err != nil {
			return nil, err
		}
	}
	h.begin()
	return h, nil
}

// notBegun returns ErrNotBegun if no shim has the job and none can have had it. Without a record of processes that is so unless a shim is at work
// just now, or the host was restarted, which takes along what was not synced.
func (h *Handle) notBegun() error {
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	if boot != h.order.Boot {
		return nil
	}
	if held, err := lockHeld(h.dir); held || err != nil {
		return err
	}
	if begun, err := hasBegun(h.dir); begun || err != nil {
		return err // a shim came, and perhaps went, between the two looks
	}
	return fmt.Errorf("%s: %w", h.dir, ErrNotBegun)
}

// settle finds out what it means that the shim does not answer. True if the handle has ended.
func (h *Handle) settle(ctx context.Context) bool {
	if ended, _ := h.takeResult(); ended {
		return true
	}
	lock, err := takeLock(h.dir)
	if errors.Is(err, os.ErrNotExist) {
		return h.endWithoutDirectory(ctx)
	}
	if err != nil {
		if !errors.Is(err, errTaken) {
			h.log.Error("look after job", "dir", h.dir, "error", err)
		}
		return false // a shim lives
	}
	defer func() { _ = lock.Close() }()
	// With the lock in hand nobody else writes: what is not there now never was. What cannot be read now, for want of a descriptor perhaps, may well be.
	if ended, err := h.takeResult(); ended || err != nil {
		return ended
	}
	result, err := h.bury(ctx)
	if err == nil {
		err = writeResult(h.dir, result)
	}
	switch {
	case err == nil:
		h.end(result)
		return true
	case errors.Is(err, ErrCorrupt):
		h.fail(err)
		return true
	case ctx.Err() == nil:
		h.log.Error("clean up after a dead shim", "dir", h.dir, "error", err)
	}
	return false
}

// takeResult ends the handle if there is a result, or what was one. An error says that nothing is known of it at this moment.
func (h *Handle) takeResult() (ended bool, err error) {
	result, err := readResult(h.dir)
	switch {
	case err == nil:
		h.end(result)
		return true, nil
	case errors.Is(err, ErrCorrupt):
		h.fail(err)
		return true, nil
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	}
	h.log.Error("read result", "dir", h.dir, "error", err)
	return false, err
}

// bury ends what a dead shim has left, measures the output and says so. The caller holds the lock.
func (h *Handle) bury(ctx context.Context) (Result, error) {
	var rec processRecord
	readErr := readRecord(h.dir, processName, kindProcess, &rec)
	cgroup, cgroupErr := cgroupOf(h.dir)
	boot, err := proc.BootID()
	if err != nil {
		return Result{}, err
	}
	if errors.Is(readErr, os.ErrNotExist) {
		if readErr = nil; boot == h.order.Boot {
			return startFailed(h.dir, errNeverBegan), nil
		}
	}
	result := Result{Outcome: SupervisorDied, Reason: reasonShimDied, Cause: CauseAgent, StartedAt: wallTime(rec.StartedAt)}
	if boot != h.order.Boot {
		result.Reason, result.Cause = reasonRestart, CauseHost
	} else {
		h.log.Warn("the shim of a job has died; ending the job", "job", h.order.Spec.JobID, "dir", h.dir)
		sw := h.sweepOrphans(ctx, rec, cgroup)
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		result.Survivors, result.Unverified = sw.survivors, sw.problem
		h.endedBy(&result)
	}
	if err := errors.Join(readErr, cgroupErr); err != nil {
		return Result{}, err // the marks were enough to end the tree, but what ran is not known
	}
	if boot == h.order.Boot && result.Clean() {
		if err := removeCgroupsByMark(h.order.Mark); err != nil {
			h.log.Error("remove the cgroup of a job", "dir", h.dir, "error", err)
		}
	}
	left, err := spool.Recover(filepath.Join(h.dir, outputName))
	if err != nil {
		return Result{}, err
	}
	result.OutputLength, result.OutputDigest = left.Length, left.Digest
	if told := h.Status().Output; told > left.Length {
		// The shim had counted what a failing disk did not take. A reader gets that as a gap.
		result.OutputLength, result.OutputDigest = told, ""
	}
	result.FinishedAt = time.Now()
	return result, nil
}

// secondLook is the pause before orphans are looked for once more. A process in the middle of an exec shows no environment, and without a subreaper
// there is nothing else to know it by.
const secondLook = 100 * time.Millisecond

// sweepOrphans ends the tree of a job whose shim is dead.
func (h *Handle) sweepOrphans(ctx context.Context, rec processRecord, cgroup string) swept {
	target := proc.Target{Root: rec.Job.id(), Marks: h.order.marks(), Since: rec.Shim.Start, Cgroup: cgroup}
	sw := sweepTree(ctx, target, h.order.Spec.Grace)
	if !sw.clean() {
		return sw
	}
	select {
	case <-time.After(secondLook):
	case <-ctx.Done():
	}
	return sweepTree(ctx, target, 0)
}
