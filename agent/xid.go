package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	// errorsKept is how long it is remembered that a job's errors are in its outcome,
	// which is then about to be told.
	errorsKept = time.Minute
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
	beside string // who else had the GPU when it came first, for people
}

// gpuErrors are what a GPU reported while a job had it.
type gpuErrors struct {
	list      []gpuError
	concluded time.Time // when they were taken into the job's outcome; zero before
}

// String returns the error as it stands in a reason or a fault.
func (e gpuError) String() string {
	if e.detail == "" {
		return e.xid.String()
	}
	return e.xid.String() + ": " + e.detail
}

// holders returns the jobs that a device belongs to: of several leases those of
// the earliest, because the later ones wait until it is over. A hold with jobs
// inside is none of them. Sorted by job.
func (a *agent) holders(device string) (all []key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	inside := false
	for _, j := range a.jobs {
		if j.outcome != nil || !slices.Contains(j.devices, device) || len(all) > 0 && j.lease > all[0].lease {
			continue
		}
		if len(all) > 0 && j.lease < all[0].lease {
			all, inside = nil, false
		}
		switch {
		case j.hold != 0 && j.use == useComing: // it waits for the hold, or is about to begin
		case j.hold != 0 && !inside:
			all, inside = []key{j.key}, true
		case j.hold != 0 || !inside:
			all = append(all, j.key)
		}
	}
	slices.SortFunc(all, func(x, y key) int { return cmp.Compare(x.job, y.job) })
	return all
}

// heard takes an error of a device's GPU: for the reasons of the jobs that have
// the device, since the driver does not say whose it is, and, by what it means,
// for a fault.
func (g *gpuHealth) heard(device string, e probe.Event) {
	err := gpuError{xid: probe.LookUp(e.XID, g.site()), detail: e.Detail, times: 1}
	if err.xid.Meaning == probe.MeansIgnore {
		g.log.Debug("error of a GPU ignored", "device", device, "error", err)
		return
	}
	holders := g.holders(device)
	g.mu.Lock()
	s := g.of(device)
	again := time.Since(s.heard[e.XID]) < xidPause && !s.heard[e.XID].IsZero()
	if !again {
		if len(s.heard) >= maxHeard {
			clear(s.heard)
		}
		s.heard[e.XID] = time.Now()
	}
	holders = slices.DeleteFunc(holders, func(k key) bool { e := s.errors[k]; return e != nil && !e.concluded.IsZero() })
	whose := jobIDs(holders)
	if len(holders) == 0 {
		whose = "no job"
		if k, ok := s.justEnded(); ok {
			whose += "; " + model.JobID(k.job) + " had just ended"
		}
	}
	if len(holders) > 0 { // a job of an earlier lease that never began has nobody to conclude them
		maps.DeleteFunc(s.errors, func(k key, e *gpuErrors) bool { return e.concluded.IsZero() && k.lease < holders[0].lease })
	}
	for _, k := range holders {
		err.beside = jobIDs(slices.DeleteFunc(slices.Clone(holders), func(other key) bool { return other == k }))
		fresh := s.add(k, err)
		again = again && !fresh
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
	e := s.errors[job]
	if e == nil {
		e = &gpuErrors{}
		s.errors[job] = e
	}
	for i := range e.list {
		if e.list[i].xid.Number == err.xid.Number {
			e.list[i].times++
			return false
		}
	}
	if len(e.list) == maxGPUErrors {
		return false
	}
	e.list = append(e.list, err)
	return true
}

// justEnded returns the job whose errors were concluded last, if that was a moment
// ago. The caller holds the lock of the gpuHealth.
func (s *gpuSeen) justEnded() (last key, ok bool) {
	for k, e := range s.errors {
		if time.Since(e.concluded) < xidLate && (!ok || e.concluded.After(s.errors[last].concluded)) {
			last, ok = k, true
		}
	}
	return last, ok
}

func jobIDs(keys []key) string {
	var ids []string
	for _, k := range keys {
		ids = append(ids, model.JobID(k.job))
	}
	return strings.Join(ids, ", ")
}

// errorsOf returns what the job's devices reported. With conclude set whatever
// they report from now on is not the job's any more.
func (g *gpuHealth) errorsOf(j *job, conclude bool) map[string][]gpuError {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string][]gpuError{}
	for _, device := range j.devices {
		s := g.of(device)
		if e := s.errors[j.key]; e != nil && len(e.list) > 0 {
			all[device] = e.list
		}
		if conclude {
			maps.DeleteFunc(s.errors, func(_ key, e *gpuErrors) bool { return !e.concluded.IsZero() && time.Since(e.concluded) >= errorsKept })
			s.errors[j.key] = &gpuErrors{concluded: time.Now()}
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
			if e.beside != "" {
				times += " (" + e.beside + " had it as well)"
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
