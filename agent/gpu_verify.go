package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"rcd/agent/probe"
	"rcd/agent/proc"
	"rcd/agent/shim"
	"rcd/wire"
)

const (
	// verifyGPUFor is how long the driver may take to give back what a process had
	// that is gone: it takes a second or two for a large one, more for many at once.
	verifyGPUFor = 10 * time.Second
	// verifyGPUAgain is the pause between two looks.
	verifyGPUAgain = 200 * time.Millisecond
	// beforeTimeout bounds the look before a job, which holds up its start.
	beforeTimeout = 2 * time.Second
	// A GPU is clean with so much memory more in use than before any job, or so
	// many percent: contexts of the driver come and go.
	slackBytes   = 256 << 20
	slackPercent = 1
)

// verifyPrefix begins every fault of this look.
const verifyPrefix = "verify failed: gpu: "

// system are short names of processes that serve every job on a GPU and may
// begin with one: the X server and what draws through it, the MPS server, and
// NVIDIA's own monitor. The kernel cuts names to 15 bytes.
var system = map[string]bool{
	"Xorg": true, "Xwayland": true, "gnome-shell": true,
	"nvidia-cuda-mps": true, "nvidia-persiste": true, "nv-hostengine": true,
}

// gpuBefore is what was on a GPU just before a job.
type gpuBefore struct {
	processes map[proc.ID]bool
}

// identify returns the process that a GPU names. One that is not to be seen from
// here has its number alone.
func identify(p probe.Process) proc.ID {
	if probe.SeesHostPIDs() {
		if id, err := proc.Identify(p.PID); err == nil {
			return id
		}
	}
	return proc.ID{PID: p.PID}
}

// rest returns how much of the memory is in use by none of the processes.
func rest(use probe.Use) uint64 {
	left := use.UsedBytes
	for _, p := range use.Processes {
		left -= min(left, p.UsedBytes)
	}
	return left
}

// lookBefore remembers what is on a job's GPUs before it begins, the first of its
// lease: that is not the job's. A GPU that does not answer in time keeps the job from nothing.
func (g *gpuHealth) lookBefore(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(ctx, beforeTimeout)
	defer cancel()
	var wait sync.WaitGroup
	for _, device := range j.devices {
		if !g.verifies() || !g.knows(device) {
			continue
		}
		g.mu.Lock()
		g.of(device).before = nil
		g.mu.Unlock()
		wait.Go(func() {
			use, err := g.lib.Use(ctx, g.uuid(device))
			if errors.Is(err, probe.ErrAbsent) {
				return // the look after the job tells
			}
			if err != nil {
				g.log.Warn("GPU not looked at before a job", "device", device, "job", j.job, "error", err)
				return
			}
			before := &gpuBefore{processes: map[proc.ID]bool{}}
			for _, p := range use.Processes {
				before.processes[identify(p)] = true
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			s := g.of(device)
			s.answered, s.before = true, before
			// The least that was ever seen: what one job after the other leaves must not
			// add up unseen.
			if left := rest(use); !s.idleSeen || left < s.idle {
				s.idle, s.idleSeen = left, true
			}
		})
	}
	wait.Wait()
}

// verify is the check that the job's GPUs are as they were before it. A GPU that
// does not answer is not proven clean.
func (g *gpuHealth) verify(ctx context.Context, j *job, _ wire.Outcome) finding {
	look, cancel := context.WithTimeout(ctx, g.within)
	defer cancel()
	found := make([]string, len(j.devices))
	var wait sync.WaitGroup
	for i, device := range j.devices {
		if g.knows(device) {
			wait.Go(func() { found[i] = g.untilClean(look, j, device) })
		}
	}
	wait.Wait()
	faults := map[string]string{}
	for i, text := range found {
		if text != "" {
			faults[j.devices[i]] = text
		}
	}
	return finding{fault: g.takeOut(ctx, j, verifyPrefix, faults, g.fault)}
}

// untilClean looks at a GPU until nothing is left of the job, or ctx ends, and
// returns what is left then.
func (g *gpuHealth) untilClean(ctx context.Context, j *job, device string) (left string) {
	for {
		use, err := g.lib.Use(ctx, g.uuid(device))
		g.mu.Lock()
		s := g.of(device)
		s.answered = s.answered || err == nil || errors.Is(err, probe.ErrLost)
		seen := *s
		g.mu.Unlock()
		switch {
		case err == nil:
			left = g.judge(use, seen)
		case errors.Is(err, probe.ErrAbsent) && !seen.answered:
			g.log.Warn("GPU not looked at after a job: the driver's library is not there", "device", device, "job", j.job, "error", err)
			return ""
		case errors.Is(err, probe.ErrLost) && g.meansDevice(probe.XIDOffTheBus):
			g.lost(device, err, true) // which is a fault
			return ""
		case ctx.Err() == nil || left == "":
			left = fmt.Sprintf("the driver does not answer after the job (%v); look at dmesg, and reset the GPU or reboot before you return it", err)
		}
		if left == "" || ctx.Err() != nil {
			return left
		}
		select {
		case <-time.After(verifyGPUAgain):
		case <-ctx.Done():
			return left
		}
	}
}

// judge says what is on a GPU that should not be, "" if it is clean.
func (g *gpuHealth) judge(use probe.Use, seen gpuSeen) string {
	var parts []string
	for _, p := range use.Processes {
		if !mayStay(p, seen.before, seen.since) {
			parts = append(parts, stranger(p))
		}
	}
	slack := max(slackBytes, use.TotalBytes/100*slackPercent)
	// What an older driver keeps for itself is not known before an idle look.
	if left := rest(use); (use.Exact || seen.idleSeen) && left > seen.idle+slack {
		parts = append(parts, fmt.Sprintf("%d MiB in use by no process that the driver names (%d MiB before any job)", left>>20, seen.idle>>20))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ") + " after the job"
}

// mayStay reports whether a process on a GPU is none of the job's business: one
// that was there before, or serves all jobs. Of a lease that began under another
// agent only the time is known at which it did.
func mayStay(p probe.Process, before *gpuBefore, since uint64) bool {
	if system[p.Command] {
		return true
	}
	id := identify(p)
	if before != nil {
		return before.processes[id]
	}
	return id.Start != 0 && id.Start < since
}

// began notes since when a job may have processes on its devices; of those of a
// lease the first counts.
func (g *gpuHealth) began(j *job, h *shim.Handle) {
	since := h.Tree().Since
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, device := range j.devices {
		if s := g.of(device); s.since == 0 || since < s.since {
			s.since = since
		}
	}
}

// leaseOver forgets what was on the devices before the lease of a job, which was
// the last one.
func (g *gpuHealth) leaseOver(j *job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, device := range j.devices {
		s := g.of(device)
		s.before, s.since = nil, 0
	}
}

// stranger describes a process that is left on a GPU.
func stranger(p probe.Process) string {
	name := p.Command
	switch {
	case name != "":
	case probe.SeesHostPIDs():
		name = "gone from the process table"
	default:
		name = "a process outside this PID namespace"
	}
	if p.UsedBytes == 0 {
		return fmt.Sprintf("in use by pid %d (%s)", p.PID, name)
	}
	return fmt.Sprintf("%d MiB in use by pid %d (%s)", p.UsedBytes>>20, p.PID, name)
}
