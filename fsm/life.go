package fsm

import (
	"rcd/fsm/command"
	"rcd/model"
)

// reporter refuses a report of a host that is not the registered instance.
func (t *txn) reporter(host, instance string) answer {
	switch a := t.agents.get(host); {
	case a == nil:
		return refuse(command.UnknownAgent, "The host %q has never registered; register first.", short(host))
	case a.Instance != instance:
		return refuse(command.StaleInstance, "Another agent process of %q has registered since; only that one is heard.", short(host))
	}
	return answer{}
}

// reported returns the job that a host reports about, or the refusal. Only the
// job's own latest lease is listened to.
func (t *txn) reported(ref command.JobRef, host, instance string) (*model.Job, answer) {
	if a := t.reporter(host, instance); a.Code != command.OK {
		return nil, a
	}
	j := t.jobs.get(ref.Job)
	if j == nil {
		return nil, refuse(command.NotFound, "There is no job %s any more; forget its record.", model.JobID(ref.Job))
	}
	if j.Lease == 0 || j.Lease != ref.Lease || j.Host != host {
		return nil, refuse(command.StaleLease, "Job %s is not under lease %s; end what runs under that lease.", j.ID(), model.LeaseID(ref.Lease))
	}
	return j, answer{}
}

// jobStart records that the process of a job runs.
func (t *txn) jobStart(b *command.JobStart) answer {
	j, a := t.reported(b.JobRef, b.Host, b.Instance)
	if j == nil {
		return a
	}
	if j.State.Terminal() {
		a := refuse(command.AlreadyEnded, "Job %s has ended as %s; end its processes.", j.ID(), j.State)
		a.jobs = []uint64{j.Number}
		return a
	}
	t.hear(b.Host)
	if j.State == model.JobAssigned {
		t.begin(t.mustLease(j.Lease))
		row := *j
		row.State, row.StartedAtMS = model.JobRunning, t.nowMS()
		t.putJob(row)
		t.emit(command.Event{Kind: command.EventJobStarted, Job: j.Number, Lease: j.Lease, Host: j.Host})
	}
	return answer{jobs: []uint64{j.Number}}
}

// begin marks that a job of the lease has started.
func (t *txn) begin(l *model.Lease) {
	if l.Begun {
		return
	}
	row := *l
	row.Begun = true
	t.putLease(row)
}

// maxOutputDigest leaves room for a longer digest than the SHA-256 of today.
const maxOutputDigest = 64

// jobFinish takes the outcome of a job. It frees the job's devices, which the
// same entry then gives to the next in the queue.
func (t *txn) jobFinish(b *command.JobFinish) answer {
	j, a := t.reported(b.JobRef, b.Host, b.Instance)
	if j == nil {
		return a
	}
	if b.End > command.EndSupervisorDied {
		return refuse(command.BadRequest, "This kind of end is not known; report it again after upgrading the controllers.")
	}
	if len(b.OutputDigest) > maxOutputDigest {
		return refuse(command.BadRequest, "A digest of output has at most %d bytes; report it again so.", maxOutputDigest)
	}
	if j.State.Terminal() {
		return t.lateTruth(j, b)
	}
	t.hear(b.Host)
	e := endingOf(b, j)
	row := *t.endJob(j, e)
	if row.StartedAtMS == 0 && b.End != command.EndStartFailed {
		row.StartedAtMS = t.nowMS() // it ran; the report of its start was overtaken
	}
	setOutput(&row, b)
	t.putJob(row)
	after := rest
	if b.Survivors != "" {
		after = quarantine(model.ReasonFault, clip(b.Survivors))
	}
	l := t.mustLease(row.Lease)
	if len(l.Jobs) > 1 {
		t.begin(l) // its host has spoken of it, and it goes on
		l = t.mustLease(row.Lease)
	}
	t.leaveLease(l, row.Number, after)
	return answer{jobs: []uint64{j.Number}}
}

// endingOf maps what the host reports to the end of the job.
func endingOf(b *command.JobFinish, j *model.Job) ending {
	e := ending{state: model.JobFailed, reason: clip(b.Reason), origin: originOf(b.Origin), code: b.ExitCode}
	switch b.End {
	case command.EndExited:
		if b.ExitCode != nil && *b.ExitCode == 0 {
			e.state = model.JobSucceeded
		}
	case command.EndKilled:
		e.state = model.JobKilled
		if e.reason == "" {
			e.reason = j.KillBy
		}
	case command.EndStartFailed:
		code := int32(-1)
		e.code = &code
	case command.EndSupervisorDied:
		e.state, e.code = model.JobLost, nil
		if e.reason == "" {
			e.reason = "supervisor_died"
		}
	}
	return e
}

