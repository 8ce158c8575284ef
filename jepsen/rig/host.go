package rig

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"rcd/fsm/command"
	"rcd/internal/mux"
	"rcd/model"
	"rcd/relay"
	"rcd/session"
	"rcd/wire"
)

// Host is a device host without processes: a job it is ordered to start runs
// until a test ends it, or until it is killed.
type Host struct {
	Name     string
	Instance string
	Devices  []wire.AgentDevice

	link    *session.Link
	changed chan struct{}
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	jobs     map[uint64]*hostJob
	begun    map[string]uint64 // device → highest lease begun
	starts   map[uint64]int    // lease → how often it was really started
	term     uint64
	cluster  string
	welcomes int
	// survivors: a walk over the processes finds some of earlier jobs.
	survivors bool
	facts     wire.Facts
	faults    []wire.DeviceFault
}

type hostJob struct {
	start   wire.StartJob
	output  []byte
	input   input
	grown   chan struct{} // closed and replaced when output or outcome changed
	outcome *wire.Outcome
	acked   bool
	held    bool // from given on nothing of the output is given to anybody
	given   int
	hole    [2]int // offsets of what the spool has lost
}

// HostConfig is what StartHost needs.
type HostConfig struct {
	Name      string
	Instance  string
	Devices   int
	Addresses []string
	Token     string
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Logger    *slog.Logger
	// Index is the highest that the host claims to have seen.
	Index uint64
}

// StartHost attaches a host to a cluster; Stop ends it.
func StartHost(config HostConfig) *Host {
	h := &Host{
		Name: config.Name, Instance: config.Instance, changed: make(chan struct{}, 1), done: make(chan struct{}),
		jobs: map[uint64]*hostJob{}, begun: map[string]uint64{}, starts: map[uint64]int{},
	}
	for i := range config.Devices {
		h.Devices = append(h.Devices, wire.AgentDevice{Name: fmt.Sprintf("gpu%d", i), Declared: []wire.LabelKV{{Key: "vram", Value: "80G"}}})
	}
	dialer := &mux.Dialer{
		Self:        func() mux.Identity { return mux.Identity{NodeID: h.Name, Incarnation: h.Instance} },
		Key:         mux.Key{Name: "worker", Secret: []byte(config.Token)},
		DialContext: config.Dial,
	}
	h.link = session.NewLink(session.LinkConfig{
		Host: h.Name, Instance: h.Instance, Addresses: config.Addresses, Logger: config.Logger, Index: config.Index,
		Dial: func(ctx context.Context, addr string, bulk bool) (net.Conn, error) {
			kind := mux.Agent
			if bulk {
				kind = mux.Bytes
			}
			return dialer.Dial(ctx, addr, kind)
		},
	}, h)
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	go func() {
		defer close(h.done)
		h.link.Run(ctx)
	}()
	return h
}

// Stop ends the host's link and waits for it; its jobs stay as they are.
func (h *Host) Stop() {
	h.cancel()
	<-h.done
}

// Print adds to the output of a running job.
func (h *Host) Print(job uint64, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[job]; j != nil {
		j.output = append(j.output, text...)
		j.wake()
	}
}

// Exit ends a running job with its own code.
func (h *Host) Exit(job uint64, code int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[job]; j != nil && j.outcome == nil {
		j.end(command.EndExited, code, "")
		h.tell()
	}
}

// Running lists the jobs that run, by number.
func (h *Host) Running() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []uint64
	for n, j := range h.jobs {
		if j.outcome == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

// Starts returns how often the leases were started: more than 1 anywhere
// breaks law 1.
func (h *Host) Starts() map[uint64]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[uint64]int{}
	for lease, n := range h.starts {
		out[lease] = n
	}
	return out
}

// Welcomes returns how often a leader has taken the host in.
func (h *Host) Welcomes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.welcomes
}

// SetSurvivors says whether processes of earlier jobs are found on the host.
func (h *Host) SetSurvivors(found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.survivors = found
}

func (j *hostJob) wake() {
	close(j.grown)
	j.grown = make(chan struct{})
}

func (j *hostJob) end(kind command.EndKind, code int32, reason string) {
	sum := sha256.Sum256(j.output)
	j.outcome = &wire.Outcome{
		Job: j.start.Job, Lease: j.start.Lease, End: uint8(kind), ExitCode: &code, Reason: reason,
		OutputLength: uint64(len(j.output)), OutputDigest: sum[:], OutputKnown: true,
	}
	j.wake()
}

func (h *Host) tell() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Hello implements session.Handler.
func (h *Host) Hello() wire.Hello {
	h.mu.Lock()
	defer h.mu.Unlock()
	hello := wire.Hello{MachineID: "machine-" + h.Name, BootID: "boot-1", Jobs: h.reported(), Version: "rig",
		Proof: wire.HostProof{SurvivorsChecked: true, SurvivorsFound: h.survivors}}
	for _, d := range h.Devices {
		d.Begun = h.begun[model.DeviceID(h.Name, d.Name)]
		hello.Devices = append(hello.Devices, d)
	}
	return hello
}

// Jobs implements session.Handler.
func (h *Host) Jobs() []wire.ReportedJob {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reported()
}

func (h *Host) reported() []wire.ReportedJob {
	all := []wire.ReportedJob{}
	for n, j := range h.jobs {
		if j.acked {
			continue
		}
		r := wire.ReportedJob{Job: n, Lease: j.start.Lease, Phase: wire.PhaseRunning, MaxRuntimeS: j.start.MaxRuntimeS}
		if j.outcome != nil {
			r.Phase, r.MaxRuntimeS = wire.PhaseEnded, 0
		}
		all = append(all, r)
	}
	return all
}

