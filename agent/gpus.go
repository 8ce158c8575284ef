package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rcd/agent/probe"
)

const (
	// gpusEvery is the time between two looks at the GPUs; gpusTimeout is above
	// what the patience of a probe adds up to.
	gpusEvery   = 10 * time.Second
	gpusTimeout = 30 * time.Second
	// silentFor is how long a GPU may say nothing before its device is taken out
	// of the pool. Firmware that is loaded, or a neighbour that is reset, holds a
	// driver up for some ten seconds.
	silentFor = 2 * time.Minute
	// absentFor is the same for a driver that is not there, although it was when
	// the devices were bound: after a boot it may be loaded late.
	absentFor = 30 * time.Second
	// firstLook bounds a look that the agent's start waits for.
	firstLook = 3 * time.Second
	// gpusAgain is the pause between two looks for the first GPU.
	gpusAgain = time.Second
)

// ErrNoGPU says that devices: auto has found nothing to declare.
var ErrNoGPU = errors.New("devices: auto found no GPU")

// gpus is which GPU each device of the host is, and whether it is there. It
// looks as a source of labels does.
type gpus struct {
	lib    probe.Library // nil: this agent looks for no GPUs
	config Config        // Devices as the file has them
	state  *state
	fault  func(devices []string, detail string) error
	log    *slog.Logger

	mu       sync.Mutex // guards what follows
	declared []Device
	bound    map[string]binding
	seen     map[string]bool      // its GPU has answered to this process
	unfit    map[string]string    // why a device must not be used
	silent   map[string]time.Time // since when its GPU does not answer
	noticed  map[string]bool
	news     chan struct{} // closed and replaced after each look
}

// newGPUs knows what was kept, and has looked at nothing yet.
func newGPUs(a *agent) *gpus {
	return &gpus{
		lib: a.deps.GPUs, config: a.config, state: a.state, fault: a.fault, log: a.log, declared: a.config.Devices, bound: a.state.boundDevices(),
		seen: map[string]bool{}, unfit: map[string]string{}, silent: map[string]time.Time{}, noticed: map[string]bool{}, news: make(chan struct{}),
	}
}

// declare returns the devices of the host. Only with devices: auto that takes a
// look: a short one when they are known from before, else as many as it takes,
// within absentFor. Where the record of them is lost and no GPU answers, they are
// those that leases have begun on, all of them out of the pool: jobs that run
// need an agent. The error wraps ErrNoGPU.
func (g *gpus) declare(ctx context.Context) ([]Device, error) {
	if !g.config.Auto {
		return g.declared, nil
	}
	known := g.bound
	g.declared = declare(g.config.Devices, true, known)
	var lost []string
	if g.state.bindingsLost() {
		lost = g.state.begunDevices()
	}
	s, err := g.first(ctx, len(g.declared)+len(lost) > 0)
	if err == nil {
		g.declared = declare(g.config.Devices, true, s.bindings)
		if err := g.take(s, known); err != nil { // the looks that follow try again
			g.log.Error("which GPU each device is could not be kept; no job begins on them before that", "error", err)
		}
	}
	if len(g.declared) > 0 {
		return g.declared, nil
	}
	if err == nil {
		err = errors.New("the driver shows none")
	}
	if len(lost) > 0 { // jobs may still run on them
		for _, name := range lost {
			g.declared = append(g.declared, Device{Name: name})
		}
		detail := fmt.Sprintf("which GPU this was could not be read (%s.corrupt in the data directory), and no GPU answers: %v; see what nvidia-smi says, restart the agent, then return the device", bindingsFile, err)
		if err := g.fault(lost, detail); err != nil {
			g.log.Error("faults of devices not on disk; they are said for as long as this agent runs", "devices", lost, "error", err)
		}
		return g.declared, nil
	}
	return nil, fmt.Errorf("%w: %w; see what nvidia-smi says, or list the devices by name", ErrNoGPU, err)
}

