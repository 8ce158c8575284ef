package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"rcd/agent/probe"
	"rcd/wire"
)

const (
	// stateEvery is how often each GPU is asked what it remembers of its errors:
	// for what no event tells, and where there are no events.
	stateEvery = 10 * time.Second
	// stateTimeout bounds one such question. The probe's own patience is shorter.
	stateTimeout = 8 * time.Second
	// watchAgain is the pause before a watch that could not go on begins again: a
	// driver that is being reloaded takes seconds.
	watchAgain = 5 * time.Second
)

// gpuHealth hears what the host's GPUs complain of, and looks at what is left on
// them after a job. What an error means for job and device is in xid.go, the
// look in gpu_verify.go.
type gpuHealth struct {
	log      *slog.Logger
	lib      probe.Health // nil: this build has none, and nothing here does anything
	devices  []string
	verifies func() bool                     // whether to look after each job, at this moment
	within   time.Duration                   // in which a GPU must be clean then
	again    time.Duration                   // see watchAgain
	site     func() map[uint64]probe.Meaning // what the host says, at this moment
	// uuid returns what a device is, "" for no GPU that is known.
	uuid func(device string) string
	// holders returns the jobs that a device belongs to now, all of one lease; nil:
	// nobody's.
	holders func(device string) []key
	// fault takes a device out of the pool; untold are the faults that no leader
	// has taken yet.
	fault  func(device, detail string)
	untold func() []wire.DeviceFault

	mu   sync.Mutex // guards what follows
	seen map[string]*gpuSeen
}

// gpuSeen is what is known of the GPU of one device.
type gpuSeen struct {
	answered bool        // once at least, to this agent
	lost     bool        // as the driver said last
	state    probe.State // as of the last look
	looked   bool        // there was one
	heard    map[uint64]time.Time
	// errors are those of each job that has the device, or had it until a moment
	// ago.
	errors map[key]*gpuErrors
	// Of the look after a lease.
	before   *gpuBefore // nil: the lease began under another agent
	since    uint64     // when it did, then, in ticks since boot; 0: not known
	idle     uint64     // bytes in use with no job and in no process
	idleSeen bool
}

func newGPUHealth(a *agent) *gpuHealth {
	g := &gpuHealth{log: a.log, within: verifyGPUFor, again: watchAgain, holders: a.holders, untold: a.Faults, seen: map[string]*gpuSeen{}}
	g.lib, _ = a.deps.GPUs.(probe.Health)
	g.verifies = func() bool { return !a.settings().Verify.NoGPU }
	for _, d := range a.config.Devices {
		g.devices = append(g.devices, d.Name)
	}
	g.uuid = a.gpus.uuid
	g.site = func() map[uint64]probe.Meaning {
		site := map[uint64]probe.Meaning{}
		for number, m := range a.settings().XIDs {
			site[number] = probe.Meaning(m)
		}
		return site
	}
	g.fault = func(device, detail string) {
		if err := a.fault([]string{device}, detail); err != nil {
			a.log.Error("fault of a device not kept on disk; it stands as long as this agent runs", "device", device, "error", err)
		}
	}
	return g
}

// knows reports whether a device is a GPU that can be looked at.
func (g *gpuHealth) knows(device string) bool { return g.lib != nil && g.uuid(device) != "" }

// applies reports whether any device is.
func (g *gpuHealth) applies() bool { return slices.ContainsFunc(g.devices, g.knows) }

// checks are what is done after each job. The errors come last, so that those
// count that come with the job's end.
func (g *gpuHealth) checks() []check {
	return []check{
		{name: "what is left on the GPU", lease: true, applies: func() bool { return g.verifies() && g.applies() }, look: g.verify},
		{name: "errors of the GPU", applies: g.applies, look: g.checkErrors},
	}
}

// of returns what is known of a device. The caller holds mu.
func (g *gpuHealth) of(device string) *gpuSeen {
	s := g.seen[device]
	if s == nil {
		s = &gpuSeen{heard: map[uint64]time.Time{}, errors: map[key]*gpuErrors{}}
		g.seen[device] = s
	}
	return s
}

// run listens to every device until ctx ends.
func (g *gpuHealth) run(ctx context.Context) {
	if g.lib == nil {
		return
	}
	var wait sync.WaitGroup
	for _, device := range g.devices {
		wait.Go(func() { g.listen(ctx, device) })
	}
	wait.Wait()
}

