package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rcd/agent/probe"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

const (
	// xidPause is how long an error that came before counts for one: a program that
	// goes on after its errors makes thousands a second.
	xidPause = 10 * time.Second
	// xidSettle is how long the end of a failed job waits for the error that it
	// failed of: the program may be told before we are.
	xidSettle = 250 * time.Millisecond
	// xidLate is how long after a job an error is still said to follow it. It is
	// not in the job's reason then, which is told already.
	xidLate = 5 * time.Second
	// maxGPUErrors bounds the different errors that are kept of one job and device.
	maxGPUErrors = 8
	// maxHeard bounds the numbers for which the last time is kept.
	maxHeard = 64
	// faultTold is how long the end of a job waits until the leader has taken a
	// fault of one of its devices: the outcome must not give that away first.
	faultTold = 2 * time.Second
)

// gpuError is an error that a GPU reported while a job had it.
type gpuError struct {
	xid    probe.XID
	detail string
	times  int
}

// String returns the error as it stands in a reason or a fault.
func (e gpuError) String() string {
	if e.detail == "" {
		return e.xid.String()
	}
	return e.xid.String() + ": " + e.detail
}

// holder returns the job that a device belongs to: of several the earliest,
// because the later ones wait until it is over.
func (a *agent) holder(device string) (key, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first *job
	for _, j := range a.jobs {
		if j.outcome == nil && slices.Contains(j.devices, device) && (first == nil || j.lease < first.lease) {
			first = j
		}
	}
	if first == nil {
		return key{}, false
	}
	return first.key, true
}

// heard takes an error of a device's GPU: for the reason of the job that has the
// device, and, by what it means, for a fault.
func (g *gpuHealth) heard(device string, e probe.Event) {
	err := gpuError{xid: probe.LookUp(e.XID, g.site()), detail: e.Detail, times: 1}
	if err.xid.Meaning == probe.MeansIgnore {
		g.log.Debug("error of a GPU ignored", "device", device, "error", err)
		return
	}
	holder, held := g.holder(device)
	g.mu.Lock()
	s := g.of(device)
	again := time.Since(s.heard[e.XID]) < xidPause && !s.heard[e.XID].IsZero()
	if !again {
		if len(s.heard) >= maxHeard {
			clear(s.heard)
		}
		s.heard[e.XID] = time.Now()
	}
	var whose string
	switch {
	case held && (s.job != holder || s.concluded.IsZero()):
		fresh := s.add(holder, err)
		again = again && !fresh
		whose = model.JobID(holder.job)
	case !s.concluded.IsZero() && time.Since(s.concluded) < xidLate:
		whose = "no job; " + model.JobID(s.job.job) + " had just ended"
	default:
		whose = "no job"
	}
	g.mu.Unlock()
	if again {
		return
	}
	g.log.Warn("error of a GPU", "device", device, "error", err, "means", err.xid.Meaning, "while_held_by", whose)
	if err.xid.Meaning == probe.MeansDevice {
		g.fault(device, fmt.Sprintf("%s; GPU %s, held by %s", err, g.uuid(device), whose))
	}
}

// add keeps an error for the outcome of a job, and reports whether the job had
// none like it. The caller holds the lock of the gpuHealth.
func (s *gpuSeen) add(job key, err gpuError) bool {
	if s.job != job {
		s.job, s.errors, s.concluded = job, nil, time.Time{}
	}
	for i := range s.errors {
		if s.errors[i].xid.Number == err.xid.Number {
			s.errors[i].times++
			return false
		}
	}
	if len(s.errors) == maxGPUErrors {
		return false
	}
	s.errors = append(s.errors, err)
	return true
}

// errorsOf returns what the job's devices reported. With conclude set whatever
// they report from now on is not the job's any more.
func (g *gpuHealth) errorsOf(j *job, conclude bool) map[string][]gpuError {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string][]gpuError{}
	for _, device := range j.devices {
		s := g.of(device)
		if s.job == j.key && len(s.errors) > 0 {
			all[device] = s.errors
		}
		if conclude {
			s.job, s.errors, s.concluded, s.before = j.key, nil, time.Now(), nil
		}
	}
	return all
}

// checkErrors puts what the job's GPUs reported into its outcome.
func (g *gpuHealth) checkErrors(ctx context.Context, j *job, o wire.Outcome) finding {
	if !slices.ContainsFunc(j.devices, g.knows) {
		return finding{}
	}
	look, cancel := context.WithTimeout(ctx, beforeTimeout)
	g.look(look, j.devices)
	cancel()
	if len(g.errorsOf(j, false)) == 0 && failed(o) {
		select {
		case <-time.After(xidSettle):
		case <-ctx.Done():
			return finding{}
		}
	}
	all := g.errorsOf(j, true)
	var f finding
	var notes []string
	faults := map[string]string{}
	for _, device := range j.devices {
		for _, e := range all[device] {
			times := ""
			if e.times > 1 {
				times = fmt.Sprintf(", %d times", e.times)
			}
			notes = append(notes, fmt.Sprintf("%s reported %s%s", device, e, times))
			if e.xid.Meaning == probe.MeansDevice {
				f.origin = model.OriginDevice
				faults[device] = joined(faults[device], e.String())
			}
		}
	}
	f.note = strings.Join(notes, "; ")
	f.fault = g.takeOut(ctx, j, "", faults, func(string, string) {})
	return f
}

// takeOut takes those of a job's devices out of the pool that have a text, which
// prefix begins, and returns the fault for the job's outcome: that takes all of
// the job's devices. So where only some are at fault, each is faulted by itself
// with fault, and the outcome waits until the leader has taken that. If it does
// not, all go: rather one too many than the broken one given away.
func (g *gpuHealth) takeOut(ctx context.Context, j *job, prefix string, faults map[string]string, fault func(device, detail string)) string {
	var texts []string
	for _, device := range j.devices {
		if text := faults[device]; text != "" {
			texts = append(texts, device+": "+text)
			if len(faults) < len(j.devices) {
				fault(device, prefix+device+": "+text)
			}
		}
	}
	if len(texts) == 0 || len(texts) < len(j.devices) && g.faultsTold(ctx, j) {
		return ""
	}
	return prefix + strings.Join(texts, "; ")
}

func (g *gpuHealth) meansDevice(xid uint64) bool {
	return probe.LookUp(xid, g.site()).Meaning == probe.MeansDevice
}

// failed reports whether a job came to a bad end that was not asked for.
func failed(o wire.Outcome) bool {
	if model.Origin(o.Origin) != model.OriginJob {
		return false
	}
	return command.EndKind(o.End) != command.EndExited || o.ExitCode == nil || *o.ExitCode != 0
}

// faultsTold waits until the leader has taken the faults of a job's devices, and
// returns false if it does not within faultTold.
func (g *gpuHealth) faultsTold(ctx context.Context, j *job) bool {
	timer, tick := time.NewTimer(faultTold), time.NewTicker(20*time.Millisecond)
	defer timer.Stop()
	defer tick.Stop()
	for {
		if !slices.ContainsFunc(g.untold(), func(f wire.DeviceFault) bool { return slices.Contains(j.devices, f.Device) }) {
			return true
		}
		select {
		case <-tick.C:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
