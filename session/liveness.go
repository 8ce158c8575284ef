package session

import (
	"sync"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// Table is what evidence about hosts needs of the lease table: one view of it.
type Table interface {
	Agents() []*model.Agent
	DevicesOn(host string) []*model.Device
	LeasesOn(host string) []*model.Lease
	Settings() model.Settings
	// StillWithheld reports whether the epoch of a term has withheld a mass
	// write-off and nothing has changed that.
	StillWithheld(term uint64) bool
}

// Liveness is what a leader remembers of who it heard and when, on its
// monotonic clock and from the start of its epoch at the earliest. It judges
// nobody: it states evidence, and the lease table checks every rule again.
// Methods may be called concurrently.
type Liveness struct {
	mu    sync.Mutex
	since time.Time             // nothing before counts
	heard map[process]time.Time // from any controller
	// named is when an attached agent last named a lease. Each look for evidence
	// forgets those that have ended, so it is bounded by the leases.
	named map[uint64]time.Time
	// admitted is when a host was taken in that may have no session yet.
	admitted map[string]time.Time
}

// process is one agent process. What another one says under the same host name,
// a refused impostor for instance, is no contact with it.
type process struct{ host, instance string }

// maxHeard bounds the processes remembered; past it those not heard for
// forgetHeard are dropped, which is longer than any silence is measured.
const (
	maxHeard    = 65_536
	forgetHeard = time.Hour
)

// admitting is how long a host that was taken in may be without its session
// before its silence counts again: longer than it takes to answer a hello.
const admitting = admitTimeout + 5*time.Second

// NewLiveness returns an empty memory that begins now.
func NewLiveness(now time.Time) *Liveness {
	l := &Liveness{}
	l.Reset(now)
	return l
}

// Reset forgets everything: at the start of an epoch, and when this process
// was stopped for a while, since then its memory of silence is worth nothing.
func (l *Liveness) Reset(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = now
	l.heard = map[process]time.Time{}
	l.named = map[uint64]time.Time{}
	l.admitted = map[string]time.Time{}
}

// Hear takes that an agent process was heard at a moment, by whichever
// controller.
func (l *Liveness) Hear(host, instance string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hear(process{host, instance}, at)
}

func (l *Liveness) hear(p process, at time.Time) {
	if at.Before(l.since) || !at.After(l.heard[p]) {
		return
	}
	if len(l.heard) >= maxHeard {
		for other, last := range l.heard {
			if at.Sub(last) > forgetHeard {
				delete(l.heard, other)
			}
		}
		if _, known := l.heard[p]; !known && len(l.heard) >= maxHeard {
			return
		}
	}
	l.heard[p] = at
}

// Admit takes that a host has been taken in: until its session is there, what
// is known of its silence is out of date. A verdict in that time would take
// away a job that the new session orders all the same (jepsen/BUGS.md).
func (l *Liveness) Admit(host string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitted[host] = now
}

// Attend takes what the sessions of this node say.
func (l *Liveness) Attend(contacts []Contact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range contacts {
		c := &contacts[i]
		l.hear(process{c.Host, c.Instance}, c.LastHeard)
		if !c.Attached {
			continue
		}
		delete(l.admitted, c.Host)
		for _, j := range c.Named {
			if at := later(c.LastHeard, l.since); at.After(l.named[j.Lease]) {
				l.named[j.Lease] = at
			}
		}
	}
}

// Ages lists how long ago each of the agents was heard, by host. One that was
// not heard since the last Reset is left out.
func (l *Liveness) Ages(now time.Time, agents []*model.Agent) map[string]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	ages := make(map[string]time.Duration, len(agents))
	for _, a := range agents {
		if at, ok := l.heard[process{a.Host, a.Instance}]; ok {
			ages[a.Host] = max(0, now.Sub(at))
		}
	}
	return ages
}

