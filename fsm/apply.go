package fsm

import (
	"math"
	"slices"

	"rcd/fsm/command"
	"rcd/model"
)

// runAll runs the commands of an entry in their order. Nothing is scheduled
// between them.
func (t *txn) runAll(commands []command.Command) {
	if t.current() {
		t.tick()
	}
	for _, c := range commands {
		t.answers = append(t.answers, t.run(c))
		if t.unknownLevel != 0 {
			return // the machine halts
		}
	}
}

// current reports whether the entry speaks for the epoch: its proposer
// believed in the term in which Raft committed it, and that term has begun.
func (t *txn) current() bool {
	return t.entry.Term == t.raftTerm && t.raftTerm == t.meta.Term
}

// tick moves both clocks on by the time since the last stamp of this epoch.
func (t *txn) tick() {
	if t.entry.Stamp <= t.meta.Stamp {
		return
	}
	since := uint64(t.entry.Stamp) - uint64(t.meta.Stamp) // right even where the difference is no int64
	t.meta.Stamp = t.entry.Stamp
	t.meta.Uptime = later(t.meta.Uptime, since)
	t.meta.Now = later(t.meta.Now, since)
}

// later returns a clock moved on, at most to its end: whatever a broken clock
// stamps, time never runs back. Neither clock is ever below zero.
func later(clock int64, by uint64) int64 {
	return clock + int64(min(by, uint64(math.MaxInt64-clock)))
}

func (t *txn) run(c command.Command) answer {
	if begin, ok := c.Body.(*command.EpochBegin); ok {
		return t.epochBegin(begin)
	}
	if !t.current() {
		return refuse(command.StaleEpoch, "This was proposed in term %d and committed in term %d, and the epoch is that of term %d; propose it again to the present leader.", t.entry.Term, t.raftTerm, t.meta.Term)
	}
	if c.Skip {
		return answer{}
	}
	return t.once(c, func() answer { return t.dispatch(c) })
}

func (t *txn) dispatch(c command.Command) answer {
	switch b := c.Body.(type) {
	case *command.AgentRegister:
		return t.agentRegister(b)
	case *command.JobEnqueue:
		return t.jobEnqueue(b, c.Request.Scope)
	case *command.JobStart:
		return t.jobStart(b)
	case *command.JobFinish:
		return t.jobFinish(b)
	case *command.JobKill:
		return t.jobKill(b)
	case *command.DeviceClear:
		return t.deviceClear(b)
	case *command.Sweep:
		return t.sweep(b)
	case *command.JobPrune:
		return t.jobPrune(b)
	case *command.ConfigSet:
		return t.configSet(b)
	case *command.LeaseAllocate:
		return t.leaseAllocate(b, c.Request.Scope)
	case *command.LeaseRelease:
		return t.leaseRelease(b)
	case *command.LeaseExtend:
		return t.leaseExtend(b)
	}
	return t.dispatchFleet(c)
}

// dispatchFleet runs the commands about devices, hosts and controllers.
func (t *txn) dispatchFleet(c command.Command) answer {
	switch b := c.Body.(type) {
	case *command.Schedule:
		return t.scheduleAll()
	case *command.LabelsReplace:
		return t.labelsReplace(b)
	case *command.SheetPut:
		return t.sheetPut(b)
	case *command.DeviceFault:
		return t.deviceFault(b)
	case *command.DeviceRetire:
		return t.deviceRetire(b)
	case *command.Recover:
		return t.recoverAgain(b)
	case *command.FeatureRaise:
		return t.featureRaise(b)
	case *command.MemberPut:
		return t.memberPut(b)
	case *command.MemberRemove:
		return t.memberRemove(b)
	case *command.Checkpoint:
		return t.checkpoint(b)
	}
	broken("a command kind without a handler")
	return answer{}
}

// epochBegin begins the epoch of a term, once. It is the first word of every
// leader; with it everything an older term still proposes becomes void.
func (t *txn) epochBegin(b *command.EpochBegin) answer {
	if t.entry.Term != t.raftTerm || t.raftTerm <= t.meta.Term {
		return refuse(command.StaleEpoch, "Term %d cannot begin: Raft is in term %d and the epoch is that of term %d; only the leader of a newer term begins one.", t.entry.Term, t.raftTerm, t.meta.Term)
	}
	wall := b.MedianMS
	if wall == 0 {
		wall = b.WallMS
	}
	t.meta.Now = max(t.meta.Now, min(max(wall, 0), math.MaxInt64/nsPerMS)*nsPerMS)
	t.meta.Term = t.raftTerm
	t.meta.EpochNode = b.Node
	t.meta.EpochIndex = t.atIndex
	t.meta.EpochUptime = t.meta.Uptime
	t.meta.Stamp = t.entry.Stamp
	t.emit(command.Event{Kind: command.EventEpoch, Reason: b.Node})
	return answer{}
}

// schedule gives free devices to queued jobs, once an entry, and ends the
// no-wait jobs that got none.
func (t *txn) schedule() {
	if t.sched.Pending() {
		t.sched.Place(t.place)
	}
	for _, number := range t.noWait {
		// It may have been ended and forgotten in this very entry.
		if j := t.jobs.get(number); j != nil && j.State == model.JobQueued {
			t.endJob(j, ending{state: model.JobKilled, reason: "no-wait: device busy", origin: model.OriginDevice})
			t.notPlaced = append(t.notPlaced, number)
		}
	}
}

// answer turns answers into results, with the rows as they are after the
// entry's scheduling.
func (t *txn) answer() {
	t.results = make([]command.Result, len(t.answers))
	for i, a := range t.answers {
		t.results[i] = t.result(a)
	}
}

func (t *txn) result(a answer) command.Result {
	r := a.Result
	if a.placed {
		a.jobs = t.placed
	}
	if a.known != "" {
		if row := t.requests.get(a.known); row != nil {
			a.jobs = row.Jobs // of a schedule in this entry they are known only now
		}
	}
	for _, number := range a.jobs {
		j := t.jobs.get(number)
		if j == nil {
			continue // pruned since
		}
		r.Jobs = append(r.Jobs, j)
		r.Positions = append(r.Positions, t.position(j))
		if slices.Contains(t.notPlaced, number) {
			r.Code = command.NotPlaced
		}
	}
	t.settleRequest(a, &r)
	switch {
	case len(a.jobs) > 0 && len(r.Jobs) == 0 && a.Code == command.OK:
		r.Code = command.NotFound
		r.Message = "This request was accepted, and its jobs have been forgotten since; use a new request ID to submit again."
	case r.Code == command.NotPlaced:
		r.Message = "No matching device is free just now and the job was not to wait; submit it without no_wait to queue it."
	}
	if a.device != "" {
		r.Device = t.devices.get(a.device)
	}
	return r
}

// settleRequest gives a repeated request the outcome of the first one, and
// records what only the scheduling decided. A row that a later command of this
// entry has forgotten is left alone.
func (t *txn) settleRequest(a answer, r *command.Result) {
	if a.known != "" {
		r.Code = a.outcome
		if row := t.requests.get(a.known); row != nil {
			r.Code = command.Code(row.Outcome) // of this entry, it is known only now
		}
	}
	if r.Code == command.OK && !a.placed {
		return
	}
	for _, key := range a.requests {
		if row := t.requests.get(key); row != nil {
			now := *row
			now.Outcome, now.Jobs = string(r.Code), a.jobs
			t.requests.put(&t.digest, key, now)
		}
	}
}
