package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rcd/fsm/command"
	"rcd/wire"
)

// host is a machine with devices: its disk, which survives everything, its
// processes, which die with the machine, and its agent, which comes and goes.
type host struct {
	w       *World
	name    string
	machine int // counts the machines that had this name
	boots   int
	gone    bool // switched off; for good, unless somebody sees to it
	// manual: its configuration wants no automatic return of devices.
	manual bool
	// container: the agent is the first process of its PID namespace, so that
	// its processes die with it.
	container bool

	devices []wire.AgentDevice
	leftOut string           // a device that the present configuration leaves out, or ""
	free    map[string]int64 // by device name: MiB of its memory that nobody uses
	sheet   int              // version of its usage sheets, 0: none
	news    []*news
	newsSeq int
	frozen  time.Duration // until then its disk takes nothing
	stuck   []func()      // what waits for it, in its order
	proven  uint64        // index of the word that asked for its latest proof
	// retiredAlive: an operator has retired it while its agent names jobs that
	// may live, on the ground that it names them.
	retiredAlive bool

	// On disk.
	begun   map[string]fence // by device name
	term    uint64
	index   uint64
	records []*record

	// Processes.
	trees []*tree

	// The agent.
	up        bool
	instances int
	session   *session
	hint      *node
	cutIn     map[string]time.Duration // by node: until then nothing comes in
	cutOut    map[string]time.Duration
}

// fence is the highest lease that a host has begun for a device, and which of its
// jobs: none of them is begun again, and no older lease.
type fence struct {
	lease uint64
	jobs  []uint64
}

// has reports whether a job was begun, or can never be any more.
func (f fence) has(k jobKey) bool {
	return f.lease > k.lease || f.lease == k.lease && slices.Contains(f.jobs, k.job)
}

// with is the fence once a job that it does not have has begun.
func (f fence) with(k jobKey) fence {
	switch {
	case k.lease > f.lease:
		f = fence{lease: k.lease}
	case k.lease < f.lease:
		return f // the fence is broken on purpose
	}
	f.jobs = append(slices.Clone(f.jobs), k.job)
	return f
}

// record is what the host keeps of a job under a lease until its outcome is
// acked.
type record struct {
	key     jobKey
	device  string // name
	phase   wire.JobPhase
	killing bool
	reason  string
	outcome wire.Outcome // when ended
	sent    bool
	limit   int64 // seconds after which the host ends it, 0: none
}

// tree is the live process tree of a job.
type tree struct {
	key     jobKey
	device  string
	started time.Duration
}

func newHost(w *World, i int) *host {
	h := &host{
		w: w, name: fmt.Sprintf("h%d", i+1), begun: map[string]fence{}, free: map[string]int64{},
		cutIn: map[string]time.Duration{}, cutOut: map[string]time.Duration{},
		manual: w.rng.IntN(6) == 0, container: w.rng.IntN(4) == 0,
	}
	for range 1 + w.rng.IntN(3) {
		h.addDevice()
	}
	h.relabel()
	return h
}

// running reports whether the agent process with this instance still runs.
func (h *host) running(instance string) bool { return h.up && h.instance() == instance }

// blocked reports whether the link to a node is cut in one direction.
func (h *host) blocked(n *node, toHost bool) bool {
	if toHost {
		return h.w.now < h.cutIn[n.id]
	}
	return h.w.now < h.cutOut[n.id]
}

// connect looks for the leader until there is a session.
func (h *host) connect(instance string) {
	if !h.running(instance) || h.session != nil {
		return
	}
	h.w.after(h.w.between(300*time.Millisecond, 1500*time.Millisecond), func() { h.connect(instance) })
	n := h.hint
	if n == nil || h.w.rng.IntN(4) == 0 {
		n = h.w.nodes[h.w.rng.IntN(len(h.w.nodes))]
	}
	h.hint = nil
	h.hail(n)
}

// hail says hello to a node.
func (h *host) hail(n *node) {
	if !n.up {
		return
	}
	hello := h.hello()
	h.w.send(h, n, false, func() {
		// The connection dies with the agent that opened it.
		if h.running(hello.Instance) {
			n.takeHello(h, hello)
		}
	})
}

func (h *host) hello() wire.Hello {
	hello := wire.Hello{
		Protocol: wire.AgentProtocol, Host: h.name, MachineID: fmt.Sprintf("m-%s-%d", h.name, h.machine), BootID: fmt.Sprintf("boot-%d", h.boots),
		Instance: h.instance(), Term: h.term, Index: h.index, Jobs: h.jobs(), RequireManualClear: h.manual,
	}
	for i := range hello.Jobs {
		hello.Jobs[i].MaxRuntimeS = 0 // an older controller could not read it
	}
	for _, d := range h.devices {
		if d.Name == h.leftOut {
			continue
		}
		d.Begun = h.begun[d.Name].lease
		if d.KeepDetected {
			d.Detected = nil // no probe has worked yet
		}
		hello.Devices = append(hello.Devices, d)
	}
	hello.Proof.Isolated = h.container
	if !h.w.chance(20) {
		hello.Proof.SurvivorsChecked = true
		hello.Proof.SurvivorsFound = h.survivors() && !h.w.broken(QuirkBlindProof)
	}
	return hello
}

// survivors reports whether a process lives outside the trees of the jobs that
// the agent names.
func (h *host) survivors() bool {
	return slices.ContainsFunc(h.trees, func(t *tree) bool {
		r := h.record(t.key)
		return r == nil || r.phase == wire.PhaseEnded
	})
}

