package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rcd/agent/shim"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/session"
	"rcd/wire"
)

var _ session.Handler = (*agent)(nil)

// Reasons that the agent gives itself.
const (
	reasonCancelled  = "cancelled"
	reasonRecordLost = "record lost: the job has begun here and nothing tells how it went; submit it again"
)

// orderBusy: the device still belongs to a later lease that waits for it.
const orderBusy = "busy"

// Order implements session.Handler. It takes the order and answers; what takes
// time goes on behind.
func (a *agent) Order(_ context.Context, o wire.Order) wire.OrderAck {
	a.proofs.orders.Add(1)
	switch o.Kind {
	case wire.OrderStart:
		return a.orderStart(o)
	case wire.OrderKill:
		return a.orderKill(o)
	case wire.OrderReport:
		return a.orderReport(o)
	case wire.OrderExtend:
		return a.orderExtend(o)
	}
	return wire.OrderAck{Code: wire.OrderFailed, Message: fmt.Sprintf("order of kind %d needs a later agent", o.Kind)}
}

func (a *agent) orderStart(o wire.Order) wire.OrderAck {
	k := key{o.Job, o.Lease}
	if o.Start == nil || o.Start.Job != o.Job || o.Start.Lease != o.Lease || len(o.Start.Devices) == 0 {
		return wire.OrderAck{Code: wire.OrderFailed, Message: "the order does not say what to start"}
	}
	if o.Start.Hold != 0 && model.JobKind(o.Start.Kind) == model.KindHold {
		return wire.OrderAck{Code: wire.OrderFailed, Message: "no hold runs inside a hold"}
	}
	if ack, known := a.present(k); known {
		return ack
	}
	devices, missing := a.localDevices(o.Start.Devices)
	j := a.newJob(k, devices)
	j.hold = o.Start.Hold
	if missing != "" {
		return a.settled(j, wire.Outcome{End: uint8(command.EndStartFailed), ExitCode: startFailedCode(), Origin: uint8(model.OriginDevice),
			Reason: fmt.Sprintf("start: device %s is not declared on this host; declare it in the agent's configuration", missing), OutputKnown: true})
	}
	if ack, refused := a.fenced(j); refused {
		return ack
	}
	j.limitS, j.faults = o.Start.MaxRuntimeS, a.state.faultCount()
	return a.accept(j, *o.Start)
}

// fenced answers for a job that may not begin any more.
func (a *agent) fenced(j *job) (wire.OrderAck, bool) {
	switch a.state.look(j.devices, j.claim()) {
	case fenceStale:
		return wire.OrderAck{Code: wire.OrderStaleLease, Message: "a later lease has begun on the device"}, true
	case fenceBegun:
		// It began here, and nothing is known of it: whatever it was, it must
		// not run twice.
		return a.settled(j, lostRecord("")), true
	}
	return wire.OrderAck{}, false
}

// lostRecord is the outcome of a lease that has begun and left nothing to tell
// how it went. file names the record if there is an unreadable one; the device
// then waits for a person.
func lostRecord(file string) wire.Outcome {
	o := wire.Outcome{End: uint8(command.EndSupervisorDied), Reason: reasonRecordLost, Origin: uint8(model.OriginAgent)}
	if file != "" {
		o.Reason, o.Origin = "record lost: "+file+"; then return the device with rc clear", uint8(model.OriginHost)
		o.Survivors = "the job's record cannot be read, so its processes are not known: " + file
	}
	return o
}

// settled answers with an outcome instead of a start.
func (a *agent) settled(j *job, o wire.Outcome) wire.OrderAck {
	a.mu.Lock()
	a.jobs[j.key] = j
	a.mu.Unlock()
	a.settle(j, o)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := j.report()
	return wire.OrderAck{Job: &r}
}

