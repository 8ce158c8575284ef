package agent

import (
	"path/filepath"
	"slices"
	"strings"

	"rcd/agent/shim"
	"rcd/model"
	"rcd/wire"
)

// Several jobs may live under one lease: a hold, and those that run inside it.
// What belongs to the use of the devices is done once for the lease: on_acquire
// before the hold, on_release and the looks at the devices after the last of
// them. Everything else is each job's own.

// holdEnv names the hold that a job runs inside. No job has it that does not.
const holdEnv = "RC_HOLD_ID"

// holdIn returns the number of the hold in a job's environment, 0 for none. An
// agent before protocol 4 let a submitter set it: it says something only beside a
// job of that number and the same lease.
func holdIn(env []string) uint64 {
	for _, entry := range env {
		if id, ok := strings.CutPrefix(entry, holdEnv+"="); ok {
			hold, _ := model.ParseJobID(id)
			return hold
		}
	}
	return 0
}

// reasonHoldEnded is why a job inside a hold is ended with it, in the lease
// table's words.
func reasonHoldEnded(hold uint64) string { return "hold " + model.JobID(hold) + " ended" }

// originOfKill is originOfKill for a job that may have been ended with its hold:
// where the box has ended that, it has ended the job too, and nobody wished for it.
func (a *agent) originOfKill(j *job, reason string) uint8 {
	if j.hold != 0 && reason == reasonHoldEnded(j.hold) {
		switch origin := model.Origin(a.holdEnd(j).Origin); origin {
		case model.OriginAgent, model.OriginDevice, model.OriginHost:
			return uint8(origin)
		}
	}
	return originOfKill(reason)
}

// holdEnd is the outcome of the hold that a job runs inside, zero if there is none
// yet. The hold may have been told already: its record is kept for as long as the
// job is there.
func (a *agent) holdEnd(j *job) wire.Outcome {
	k := key{j.hold, j.lease}
	a.mu.Lock()
	if j.holdOver != nil {
		defer a.mu.Unlock()
		return *j.holdOver
	}
	hold := a.jobs[k]
	if hold != nil && hold.outcome != nil {
		defer a.mu.Unlock()
		return *hold.outcome
	}
	var h *shim.Handle
	if hold != nil {
		h = hold.handle
	}
	a.mu.Unlock()
	if hold == nil {
		hold = a.newJob(k, nil)
		var o wire.Outcome
		if readRecord(filepath.Join(hold.dir, outcomeFile), kindOutcome, &o) == nil {
			return o
		}
		if h = a.ran(hold); h != nil {
			defer h.Close()
		}
	}
	if h != nil {
		if r, err := h.Result(); err == nil {
			return outcomeOf(hold, r)
		}
	}
	return wire.Outcome{}
}

// use is how far a job has come with its devices.
type use uint8

const (
	useComing use = iota // it has not touched them
	useNow               // it may have processes there
	useOver              // it has none any more
)

// holdsFor reports whether a hold still takes jobs in. The caller holds mu.
func (j *job) holdsFor() bool {
	return j != nil && j.outcome == nil && j.killing == "" && j.use != useOver
}

// inhabits decides whether a job may come to the hold that it is to run inside,
// and returns the code and the sentence of a refusal. A hold that is over does
// not refuse it: it ends it. The caller holds mu.
func (a *agent) inhabits(j *job) (code, message string) {
	hold := a.jobs[key{j.hold, j.lease}]
	switch {
	case hold == nil && slices.ContainsFunc(j.devices, func(d string) bool { return a.state.begun(d) < j.lease }):
		return orderBusy, "hold " + model.JobID(j.hold) + " has not come here yet"
	case !hold.holdsFor():
		a.kill(j, reasonHoldEnded(j.hold))
	case !slices.Equal(hold.devices, j.devices):
		return wire.OrderFailed, "hold " + model.JobID(j.hold) + " has other devices"
	}
	return "", ""
}

// awaitHold waits until the hold of a job runs. It returns false when j is not
// to be started, and has its outcome then unless the agent stops.
func (a *agent) awaitHold(j *job) bool {
	for {
		a.mu.Lock()
		hold, wake := a.jobs[key{j.hold, j.lease}], a.wake
		if !hold.holdsFor() {
			a.kill(j, reasonHoldEnded(j.hold))
		}
		reason := j.killing
		ready := hold != nil && hold.phase == wire.PhaseRunning
		a.mu.Unlock()
		switch {
		case reason != "":
			a.cancelled(j, reason)
			return false
		case ready:
			return true
		}
		select {
		case <-wake:
		case <-j.cancel:
		case <-a.ctx.Done():
			return false
		}
	}
}

// touches notes that a job comes to its devices, and returns why it must not if
// the hold that it was to run inside is over: from then on nothing comes, so that
// somebody is the last to leave.
func (a *agent) touches(j *job) (killed string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j.hold != 0 && !a.jobs[key{j.hold, j.lease}].holdsFor() {
		a.kill(j, reasonHoldEnded(j.hold))
		return j.killing
	}
	j.use = useNow
	return ""
}

// leaves notes that a job's processes are gone, and reports whether nothing of
// its lease is left on the devices. Of several that end together it is true for
// exactly one.
func (a *agent) leaves(j *job) (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	j.use = useOver
	a.endInside(j)
	return !a.shared(j)
}

// shared reports whether another job of the same lease is on the devices. The
// caller holds mu.
func (a *agent) shared(j *job) bool {
	for _, other := range a.jobs {
		if other != j && other.lease == j.lease && other.outcome == nil && other.use == useNow {
			return true
		}
	}
	return false
}

// endInside ends what runs inside a hold that is over. The lease table asks for
// the same; the host need not wait for it. The caller holds mu.
func (a *agent) endInside(j *job) {
	for _, other := range a.jobs {
		if other.hold == j.job && other.lease == j.lease {
			other.holdOver = j.outcome
			a.kill(other, reasonHoldEnded(j.job))
		}
	}
}