// first is the look before there are devices. Once is enough when some are
// known.
func (g *gpus) first(ctx context.Context, once bool) (sight, error) {
	if g.lib == nil {
		return sight{}, probe.ErrAbsent
	}
	for deadline := time.Now().Add(absentFor); ; {
		look, cancel := context.WithTimeout(ctx, firstLook)
		seen, err := g.lib.GPUs(look)
		cancel()
		if ctx.Err() != nil {
			return sight{}, ctx.Err()
		}
		if once || len(seen) > 0 || time.Now().After(deadline) {
			return bind(g.config.Devices, true, g.bound, seen), err
		}
		select {
		case <-time.After(gpusAgain):
		case <-ctx.Done():
		}
	}
}

// source looks at the GPUs, and detects their labels.
func (g *gpus) source() Source {
	return Source{Name: "nvidia", Every: gpusEvery, Timeout: gpusTimeout, Detect: g.look}
}

// look asks for all GPUs and acts on what has become of the devices.
func (g *gpus) look(ctx context.Context) (Labels, error) {
	seen, err := g.lib.GPUs(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		if !g.unseen(err) && errors.Is(err, probe.ErrAbsent) {
			return nil, nil // a host without GPUs
		}
		return nil, err
	}
	g.mu.Lock()
	known := g.bound
	g.mu.Unlock()
	s := bind(g.config.Devices, g.config.Auto, known, seen)
	if err := g.take(s, known); err != nil {
		return nil, err
	}
	labels := Labels{}
	for name, u := range s.found {
		labels[name] = u.facts
	}
	for name, u := range s.silent {
		labels[name] = u.facts
	}
	return labels, nil
}

// take acts on a look. What a person must know is on disk before the binding
// that makes it look well again.
func (g *gpus) take(s sight, known map[string]binding) error {
	if len(known) == 0 && len(s.bindings) > 0 && g.state.bindingsLost() {
		for name, r := range s.bindings {
			s.swapped[name] = fmt.Sprintf("which GPU %s was could not be read (%s.corrupt in the data directory) and it is %s now; look whether that is the one that is meant, and that nothing runs on it, then return the device",
				name, bindingsFile, r.UUID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.swapped)) {
		if err := g.fault([]string{name}, s.swapped[name]); err != nil {
			return err
		}
	}
	if !maps.Equal(s.bindings, known) {
		for _, name := range slices.Sorted(maps.Keys(s.bindings)) {
			if r := s.bindings[name]; r.UUID != known[name].UUID {
				g.log.Info("device is bound to a GPU", "device", name, "uuid", r.UUID, "pci", r.PCI)
			}
		}
		if err := g.state.keepBindings(s.bindings); err != nil {
			return err
		}
	}
	g.mu.Lock()
	g.bound = s.bindings
	for _, n := range s.notices {
		g.notice(n)
	}
	for name, r := range s.bindings {
		if r.Auto && g.config.Auto && !g.isDeclared(name) {
			g.notice(fmt.Sprintf("%s is new: restart the agent to declare it as %s", r.UUID, name))
		}
	}
	for name := range s.found {
		if why, was := g.unfit[name]; was {
			g.log.Info("the GPU of a device answers again; an operator returns the device", "device", name, "before", why)
		}
		g.seen[name] = true
		delete(g.unfit, name)
		delete(g.silent, name)
	}
	bad := maps.Clone(s.gone)
	for name, u := range s.silent {
		g.overdue(bad, name, u.err)
	}
	g.mu.Unlock()
	g.condemn(bad)
	return nil
}

// unseen is take for a look that has shown nothing. It returns whether there is
// a device whose GPU should have been seen.
func (g *gpus) unseen(err error) bool {
	bad := map[string]string{}
	g.mu.Lock()
	any := false
	for _, d := range g.declared {
		if g.expected(d.Name) {
			any = true
			g.overdue(bad, d.Name, err)
		}
	}
	g.mu.Unlock()
	g.condemn(bad)
	return any
}

// overdue adds a device to bad if its GPU has not answered for too long. The
// caller holds mu.
func (g *gpus) overdue(bad map[string]string, name string, err error) {
	since, ok := g.silent[name]
	if !ok {
		since = time.Now()
		g.silent[name] = since
	}
	most := silentFor
	if errors.Is(err, probe.ErrAbsent) {
		most = absentFor
	}
	if time.Since(since) >= most {
		bad[name] = fmt.Sprintf("the GPU of %s, %s, has not answered for %v: %v; see what nvidia-smi and dmesg say, then return the device",
			name, cmp.Or(g.bound[name].UUID, "which is not known yet"), most, err)
	}
}

// condemn takes devices out of the pool, each once until its GPU answers again.
func (g *gpus) condemn(bad map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		g.mu.Lock()
		_, already := g.unfit[name]
		declared := g.isDeclared(name)
		g.mu.Unlock()
		if already || !declared {
			continue
		}
		if err := g.fault([]string{name}, bad[name]); err != nil {
			g.log.Error("fault of a device not kept on disk; it stands as long as this agent runs", "device", name, "error", err)
		}
		g.mu.Lock()
		g.unfit[name] = bad[name]
		g.mu.Unlock()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.news)
	g.news = make(chan struct{})
}