// present answers for a job that is known. One that was acked long ago is told
// again: who orders it has not heard how it ended.
func (a *agent) present(k key) (wire.OrderAck, bool) {
	a.mu.Lock()
	j := a.jobs[k]
	a.mu.Unlock()
	if j == nil {
		j = a.recall(k)
	}
	if j == nil {
		return wire.OrderAck{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := j.report()
	return wire.OrderAck{Job: &r}, true
}

// recall takes an acked job's record up again, nil if there is none.
func (a *agent) recall(k key) *job {
	dir := a.dirOf(k)
	mark := filepath.Join(dir, ackedFile)
	if _, err := os.Stat(mark); err != nil {
		return nil
	}
	j, err := a.load(k, true)
	if err != nil || j == nil || j.outcome == nil {
		a.log.Warn("record of an acked job cannot be told again", "job", k.job, "lease", k.lease, "error", err)
		return nil
	}
	// Told once means never to be concluded again, also by the next agent.
	if err := writeRecord(filepath.Join(dir, outcomeFile), kindOutcome, *j.outcome); err != nil {
		a.log.Warn("outcome of an acked job not kept", "job", k.job, "error", err)
		return nil
	}
	if err := os.Remove(mark); err != nil {
		a.log.Warn("unmark job", "job", k.job, "error", err)
	}
	a.at(atRecalled)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs[k] = j
	a.notify()
	return j
}

func (a *agent) orderKill(o wire.Order) wire.OrderAck {
	k := key{o.Job, o.Lease}
	reason := o.Reason
	if reason == "" {
		reason = reasonCancelled
	}
	a.mu.Lock()
	if j := a.jobs[k]; j != nil {
		defer a.mu.Unlock()
		a.kill(j, reason)
		r := j.report()
		return wire.OrderAck{Job: &r}
	}
	a.mu.Unlock()
	if ack, known := a.present(k); known {
		return ack
	}
	if o.Start == nil {
		return wire.OrderAck{Code: wire.OrderUnknownJob, Message: "the job is not on this host"}
	}
	// Never started: the fence sees to it that it never is.
	devices, _ := a.localDevices(o.Start.Devices)
	j := a.newJob(k, devices)
	j.hold = o.Start.Hold
	if ack, refused := a.fenced(j); refused {
		return ack
	}
	if _, err := a.raise(j); err != nil {
		return wire.OrderAck{Code: wire.OrderFailed, Message: err.Error()}
	}
	a.at(atKillFenced)
	return a.settled(j, wire.Outcome{End: uint8(command.EndKilled), Reason: reason, Origin: a.originOfKill(j, reason), OutputKnown: true})
}

func (a *agent) orderExtend(o wire.Order) wire.OrderAck {
	a.mu.Lock()
	defer a.mu.Unlock()
	j := a.jobs[key{o.Job, o.Lease}]
	if j == nil {
		return wire.OrderAck{Code: wire.OrderUnknownJob, Message: "the job is not on this host"}
	}
	a.extend(j, o.MaxRuntimeS)
	r := j.report()
	return wire.OrderAck{Job: &r}
}

func (a *agent) orderReport(o wire.Order) wire.OrderAck {
	if ack, known := a.present(key{o.Job, o.Lease}); known {
		return ack // the link says its outcome again by itself
	}
	return wire.OrderAck{Code: wire.OrderUnknownJob, Message: "the job is not on this host"}
}

// localDevices returns the names of device IDs, sorted, and the first ID that
// this host does not have.
func (a *agent) localDevices(ids []string) (names []string, missing string) {
	for _, id := range ids {
		host, name := model.SplitDeviceID(id)
		declared := host == a.config.Host && slices.ContainsFunc(a.config.Devices, func(d Device) bool { return d.Name == name })
		if !declared && missing == "" {
			missing = id
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, missing
}

// Hello implements session.Handler.
func (a *agent) Hello() wire.Hello {
	jobs := a.Jobs()
	hello := wire.Hello{
		MachineID: a.machineID, BootID: a.bootID, Jobs: jobs, Proof: a.proof(),
		RequireManualClear: a.config.RequireManualClear, Version: a.deps.Version,
	}
	room := helloLabels
	for _, d := range a.config.Devices {
		detected := a.keeper.detected(d.Name)
		if room -= labelBytes(detected); room < 0 {
			detected = nil // told as facts, in messages that have room
		}
		hello.Devices = append(hello.Devices, wire.AgentDevice{
			Name: d.Name, MaxRuntimeS: int64(d.MaxRuntime.Seconds()), Declared: labelList(d.Labels), Detected: detected,
			KeepDetected: detected == nil, Begun: a.state.begun(d.Name),
		})
	}
	return hello
}

// Facts implements session.Handler.
func (a *agent) Facts() wire.Facts { return a.keeper.facts() }

// Controllers implements session.Handler.
func (a *agent) Controllers(list []wire.Controller) {
	if err := a.state.update(true, func(c *cluster) { c.Controllers = slices.Clone(list) }); err != nil {
		a.log.Warn("list of controllers not kept", "error", err)
	}
}

// Welcomed implements session.Handler.
func (a *agent) Welcomed(w wire.Welcome) {
	a.drains.welcomed()
	if a.state.facts().ClusterID == w.ClusterID {
		return
	}
	if err := a.state.update(true, func(c *cluster) { c.ClusterID = w.ClusterID }); err != nil {
		a.log.Warn("cluster ID not kept", "error", err)
	}
}

// Seen implements session.Handler. An index alone is written with the next
// term: it only spares a new leader's agent a wait.
func (a *agent) Seen(generation, term, index uint64) error {
	a.leaderHeard.Store(time.Now().UnixNano())
	if err := a.drains.heard(index, a.onDevice); err != nil {
		a.log.Warn("progress of a drain not kept", "error", err)
	}
	facts := a.state.facts()
	durable := facts.Generation != generation || facts.Term != term
	if durable {
		a.at(atTermSeen)
	}
	return a.state.update(durable, func(c *cluster) { c.Generation, c.Term, c.Index = generation, term, index })
}

// outcomeOf turns a shim's result into what the leader is told.
func (a *agent) outcomeOf(j *job, h *shim.Handle) wire.Outcome {
	result, err := h.Result()
	if err != nil {
		a.log.Error("result of a job cannot be read; its device waits for a person", "job", j.job, "lease", j.lease, "error", err)
		return lostRecord(err.Error())
	}
	o := outcomeOf(j, result)
	if result.Outcome == shim.Killed {
		o.Origin = a.originOfKill(j, result.Reason)
	}
	return o
}
