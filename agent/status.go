package agent

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"rcd/model"
	"rcd/wire"
)

// Status is what an agent says of itself, or the data directory of one that
// does not run. Its JSON is part of the control protocol: additions only.
type Status struct {
	Host  string `json:"host"`
	PID   int    `json:"pid,omitempty"` // 0: no agent runs
	Build string `json:"build,omitempty"`
	// LeaderHeard is when a leader spoke last to this process; zero: not yet.
	LeaderHeard time.Time      `json:"leader_heard,omitzero"`
	Devices     []StatusDevice `json:"devices"` // by name
	Jobs        []StatusJob    `json:"jobs"`    // by job and lease; ended ones until the leader has taken it
	Drain       *StatusDrain   `json:"drain,omitempty"`
}

// StatusDevice is one device of the host.
type StatusDevice struct {
	Name string `json:"name"`
	// Drain is how far a drain has come with it; "" : it is not drained.
	Drain DrainStation `json:"drain,omitempty"`
	// Refused is the leader's answer when it does not take the drain's fault.
	Refused string `json:"refused,omitempty"`
}

// DrainStation is how far a drain has come with a device.
type DrainStation string

// The stations, in their order.
const (
	DrainUntold  DrainStation = "untold"  // no leader has it yet
	DrainTold    DrainStation = "told"    // out of the pool; an order from before may still come, or its job is there
	DrainSettled DrainStation = "settled" // out of the pool, and nothing comes any more
)

// StatusJob is one job on the host.
type StatusJob struct {
	Job       string    `json:"job"`
	Lease     string    `json:"lease"`
	Hold      string    `json:"hold,omitempty"`    // the hold that it runs inside
	Devices   []string  `json:"devices,omitempty"` // names on the host
	Phase     string    `json:"phase"`             // starting, running or ended
	Since     time.Time `json:"since,omitzero"`    // when it began to run
	Killing   string    `json:"killing,omitempty"` // why it is being ended
	Survivors string    `json:"survivors,omitempty"`
}

// StatusDrain is the drain that a host is under.
type StatusDrain struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
	Closed bool      `json:"closed,omitempty"` // nothing begins
}

// Live returns the jobs that have not ended.
func (s Status) Live() (live []StatusJob) {
	for _, j := range s.Jobs {
		if j.Phase != phaseName(wire.PhaseEnded) {
			live = append(live, j)
		}
	}
	return live
}

// Line says in a few words how the host does.
func (s Status) Line() string {
	busy := map[string]bool{}
	live := s.Live()
	for _, j := range live {
		for _, d := range j.Devices {
			busy[d] = true
		}
	}
	line := fmt.Sprintf("%d jobs on %d of %d devices", len(live), len(busy), len(s.Devices))
	if untold := len(s.Jobs) - len(live); untold > 0 {
		line += fmt.Sprintf(", %d ends not told yet", untold)
	}
	if s.Drain != nil {
		line += ", drained"
	}
	return line
}

// String is the job as a sentence names it.
func (j StatusJob) String() string {
	text := j.Job
	if j.Hold != "" {
		text += " inside " + j.Hold
	}
	if len(j.Devices) > 0 {
		text += " on " + strings.Join(j.Devices, ",")
	}
	switch {
	case j.Killing != "":
		text += ", being ended"
	case j.Since.IsZero():
		text += ", starting"
	default:
		text += fmt.Sprintf(", running for %v", time.Since(j.Since).Round(time.Second))
	}
	return text
}

func (a *agent) status() Status {
	s := Status{Host: a.config.Host, PID: os.Getpid(), Build: a.deps.Version, Devices: []StatusDevice{}, Jobs: []StatusJob{}}
	if ns := a.leaderHeard.Load(); ns != 0 {
		s.LeaderHeard = time.Unix(0, ns)
	}
	a.mu.Lock()
	for _, j := range a.jobs {
		s.Jobs = append(s.Jobs, j.status())
	}
	a.mu.Unlock()
	s.sortJobs()
	s.addDrain(a.drains.state.Load(), declaredNames(a.config))
	return s
}

func (s *Status) sortJobs() {
	slices.SortFunc(s.Jobs, func(x, y StatusJob) int {
		return cmp.Or(cmp.Compare(len(x.Job), len(y.Job)), cmp.Compare(x.Job, y.Job), cmp.Compare(len(x.Lease), len(y.Lease)), cmp.Compare(x.Lease, y.Lease))
	})
}

// addDrain fills in the devices and what a drain has to do with them.
func (s *Status) addDrain(drain *drainState, declared []string) {
	names := map[string]bool{}
	for _, d := range declared {
		names[d] = true
	}
	if drain != nil {
		s.Drain = &StatusDrain{Since: time.UnixMilli(drain.SinceMS), Reason: drain.Reason, Closed: drain.Closed}
		for d := range drain.Devices {
			names[d] = true
		}
	}
	for _, d := range slices.Sorted(maps.Keys(names)) {
		device := StatusDevice{Name: d}
		if drain != nil {
			device.Drain, device.Refused = drain.station(d), drain.refused[d]
		}
		s.Devices = append(s.Devices, device)
	}
}

func (s *drainState) station(device string) DrainStation {
	station, ok := s.Devices[device]
	_, told := s.told[device]
	switch {
	case !ok:
		return ""
	case station == drainSettled:
		return DrainSettled
	case told:
		return DrainTold
	}
	return DrainUntold
}

// status is what a person is told of a job. The caller holds mu.
func (j *job) status() StatusJob {
	s := StatusJob{Job: model.JobID(j.job), Lease: model.LeaseID(j.lease), Devices: j.devices, Phase: phaseName(j.phase), Killing: j.killing}
	if j.hold != 0 {
		s.Hold = model.JobID(j.hold)
	}
	if j.handle != nil {
		s.Since = j.handle.Status().StartedAt
	}
	if j.outcome != nil {
		s.Survivors = j.outcome.Survivors
	}
	return s
}

func phaseName(p wire.JobPhase) string {
	switch p {
	case wire.PhaseStarting:
		return "starting"
	case wire.PhaseRunning:
		return "running"
	}
	return "ended"
}

// pulse tells Deps.Status how the agent does, until it stops.
func (a *agent) pulse() {
	for a.ctx.Err() == nil {
		a.mu.Lock()
		wake := a.wake
		a.mu.Unlock()
		a.deps.Status(a.status())
		timer := time.NewTimer(a.deps.StatusEvery)
		select {
		case <-time.After(pulseAtMost):
		case <-a.ctx.Done():
		}
		select {
		case <-wake:
		case <-timer.C:
		case <-a.ctx.Done():
		}
		timer.Stop()
	}
}

const (
	// pulseAtMost is the least time between two calls of Deps.Status.
	pulseAtMost = 200 * time.Millisecond
	// defaultPulse is Deps.StatusEvery.
	defaultPulse = 5 * time.Second
)
