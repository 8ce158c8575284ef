package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcd/agent/shim"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// reasonSuperseded begins the reason of a kill that makes room for a later
// lease.
const reasonSuperseded = "superseded by lease "

// accept takes a start whose fence was open a moment ago, and starts the job
// behind.
func (a *agent) accept(j *job, start wire.StartJob) wire.OrderAck {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return wire.OrderAck{Code: wire.OrderFailed, Message: "the agent is stopping"}
	}
	for _, other := range a.occupants(j) {
		if other.lease > j.lease || other.lease == j.lease && j.hold == 0 {
			return wire.OrderAck{Code: orderBusy, Message: fmt.Sprintf("the device belongs to %s", model.LeaseID(other.lease))}
		}
	}
	if j.hold != 0 {
		if code, message := a.inhabits(j); code != "" {
			return wire.OrderAck{Code: code, Message: message}
		}
	}
	a.jobs[j.key] = j
	a.notify()
	if a.drains.refuses(j.devices, j.lease) {
		a.kill(j, reasonDrained) // it never begins
	}
	a.wait.Go(func() { a.start(j, start) })
	r := j.report()
	return wire.OrderAck{Job: &r}
}

// occupants returns the live jobs on any of j's devices, j left out. The caller
// holds mu.
func (a *agent) occupants(j *job) []*job {
	var out []*job
	for _, other := range a.jobs {
		if other == j || other.outcome != nil {
			continue
		}
		if slices.ContainsFunc(other.devices, func(d string) bool { return slices.Contains(j.devices, d) }) {
			out = append(out, other)
		}
	}
	return out
}

// start brings a job from the order to its end, or until the agent stops.
func (a *agent) start(j *job, start wire.StartJob) {
	a.at(atOrderTaken)
	if j.hold != 0 {
		defer a.janitor.hold(key{j.hold, j.lease})()
	}
	if !a.free(j) || !a.awaitGPUs(j) || !a.sound(j) {
		return
	}
	a.at(atVacated)
	env, err := a.environment(j, start)
	if err != nil {
		a.settle(j, startFailed(err, model.OriginJob))
		return
	}
	if j.hold == 0 && !a.enter(j, tenantIn(env)) {
		return
	}
	defer a.leave(j)
	switch verdict, err := a.raise(j); {
	case err != nil:
		a.settle(j, startFailed(err, model.OriginHost))
		return
	case verdict != fenceOpen:
		a.drop(j)
		return
	}
	a.at(atFenceRaised)
	if j.hold == 0 {
		a.health.lookBefore(a.ctx, j)
	}
	if reason := a.touches(j); reason != "" {
		a.cancelled(j, reason)
		return
	}
	a.mu.Lock()
	start.MaxRuntimeS = j.limitS // it may have been lengthened while it waited
	a.mu.Unlock()
	h, err := shim.Start(shim.Config{Dir: j.dir, Exec: a.deps.Exec, Log: a.log, Spec: a.spec(j, start, env), Step: a.step})
	a.at(atStarted)
	if err != nil {
		o := startFailed(err, originOf(shim.CauseOf(err), model.OriginAgent))
		if j.hold == 0 {
			a.settle(j, o) // nothing was there
			return
		}
		a.conclude(j, o, true)
		return
	}
	a.health.began(j, h)
	a.mu.Lock()
	j.handle = h
	if j.killing != "" {
		h.Kill(j.killing)
	}
	if j.limitS > start.MaxRuntimeS {
		h.Extend(time.Duration(j.limitS) * time.Second)
	}
	a.notify()
	a.mu.Unlock()
	a.follow(j, h)
}

// free waits until a job may come to its devices: nothing of an earlier lease is
// there, or the hold that it runs inside is. It returns false when j is not to be
// started, and has its outcome then unless the agent stops.
func (a *agent) free(j *job) bool {
	if j.hold != 0 {
		return a.awaitHold(j)
	}
	if err := a.drains.returned(j.devices, j.lease); err != nil {
		a.log.Warn("a drain is still on disk for a device that an operator has returned", "devices", j.devices, "error", err)
	}
	return a.vacate(j)
}

// raise raises the fence of a job's devices. The directory comes before it:
// should this process die in between, the next one sees a lease without a job
// in it, and knows that it has not begun.
func (a *agent) raise(j *job) (fenceVerdict, error) {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return fenceOpen, err
	}
	if err := syncDir(filepath.Dir(j.dir)); err != nil {
		return fenceOpen, err
	}
	a.at(atDirMade)
	return a.state.begin(j.devices, j.claim())
}