func originOf(n uint8) model.Origin {
	if o := model.Origin(n); o <= model.OriginUser {
		return o
	}
	return model.OriginAgent
}

func setOutput(j *model.Job, b *command.JobFinish) {
	if !b.OutputKnown {
		j.Output = model.OutputPartial
		return
	}
	j.OutputKnown, j.OutputLength, j.OutputDigest = true, b.OutputLength, b.OutputDigest
	j.Output = model.OutputStored
	if b.OutputGap {
		j.Output = model.OutputPartial
	}
}

// lateTruth adds to a terminal job what was not known when it ended, once. The
// state and what is known already stay. The code tells the host that its
// report has arrived for good.
func (t *txn) lateTruth(j *model.Job, b *command.JobFinish) answer {
	row, news := *j, false
	if b.ExitCode != nil && b.End != command.EndSupervisorDied && j.ExitCode == nil && j.LateExitCode == nil {
		row.LateExitCode, news = b.ExitCode, true
	}
	if b.OutputKnown && !j.OutputKnown {
		setOutput(&row, b)
		news = true
	}
	if news {
		t.putJob(row)
		t.emit(command.Event{Kind: command.EventJobLateTruth, Job: j.Number, Host: j.Host})
	}
	if b.Survivors != "" {
		t.quarantineAll(j.Devices, clip(b.Survivors))
	}
	a := refuse(command.AlreadyEnded, "Job %s had ended as %s; what was not known of it has been added.", j.ID(), j.State)
	a.jobs = []uint64{j.Number}
	return a
}

// quarantineAll takes devices out of the pool: processes of an ended job are
// still on them. One that another job holds since stays out after it.
func (t *txn) quarantineAll(devices []string, detail string) {
	for _, id := range devices {
		d := t.devices.get(id)
		if d == nil {
			continue
		}
		row := *d
		quarantine(model.ReasonFault, detail)(t, &row)
		if row.State != d.State || row.Reason != d.Reason || row.Detail != d.Detail {
			t.putDevice(row)
		}
	}
}

// jobKill has three outcomes: a queued job is cancelled at once; the host of a
// placed one is asked; a placed one whose host is out of reach is ended here
// under the retain policy, the flag kept for a late return. What runs inside a
// hold goes with it.
func (t *txn) jobKill(b *command.JobKill) answer {
	j, a := t.owned(b.Job, b.By, b.Admin)
	if j == nil {
		return a
	}
	if left := t.View.LiveInside(j.Number); j.State.Terminal() && len(left) > 0 {
		return refuse(command.NotCancellable, "Hold %s has ended as %s and what ran inside, %s, is being ended too; wait for that.", j.ID(), j.State, jobList(left))
	}
	if j.State.Terminal() {
		return refuse(command.NotCancellable, "Job %s has ended as %s; there is nothing left to end.", j.ID(), j.State)
	}
	return t.endByWish(j, byWhom("killed", j, b.By), b.Detached)
}

// endByWish ends a job that has not ended, or has its host asked to.
func (t *txn) endByWish(j *model.Job, by string, detached bool) answer {
	a := answer{jobs: []uint64{j.Number}}
	if j.State == model.JobQueued {
		t.endJob(j, ending{state: model.JobKilled, reason: by, origin: model.OriginUser})
		a.Kill = command.KillCancelled
		return a
	}
	j = t.flagKill(j, by)
	a.Kill = command.KillAsked
	if detached && t.settings.RetainDisconnected && t.outOfReach(j.Host) {
		t.endWithoutHost(j, j.KillBy, "ended")
		a.Kill = command.KillFinalized
	}
	return a
}

// outOfReach reports whether silence about a host may be acted upon: a sweep
// of this epoch's evidence said so, and the holdoff is over.
func (t *txn) outOfReach(host string) bool {
	a := t.agents.get(host)
	return a != nil && a.Silent && t.epochAgeMS() >= t.settings.HoldoffMS
}

// epochAgeMS is the uptime since the epoch began.
func (t *txn) epochAgeMS() int64 { return (t.meta.Uptime - t.meta.EpochUptime) / nsPerMS }