// Evidence returns the sweep that is worth proposing in the epoch of a term,
// false when there is nothing to say. ordered tells whether an order for a job
// under a lease may have been written to any session in this epoch. No agent
// may be admitted from before the call until the sweep is applied.
func (l *Liveness) Evidence(now time.Time, view Table, contacts []Contact, term uint64, ordered func(job, lease uint64) bool) (*command.Sweep, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byHost := make(map[string]*Contact, len(contacts))
	for i := range contacts {
		byHost[contacts[i].Host] = &contacts[i]
	}
	settings := view.Settings()
	withheld := view.StillWithheld(term)
	sweep := &command.Sweep{EpochMS: now.Sub(l.since).Milliseconds()}
	named := make(map[uint64]time.Time, len(l.named))
	for _, agent := range view.Agents() {
		c, leases := byHost[agent.Host], view.LeasesOn(agent.Host)
		switch {
		case c != nil && c.Attached && c.Instance == agent.Instance:
			l.presence(sweep, now, leases, agent, c, settings)
		case c != nil && c.Attached:
			// Another instance of it is here: its registration decides.
		case now.Sub(l.admitted[agent.Host]) < admitting:
			// It is being taken in, see Admit.
		default:
			l.absence(sweep, now, view, leases, agent, c, settings, term, ordered, withheld)
		}
		for _, lease := range leases {
			if at, known := l.named[lease.Number]; known {
				named[lease.Number] = at
			}
		}
	}
	l.named = named
	return sweep, len(sweep.Silent)+len(sweep.Heard)+len(sweep.Unnamed) > 0
}

// presence adds what speaks for an agent that is here, or against the leases
// that it does not name.
func (l *Liveness) presence(sweep *command.Sweep, now time.Time, leases []*model.Lease, agent *model.Agent, c *Contact, settings model.Settings) {
	if agent.Silent {
		sweep.Heard = append(sweep.Heard, command.AgentHeard{Host: agent.Host, Instance: agent.Instance})
	}
	bound := min(settings.LeaseUnstartedMS, settings.LeaseUnnamedMS)
	for _, lease := range leases {
		if l.named[lease.Number].IsZero() {
			l.named[lease.Number] = now // it could not be named before it was there
		}
		last := later(l.since, later(c.AttachedSince, l.named[lease.Number]))
		if ms := now.Sub(last).Milliseconds(); ms >= bound {
			sweep.Unnamed = append(sweep.Unnamed, command.LeaseUnnamed{Lease: lease.Number, UnnamedMS: ms})
		}
	}
}

// absence adds what speaks against an agent without a session, when the table
// could draw anything from it that it has not drawn yet: an idle log must stay
// idle, also while a mass write-off waits for an operator.
func (l *Liveness) absence(sweep *command.Sweep, now time.Time, view Table, leases []*model.Lease, agent *model.Agent, c *Contact, settings model.Settings, term uint64, ordered func(job, lease uint64) bool, withheld bool) {
	detached := l.since
	if c != nil {
		detached = later(l.since, c.DetachedSince)
	}
	silence := command.AgentSilence{
		Host: agent.Host, Instance: agent.Instance,
		SilenceMS:  now.Sub(later(l.since, l.heard[process{agent.Host, agent.Instance}])).Milliseconds(),
		DetachedMS: max(1, now.Sub(detached).Milliseconds()),
	}
	if silence.DetachedMS < settings.UnknownAfterMS && silence.SilenceMS < settings.UnknownSilenceMS {
		return
	}
	jobs := unordered(leases, term, ordered)
	due := !withheld && l.writeOffDue(agent, silence, settings, sweep.EpochMS, len(leases))
	if !due && !unjudged(view.DevicesOn(agent.Host), len(jobs) > 0) {
		return
	}
	sweep.Silent = append(sweep.Silent, silence)
	sweep.Unordered = append(sweep.Unordered, jobs...)
}

// unjudged reports whether a device is still taken for present, or one that is
// unknown already got a job that can go back: it was placed while the sweep
// that made the device unknown was on its way.
func unjudged(devices []*model.Device, returnable bool) bool {
	for _, d := range devices {
		switch d.State {
		case model.DeviceReady, model.DeviceBusy:
			return true
		case model.DeviceUnknown:
			if returnable && d.Lease != 0 {
				return true
			}
		}
	}
	return false
}

// writeOffDue reports whether the long bound has passed and something is left
// to write off: jobs may have been retained the last time, and are no more.
func (l *Liveness) writeOffDue(agent *model.Agent, s command.AgentSilence, settings model.Settings, epochMS int64, leases int) bool {
	done := agent.WrittenOff && (settings.RetainDisconnected || leases == 0)
	return !done && s.SilenceMS >= settings.WriteOffAfterMS && epochMS >= settings.HoldoffMS
}

// unordered lists the jobs placed on a host in this epoch of which the host
// cannot know: no session ever carried their order.
func unordered(leases []*model.Lease, term uint64, ordered func(job, lease uint64) bool) []uint64 {
	var jobs []uint64
	for _, lease := range leases {
		if lease.Term != term || lease.Begun {
			continue
		}
		for _, job := range lease.Jobs {
			if !ordered(job, lease.Number) {
				jobs = append(jobs, job)
			}
		}
	}
	return jobs
}