// jobs lists what the agent supervises, and ended jobs that are not acked.
func (h *host) jobs() []wire.ReportedJob {
	all := make([]wire.ReportedJob, 0, len(h.records))
	for _, r := range h.records {
		all = append(all, r.report())
	}
	return all
}

func (r *record) report() wire.ReportedJob {
	j := wire.ReportedJob{Job: r.key.job, Lease: r.key.lease, Phase: r.phase}
	if r.phase != wire.PhaseEnded {
		j.Killing, j.MaxRuntimeS = r.killing, r.limit
	}
	return j
}

func (h *host) record(k jobKey) *record {
	for _, r := range h.records {
		if r.key == k {
			return r
		}
	}
	return nil
}

func (h *host) redirected(instance string, to *node) {
	if h.running(instance) && h.session == nil && to != nil {
		h.hint = to
		h.hail(to)
	}
}

func (h *host) welcomed(s *session, term, index uint64, facts []byte) {
	if !h.running(s.instance) || term < h.term || h.session != nil && h.session.e.term > term {
		return
	}
	h.seen(term, index)
	h.session = s
	s.acked = h.w.now
	h.retiredAlive = false
	s.facts.Agree(h.facts(), facts)
	h.sendOutcomes(true)
	h.tellFacts()
}

// seen keeps the highest term and index, on disk.
func (h *host) seen(term, index uint64) {
	h.term, h.index = max(h.term, term), max(h.index, index)
}

func (h *host) dropped(s *session) {
	if h.session != s {
		return
	}
	h.session = nil
	instance := s.instance
	h.w.after(h.w.between(20*time.Millisecond, 300*time.Millisecond), func() { h.connect(instance) })
}

// beat is the agent's heartbeat, every two seconds.
func (h *host) beat(instance string) {
	if !h.running(instance) {
		return
	}
	h.w.after(2*time.Second, func() { h.beat(instance) })
	s := h.session
	if s == nil {
		return
	}
	if h.w.now-s.acked > sessionDead {
		h.dropped(s)
		return
	}
	jobs, at := h.jobs(), h.w.now
	h.w.send(h, s.e.n, false, func() { s.receive(func() { s.heartbeat(jobs, at) }) })
	h.sendOutcomes(false)
	h.tellFacts()
	h.tellNews()
}

func (h *host) heartbeatAcked(s *session, index uint64, prove bool) {
	if h.session != s {
		return
	}
	s.acked = h.w.now
	h.seen(s.e.term, index)
	give := func() {
		if len(h.stuck) == 0 {
			h.proven = max(h.proven, index)
		}
		hello := h.hello()
		hello.Index = index
		h.w.send(h, s.e.n, false, func() { s.receive(func() { s.prove(hello) }) })
	}
	switch {
	case prove && h.w.broken(QuirkProveAhead):
		give()
	case prove:
		h.duty(s.instance, give)
	}
}

// sendOutcomes reports the ended jobs that are not acked: each once, or all of
// them, after a welcome and when the leader asks.
func (h *host) sendOutcomes(all bool) {
	s := h.session
	if s == nil {
		return
	}
	for _, r := range slices.Clone(h.records) {
		if r.phase != wire.PhaseEnded || r.sent && !all {
			continue
		}
		r.sent = true
		o := r.outcome
		h.w.send(h, s.e.n, false, func() { s.receive(func() { s.finish(o) }) })
		if h.w.broken(QuirkForgetOutcome) {
			h.forget(r.key)
		}
	}
}

func (h *host) outcomeAcked(k jobKey) {
	if r := h.record(k); r != nil && r.phase == wire.PhaseEnded {
		h.forget(k)
	}
}

func (h *host) forget(k jobKey) {
	h.records = slices.DeleteFunc(h.records, func(r *record) bool { return r.key == k })
}

// deviceName returns the name in a device ID of this host, "" for others.
func (h *host) deviceName(id string) string {
	name, ok := strings.CutPrefix(id, h.name+":")
	if !ok || !slices.ContainsFunc(h.devices, func(d wire.AgentDevice) bool { return d.Name == name }) {
		return ""
	}
	return name
}

// treesOn returns the live trees on a device: several only of one lease.
func (h *host) treesOn(device string) (all []*tree) {
	for _, t := range h.trees {
		if t.device == device {
			all = append(all, t)
		}
	}
	return all
}

func (h *host) hasTree(k jobKey) bool {
	return slices.ContainsFunc(h.trees, func(t *tree) bool { return t.key == k })
}

// end makes a record ended and reports it.
func (h *host) end(r *record, o wire.Outcome) {
	if r.phase == wire.PhaseEnded {
		return
	}
	o.Job, o.Lease = r.key.job, r.key.lease
	o.OutputKnown, o.OutputLength = true, r.key.lease*10
	r.phase, r.outcome = wire.PhaseEnded, o
	slices.SortFunc(h.records, func(a, b *record) int { return cmp.Compare(a.key.lease, b.key.lease) })
	h.w.witness.ended(h, r.key, o)
	h.w.note("%s: %d/%d ends: %s code %s %q", h.name, r.key.job, r.key.lease, endNames[o.End], codeText(o.ExitCode), o.Reason)
	if h.up {
		h.sendOutcomes(false)
	}
}

var endNames = map[uint8]string{
	uint8(command.EndExited): "exited", uint8(command.EndKilled): "killed",
	uint8(command.EndStartFailed): "start failed", uint8(command.EndSupervisorDied): "supervisor died",
}

func codeText(code *int32) string {
	if code == nil {
		return "unknown"
	}
	return fmt.Sprint(*code)
}