// isDeclared reports whether a device of the host may be a GPU. The caller holds
// mu.
func (g *gpus) isDeclared(name string) bool {
	return slices.ContainsFunc(g.declared, func(d Device) bool { return d.Name == name && !d.Simulated })
}

// expected reports whether a device is a certain GPU, though it may not be known
// yet which: one that is on record, or that the configuration names, or that is
// there because a GPU was found. The number in its name says nothing then. The
// caller holds mu.
func (g *gpus) expected(name string) bool {
	if !g.isDeclared(name) {
		return false
	}
	listed := find(g.config.Devices, name)
	_, bound := g.bound[name]
	return bound || listed == nil || listed.Bind != ""
}

// notice logs a sentence once. The caller holds mu.
func (g *gpus) notice(text string) {
	if !g.noticed[text] && len(g.noticed) < maxBindings {
		g.noticed[text] = true
		g.log.Warn("GPUs", "notice", text)
	}
}

// fit says whether devices can be used. A reason is final; with news it is not
// known yet, and may be after that is closed.
func (g *gpus) fit(devices []string) (reason string, news <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lib == nil {
		return "", nil
	}
	for _, name := range devices {
		if why := g.unfit[name]; why != "" {
			return why, nil
		}
		if g.expected(name) && !g.seen[name] {
			news = g.news
		}
	}
	return "", news
}

// uuid returns the UUID of the GPU, or of the MIG instance, that a device is;
// "" when it is none, or it is not known which.
func (g *gpus) uuid(device string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isDeclared(device) || g.lib == nil {
		return ""
	}
	return g.bound[device].UUID
}

// cuda returns the environment that shows a process these devices and no other:
// the UUIDs of those that are GPUs, or, if none is known to be one, the trailing
// integers of their names; nil when not each has one. Beside a UUID a number
// would be another GPU's in time. CUDA counts by speed unless it is told to
// count as the driver does.
func (g *gpus) cuda(devices []string) map[string]string {
	var uuids, numbers []string
	for _, name := range devices {
		if uuid := g.uuid(name); uuid != "" {
			uuids = append(uuids, uuid)
		}
		if n, ok := trailingInteger(name); ok {
			numbers = append(numbers, strconv.Itoa(n))
		}
	}
	visible := uuids
	if len(uuids) == 0 {
		visible = numbers
	}
	if len(visible) == 0 || len(uuids) == 0 && len(numbers) != len(devices) {
		return nil
	}
	return map[string]string{"CUDA_VISIBLE_DEVICES": strings.Join(visible, ","), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
}