// vacate waits until nothing of an earlier lease is on j's devices. A later
// lease means that the earlier one is over, so what still runs is ended first.
// It returns false when j is not to be started, and has its outcome then unless
// the agent stops.
func (a *agent) vacate(j *job) bool {
	for {
		a.mu.Lock()
		if j.killing != "" {
			reason := j.killing
			a.mu.Unlock()
			a.cancelled(j, reason)
			return false
		}
		if left := a.remains(j); left != "" {
			a.mu.Unlock()
			o := startFailed(fmt.Errorf("the device is not free: %s; see to that on the host, then return it with rc clear", brief(left)), model.OriginDevice)
			o.Survivors = left
			a.settle(j, o)
			return false
		}
		waiting := slices.DeleteFunc(a.occupants(j), func(other *job) bool { return other.lease == j.lease })
		for _, other := range waiting {
			if other.lease < j.lease {
				a.kill(other, reasonSuperseded+model.LeaseID(j.lease))
			}
		}
		a.mu.Unlock()
		if len(waiting) == 0 {
			return true
		}
		select {
		case <-waiting[0].over: // and then the others are looked at
		case <-j.cancel:
		case <-a.ctx.Done():
			return false
		}
	}
}

// brief leaves room in a reason for what is to be done: the lease table keeps
// 1 KiB of it.
func brief(left string) string {
	const most = 800
	return strings.ToValidUTF8(left[:min(len(left), most)], "")
}

// remains says what the jobs of earlier leases have left on j's devices, "" for
// nothing. It counts until the leader has taken their outcomes: whoever placed j
// did not know. The caller holds mu.
func (a *agent) remains(j *job) (left string) {
	for _, other := range a.jobs {
		if other.outcome == nil || other.lease >= j.lease || other.outcome.Survivors == "" {
			continue
		}
		if slices.ContainsFunc(other.devices, func(d string) bool { return slices.Contains(j.devices, d) }) {
			left = joined(left, other.outcome.Survivors)
		}
	}
	return cut(left)
}

// cancelled ends a job that was killed before it began. The fence makes that
// final.
func (a *agent) cancelled(j *job, reason string) {
	if _, err := a.raise(j); err != nil {
		a.log.Error("fence not raised for a job that was killed before it began", "job", j.job, "error", err)
	}
	a.settle(j, wire.Outcome{End: uint8(command.EndKilled), Reason: reason, Origin: a.originOfKill(j, reason), OutputKnown: true})
}

// drop forgets a job whose lease a later one has overtaken while it waited.
func (a *agent) drop(j *job) {
	a.mu.Lock()
	delete(a.jobs, j.key)
	close(j.over)
	a.notify()
	a.mu.Unlock()
	a.log.Warn("start overtaken by a later lease", "job", j.job, "lease", j.lease)
	if err := shim.RemoveDir(j.dir); err != nil {
		a.log.Warn("remove an overtaken job's directory", "dir", j.dir, "error", err)
	}
}

// startFailed is the outcome of a job that no process ran for. Of what the host
// lacks the reason says what to do; of anything else the error itself does.
func startFailed(err error, origin model.Origin) wire.Outcome {
	text := "start: " + err.Error()
	if advice := shim.Advice(err); advice != "" {
		text += "; " + advice
	}
	return wire.Outcome{End: uint8(command.EndStartFailed), ExitCode: startFailedCode(), Origin: uint8(origin), Reason: cut(text), OutputKnown: true}
}

// spec is the order for the shim.
func (a *agent) spec(j *job, start wire.StartJob, env []string) shim.Spec {
	spec := shim.Spec{
		JobID: model.JobID(j.job), Lease: j.lease, Kind: shim.KindJob, Command: start.Command, Cwd: start.Cwd, Env: env,
		MaxRuntime: time.Duration(start.MaxRuntimeS) * time.Second, IdleTimeout: time.Duration(start.IdleTimeoutS) * time.Second,
		Grace: a.settings().KillGrace, OutputBound: a.settings().SpoolBound, Witness: a.witness(j),
	}
	if start.Cwd == "" {
		spec.Cwd = homeDir()
	}
	switch {
	case model.JobKind(start.Kind) == model.KindHold:
		spec.Kind, spec.Command, spec.IdleTimeout = shim.KindHold, nil, 0
	case model.Stdio(start.Stdio) != model.StdioLogs:
		spec.Stdio = shim.Stdio(model.Stdio(start.Stdio).String()) // the same words; one that is not known is refused
	}
	return spec
}