// listen hears the errors of one device as they happen. It begins anew when the
// driver comes back, and a device that becomes a GPU later is heard from then
// on.
func (g *gpuHealth) listen(ctx context.Context, device string) {
	quiet := false
	for ctx.Err() == nil {
		if uuid := g.uuid(device); uuid != "" {
			err := g.lib.Watch(ctx, uuid, func(e probe.Event) {
				quiet = false
				g.heard(device, e)
			})
			switch {
			case ctx.Err() != nil:
			case errors.Is(err, probe.ErrNoEvents):
				g.log.Info("the GPU reports no errors as they happen; its counters are looked at", "device", device, "every", stateEvery, "reason", err)
				return
			case errors.Is(err, probe.ErrLost):
				g.lost(device, err, false)
			case !quiet && !errors.Is(err, probe.ErrAbsent):
				quiet = true
				g.log.Warn("errors of the GPU are not heard of until its driver answers", "device", device, "error", err)
			}
		}
		select {
		case <-time.After(g.again):
		case <-ctx.Done():
		}
	}
}

// sources asks the GPUs for what they remember, and tells of it as labels.
func (g *gpuHealth) sources() []Source {
	if g.lib == nil {
		return nil
	}
	return []Source{{Name: "GPU health", Every: stateEvery, Timeout: stateTimeout, Detect: func(ctx context.Context) (Labels, error) {
		g.look(ctx, g.devices)
		return g.labels(), nil
	}}}
}

// look asks all the devices at once what they remember. Of one that does not
// answer the last word stands.
func (g *gpuHealth) look(ctx context.Context, devices []string) {
	var wait sync.WaitGroup
	for _, device := range devices {
		if !g.knows(device) {
			continue
		}
		wait.Go(func() {
			state, err := g.lib.State(ctx, g.uuid(device))
			switch {
			case errors.Is(err, probe.ErrLost):
				g.lost(device, err, false)
			case err != nil:
				g.log.Debug("state of the GPU not read; the last one stands", "device", device, "error", err)
			default:
				g.remembered(device, state)
			}
		})
	}
	wait.Wait()
}

// lost hears that a GPU does not work any more, once until it does again; anew:
// whatever was heard before.
func (g *gpuHealth) lost(device string, err error, anew bool) {
	g.mu.Lock()
	s := g.of(device)
	news := anew || !s.lost
	s.answered, s.lost = true, true
	g.mu.Unlock()
	if news {
		g.heard(device, probe.Event{XID: probe.XIDOffTheBus, Detail: err.Error()})
	}
}

// remembered compares what a GPU remembers with what it did before. What it
// remembers when this agent first looks is old if it is a number, and needs a
// person all the same if it is a condition.
func (g *gpuHealth) remembered(device string, now probe.State) {
	g.mu.Lock()
	s := g.of(device)
	was, looked := s.state, s.looked
	s.answered, s.lost, s.state, s.looked = true, false, now, true
	g.mu.Unlock()
	if looked && now.Uncorrected > was.Uncorrected {
		g.heard(device, probe.Event{XID: probe.XIDDoubleBit, Detail: fmt.Sprintf("%d more by the GPU's counter", now.Uncorrected-was.Uncorrected)})
	}
	if now.RemapPending && !was.RemapPending {
		g.heard(device, probe.Event{XID: probe.XIDRemapped, Detail: "waits for a reset of the GPU"})
	}
	if now.RemapFailed && !was.RemapFailed {
		g.heard(device, probe.Event{XID: probe.XIDRemapFailed})
	}
	if now.Recovery != "" && now.Recovery != was.Recovery {
		g.heard(device, probe.Event{XID: probe.XIDRecoveryWish, Detail: now.Recovery})
	}
}

// Labels of a GPU's state; one that does not apply is not there.
const (
	labelRemapPending = "remap_pending"
	labelRemapFailed  = "remap_failed"
)

func (g *gpuHealth) labels() Labels {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := Labels{}
	for device, s := range g.seen {
		set := map[string]string{}
		if s.state.RemapPending {
			set[labelRemapPending] = strconv.FormatBool(true)
		}
		if s.state.RemapFailed {
			set[labelRemapFailed] = strconv.FormatBool(true)
		}
		all[device] = set
	}
	return all
}
