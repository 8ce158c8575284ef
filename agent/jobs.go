package agent

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcd/agent/shim"
	"rcd/wire"
)

const (
	outcomeFile = "outcome.cbor" // an outcome that no shim has written
	ackedFile   = "acked"        // the outcome is in the log
)

// key names a job under a lease.
type key struct{ job, lease uint64 }

// name is the job's directory under jobs/.
func (k key) name() string { return fmt.Sprintf("%d-%d", k.job, k.lease) }

func parseKey(name string) (key, bool) {
	left, right, ok := strings.Cut(name, "-")
	job, err1 := strconv.ParseUint(left, 10, 64)
	lease, err2 := strconv.ParseUint(right, 10, 64)
	k := key{job, lease}
	return k, ok && err1 == nil && err2 == nil && k.name() == name
}

// job is one job that the agent answers for: from the order to the ack. What
// stands below the line is guarded by agent.mu.
type job struct {
	key
	hold    uint64   // the job number of the hold that it runs inside; 0: its lease is its own
	devices []string // names on this host
	dir     string
	faults  uint64        // that had been found when it was ordered
	over    chan struct{} // closed once outcome is set, or the job is dropped
	cancel  chan struct{} // closed once killing is set

	phase   wire.JobPhase
	use     use
	limitS  int64         // how long it may run, in seconds; 0: no limit
	killing string        // why it is being ended; "" if it is not
	handle  *shim.Handle  // nil until it has been started, or if it never is
	outcome *wire.Outcome // once it has ended
	// holdOver is the outcome of the hold, if that has ended while the job was here.
	holdOver *wire.Outcome
}

func (a *agent) newJob(k key, devices []string) *job {
	return &job{key: k, devices: devices, dir: a.dirOf(k), over: make(chan struct{}), cancel: make(chan struct{})}
}

// described takes over what a job's spec says of it.
func (j *job) described(spec shim.Spec) {
	j.devices, j.hold = devicesIn(spec.Env), holdIn(spec.Env)
}

func (a *agent) dirOf(k key) string { return filepath.Join(a.config.DataDir, jobsDir, k.name()) }

// report is what the leader is told of a job. The caller holds mu.
func (j *job) report() wire.ReportedJob {
	r := wire.ReportedJob{Job: j.job, Lease: j.lease, Phase: j.phase}
	if j.outcome == nil {
		r.Killing, r.MaxRuntimeS = j.killing != "", j.enforced()
	}
	return r
}

// enforced returns the limit that the job is ended by, in seconds: what its
// shim has written down. 0 without one, and for a shim of an earlier release,
// which cannot be given another. The caller holds mu.
func (j *job) enforced() int64 {
	if j.handle == nil {
		return j.limitS
	}
	limit, ok := j.handle.Limit()
	if !ok {
		return 0
	}
	return int64(limit / time.Second)
}

// extend gives a job more time; one that has no limit keeps none. Repeats and
// orders that come late change nothing. It does not wait for the shim, whose
// word the next reports carry. The caller holds mu.
func (a *agent) extend(j *job, limitS int64) {
	if j.outcome != nil || j.limitS == 0 || limitS <= j.limitS {
		return
	}
	j.limitS = limitS
	if j.handle != nil {
		j.handle.Extend(time.Duration(limitS) * time.Second)
	}
}

// notify tells the link and the streams that jobs have changed. The caller
// holds mu.
func (a *agent) notify() {
	close(a.wake)
	a.wake = make(chan struct{})
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// kill asks for the end of a job; the first reason counts. It does not wait.
// The caller holds mu.
func (a *agent) kill(j *job, reason string) {
	if j.outcome != nil {
		return
	}
	if j.killing == "" {
		j.killing = reason
		close(j.cancel)
		a.notify()
	}
	a.at(atKillOrdered)
	if j.handle != nil {
		j.handle.Kill(j.killing)
	}
	a.at(atKillPassed)
}

// finish gives a job its outcome.
func (a *agent) finish(j *job, o wire.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finishLocked(j, o)
}

func (a *agent) finishLocked(j *job, o wire.Outcome) {
	if j.outcome != nil {
		return
	}
	o.Job, o.Lease = j.job, j.lease
	j.outcome, j.phase = &o, wire.PhaseEnded
	close(j.over)
	a.endInside(j)
	a.notify()
	a.log.Info("job ended", "job", j.job, "lease", j.lease, "end", o.End, "reason", o.Reason)
}

// settle is finish for an outcome that no shim has written down: it is on disk
// first, so that a restart of the agent tells the same. If the disk refuses,
// the outcome stands for as long as this process does.
func (a *agent) settle(j *job, o wire.Outcome) {
	o.Job, o.Lease = j.job, j.lease
	a.starts.weigh(j, &o, j.handle != nil)
	err := os.MkdirAll(j.dir, 0o700)
	if err == nil {
		err = writeRecord(filepath.Join(j.dir, outcomeFile), kindOutcome, o)
	}
	if err != nil {
		a.log.Error("outcome of a job not kept on disk", "job", j.job, "lease", j.lease, "error", err)
	}
	a.at(atOutcomeWritten)
	a.finish(j, o)
}

// follow waits for a started job to run and to end. It returns early when the
// agent stops; the job goes on then.
func (a *agent) follow(j *job, h *shim.Handle) {
	status := h.Status()
	for status.Phase == shim.Starting {
		var err error
		if status, err = h.Wait(a.ctx, status); err != nil {
			return
		}
	}
	if status.Phase == shim.Running {
		a.at(atRunningSeen)
		a.mu.Lock()
		j.phase = wire.PhaseRunning
		a.notify()
		a.mu.Unlock()
		a.at(atRunningNoted)
	}
	a.attend(j, h)
	select {
	case <-h.Done():
		a.at(atEnded)
		a.conclude(j, a.outcomeOf(j, h), false)
	case <-a.ctx.Done():
	}
}

// Jobs implements session.Handler, sorted by job and lease.
func (a *agent) Jobs() []wire.ReportedJob {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]wire.ReportedJob, 0, len(a.jobs))
	for _, j := range a.jobs {
		out = append(out, j.report())
	}
	slices.SortFunc(out, func(x, y wire.ReportedJob) int {
		return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Lease, y.Lease))
	})
	return out
}

// Outcomes implements session.Handler, sorted by job and lease.
func (a *agent) Outcomes() []wire.Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []wire.Outcome
	for _, j := range a.jobs {
		if j.outcome != nil {
			out = append(out, *j.outcome)
		}
	}
	if len(out) > 0 {
		a.at(atOutcomeTelling)
	}
	slices.SortFunc(out, func(x, y wire.Outcome) int {
		return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Lease, y.Lease))
	})
	return out
}

// Changed implements session.Handler.
func (a *agent) Changed() <-chan struct{} { return a.changed }

// Acked implements session.Handler: the record is marked and kept for its
// output, within bounds.
func (a *agent) Acked(ack wire.OutcomeAck) {
	a.mu.Lock()
	j := a.jobs[key{ack.Job, ack.Lease}]
	if j == nil || j.outcome == nil {
		a.mu.Unlock()
		return
	}
	delete(a.jobs, j.key)
	a.notify()
	a.mu.Unlock()
	if j.handle != nil {
		j.handle.Close()
	}
	a.at(atAckHeard)
	// Not synced: a mark that a power cut takes only makes us tell it again.
	if err := os.WriteFile(filepath.Join(j.dir, ackedFile), nil, 0o600); err != nil {
		a.log.Warn("job not marked as acked", "job", ack.Job, "error", err)
	}
	a.at(atAckMarked)
	a.janitor.nudge()
}
