package shim

import (
	"context"
	"time"
)

// reasonGone is why there is no result of a job whose directory was deleted.
const reasonGone = "supervisor_died: " + reasonHomeless + " on the host, and with it how the job ended"

// endWithoutDirectory ends the handle of a job whose directory is not there any more: whoever deleted it has taken the lock and the result along. A shim
// that lives sees that within seconds and ends the job; what is left after it is ended here. True if the handle has ended; the result is on no disk.
func (h *Handle) endWithoutDirectory(ctx context.Context) bool {
	if !h.livingShim().Zero() {
		return false
	}
	status := h.Status()
	h.log.Error("the directory of a job was deleted; ending the job", "job", h.order.Spec.JobID, "dir", h.dir)
	rec := processRecord{Job: identityOf(status.Job), Shim: identityOf(h.Tree().Above)}
	// The record of its cgroup is gone too; the cgroup has its mark.
	paths, err := cgroupsByMark(h.order.Mark)
	var cgroup string
	if len(paths) > 0 {
		cgroup = paths[0]
	}
	sw := h.sweepOrphans(ctx, rec, cgroup)
	if ctx.Err() != nil {
		return false
	}
	if err != nil && sw.problem == "" {
		sw.problem = clip(err.Error())
	}
	if sw.clean() {
		if err := removeCgroupsByMark(h.order.Mark); err != nil {
			h.log.Error("remove the cgroup of a job", "dir", h.dir, "error", err)
		}
	}
	h.end(Result{Outcome: SupervisorDied, Reason: reasonGone, Cause: CauseHost, OutputLength: status.Output,
		StartedAt: status.StartedAt, FinishedAt: time.Now(), Survivors: sw.survivors, Unverified: sw.problem})
	return true
}