// Order implements session.Handler, with the fence of a real host.
func (h *Host) Order(_ context.Context, o wire.Order) wire.OrderAck {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.tell()
	switch o.Kind {
	case wire.OrderStart:
		if j := h.jobs[o.Job]; j != nil && j.start.Lease == o.Lease {
			return wire.OrderAck{Job: h.one(o.Job)}
		}
		for _, d := range o.Start.Devices {
			if o.Lease < h.begun[d] || o.Lease == h.begun[d] && !h.shares(o) {
				return wire.OrderAck{Code: wire.OrderStaleLease, Message: "a newer lease has begun"}
			}
		}
		for _, d := range o.Start.Devices {
			h.begun[d] = o.Lease
		}
		if o.Start.Hold == 0 {
			h.starts[o.Lease]++
		}
		h.jobs[o.Job] = &hostJob{start: *o.Start, grown: make(chan struct{})}
	case wire.OrderKill:
		j := h.jobs[o.Job]
		if j == nil && o.Start != nil { // it is never started here
			j = &hostJob{start: *o.Start, grown: make(chan struct{})}
			h.jobs[o.Job] = j
		}
		if j == nil {
			return wire.OrderAck{Code: wire.OrderUnknownJob, Message: "no such job here"}
		}
		if j.outcome == nil {
			j.end(command.EndKilled, 143, o.Reason)
		}
	case wire.OrderExtend:
		if j := h.jobs[o.Job]; j != nil && j.start.Lease == o.Lease && j.start.MaxRuntimeS > 0 {
			j.start.MaxRuntimeS = max(j.start.MaxRuntimeS, o.MaxRuntimeS)
		}
	}
	return wire.OrderAck{Job: h.one(o.Job)}
}

// shares reports whether a job that is to start under a lease that has begun is
// the hold of the lease, or inside it.
func (h *Host) shares(o wire.Order) bool {
	for _, j := range h.jobs {
		if j.start.Lease == o.Lease && j.start.Hold == o.Job {
			return true
		}
	}
	return o.Start.Hold != 0
}

func (h *Host) one(job uint64) *wire.ReportedJob {
	for _, r := range h.reported() {
		if r.Job == job {
			return &r
		}
	}
	return nil
}

// Outcomes implements session.Handler.
func (h *Host) Outcomes() []wire.Outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []wire.Outcome
	for _, j := range h.jobs {
		if j.outcome != nil && !j.acked {
			all = append(all, *j.outcome)
		}
	}
	return all
}

// SetFacts changes what the host tells of its devices.
func (h *Host) SetFacts(f wire.Facts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts = f
	h.tell()
}

// Facts implements session.Handler.
func (h *Host) Facts() wire.Facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts
}

// Fault makes the host say that a device must not be given away.
func (h *Host) Fault(f wire.DeviceFault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, f)
	h.tell()
}

// Faults implements session.Handler.
func (h *Host) Faults() []wire.DeviceFault {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.faults)
}

// FaultAcked implements session.Handler.
func (h *Host) FaultAcked(a wire.FaultAck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.Code == "" {
		h.faults = slices.DeleteFunc(h.faults, func(f wire.DeviceFault) bool { return f == a.DeviceFault })
	}
}

// Changed implements session.Handler.
func (h *Host) Changed() <-chan struct{} { return h.changed }

// Acked implements session.Handler.
func (h *Host) Acked(a wire.OutcomeAck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[a.Job]; j != nil && j.start.Lease == a.Lease {
		j.acked = true
	}
}

// Controllers implements session.Handler.
func (h *Host) Controllers([]wire.Controller) {}

// Welcomed implements session.Handler.
func (h *Host) Welcomed(w wire.Welcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cluster = w.ClusterID
	h.welcomes++
}

// Seen implements session.Handler.
func (h *Host) Seen(_, term, _ uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.term = max(h.term, term)
	return nil
}

// ServeStream implements session.Handler.
func (h *Host) ServeStream(ctx context.Context, conn net.Conn) {
	offset, open, err := relay.Asked(conn)
	if err != nil {
		conn.Close()
		return
	}
	number, _ := model.ParseJobID(open.Job)
	h.mu.Lock()
	j := h.jobs[number]
	h.mu.Unlock()
	if j == nil {
		_ = relay.Refuse(conn, wire.StreamError{Code: wire.CodeNotFound, Message: "no such job on this host", Retry: true})
		return
	}
	if open.Attach {
		h.serveAttached(ctx, conn, offset, open, j)
		return
	}
	_ = relay.Send(ctx, conn, offset, &hostSource{host: h, job: j, next: offset, follow: open.Follow}, relay.SendOptions{})
}

// hostSource reads the output of one pretended job.
type hostSource struct {
	host   *Host
	job    *hostJob
	next   int64
	follow bool
}

// Next implements relay.Source.
func (s *hostSource) Next(ctx context.Context) (relay.Record, error) {
	for {
		s.host.mu.Lock()
		output, outcome, grown := s.job.output, s.job.outcome, s.job.grown
		if s.job.held {
			output, outcome = output[:s.job.given], nil
		}
		hole := s.job.hole
		s.host.mu.Unlock()
		if from, to := int64(hole[0]), int64(hole[1]); from <= s.next && s.next < to {
			gap := relay.Gap{From: s.next, To: to, Cause: "spool corrupt"}
			s.next = to
			return gap, nil
		} else if s.next < from {
			output = output[:from]
		}
		if int64(len(output)) > s.next {
			data := relay.Data{Offset: s.next, Stream: wire.StreamStdout, Bytes: output[s.next:]}
			s.next = int64(len(output))
			return data, nil
		}
		if outcome != nil || !s.follow {
			return relay.End{Length: s.next, StreamEnd: wire.StreamEnd{Complete: outcome != nil}}, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
