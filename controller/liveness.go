package controller

import (
	"sync"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// liveness is what a leader remembers of who it heard and when, on its
// monotonic clock and from the start of its epoch at the earliest. It judges
// nobody: it states evidence, and the lease table checks every rule again.
type liveness struct {
	mu    sync.Mutex
	since time.Time            // nothing before counts
	heard map[string]hostHeard // by host, from any controller
	named map[uint64]time.Time // lease → when an attached agent last named it
	// reports is when each other controller last reached this one.
	reports map[string]time.Time
}

type hostHeard struct {
	instance string
	at       time.Time
}

// contact is what this node knows of one agent's session with itself.
type contact struct {
	host     string
	instance string
	attached bool
	since    time.Time // of the attachment or detachment
	heard    time.Time
	leases   []uint64 // that it named in its last heartbeat
}

func newLiveness(now time.Time) *liveness {
	l := &liveness{}
	l.reset(now)
	return l
}

// reset forgets everything: at the start of an epoch, and when this process
// was stopped for a while, since then its memory of silence is worth nothing.
func (l *liveness) reset(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = now
	l.heard = map[string]hostHeard{}
	l.named = map[uint64]time.Time{}
	l.reports = map[string]time.Time{}
}

// reported takes that another controller has reached this one.
func (l *liveness) reported(node string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports[node] = now
}

// reachable reports whether so many other controllers as are wanted have
// reached this one within a time, or whether it is too early to say.
func (l *liveness) reachable(now time.Time, wanted int, within time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) < within {
		return true
	}
	for _, at := range l.reports {
		if now.Sub(at) < within {
			wanted--
		}
	}
	return wanted <= 0
}

// hear takes that a host was heard at a moment, by whichever controller.
func (l *liveness) hear(host, instance string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Before(l.since) {
		return
	}
	if old := l.heard[host]; at.After(old.at) {
		l.heard[host] = hostHeard{instance: instance, at: at}
	}
}

// attend takes what the sessions of this node say.
func (l *liveness) attend(contacts []contact) {
	for _, c := range contacts {
		l.hear(c.host, c.instance, c.heard)
		l.mu.Lock()
		for _, lease := range c.leases {
			if at := latest(c.heard, l.since); at.After(l.named[lease]) {
				l.named[lease] = at
			}
		}
		l.mu.Unlock()
	}
}

// ages lists how long ago each host was heard in this epoch.
func (l *liveness) ages(now time.Time) map[string]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	ages := make(map[string]time.Duration, len(l.heard))
	for host, h := range l.heard {
		ages[host] = max(0, now.Sub(h.at))
	}
	return ages
}

// table is what evidence needs of the lease table.
type table interface {
	Agents() []*model.Agent
	DevicesOn(host string) []*model.Device
	LeasesOn(host string) []*model.Lease
	Settings() model.Settings
}

// evidence returns the sweep that is worth proposing, false when there is
// nothing to say. ordered tells whether an order for a job under a lease was
// ever written to a session in this epoch.
func (l *liveness) evidence(now time.Time, view table, contacts []contact, term uint64, ordered func(job, lease uint64) bool) (*command.Sweep, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byHost := map[string]contact{}
	for _, c := range contacts {
		byHost[c.host] = c
	}
	settings := view.Settings()
	sweep := &command.Sweep{EpochMS: now.Sub(l.since).Milliseconds()}
	for _, agent := range view.Agents() {
		c, known := byHost[agent.Host]
		attached := known && c.attached && c.instance == agent.Instance
		if attached {
			l.attachedEvidence(sweep, now, view, agent, c, settings)
			continue
		}
		if known && c.attached {
			continue // another instance of it is here: its registration decides
		}
		silence := command.AgentSilence{
			Host: agent.Host, Instance: agent.Instance,
			SilenceMS:  now.Sub(latest(l.since, l.heard[agent.Host].at)).Milliseconds(),
			DetachedMS: max(1, now.Sub(l.since).Milliseconds()),
		}
		if known {
			silence.DetachedMS = max(1, now.Sub(latest(l.since, c.since)).Milliseconds())
		}
		if l.worthSaying(view, agent, silence, settings, sweep.EpochMS) {
			sweep.Silent = append(sweep.Silent, silence)
			sweep.Unordered = append(sweep.Unordered, unordered(view, agent.Host, term, ordered)...)
		}
	}
	return sweep, len(sweep.Silent)+len(sweep.Heard)+len(sweep.Unnamed) > 0
}

// attachedEvidence adds what speaks for an agent that is here, or against the
// leases that it does not name.
func (l *liveness) attachedEvidence(sweep *command.Sweep, now time.Time, view table, agent *model.Agent, c contact, settings model.Settings) {
	if agent.Silent {
		sweep.Heard = append(sweep.Heard, command.AgentHeard{Host: agent.Host, Instance: agent.Instance})
	}
	bound := min(settings.LeaseUnstartedMS, settings.LeaseUnnamedMS)
	for _, lease := range view.LeasesOn(agent.Host) {
		last := latest(l.since, latest(c.since, l.named[lease.Number]))
		if ms := now.Sub(last).Milliseconds(); ms >= bound {
			sweep.Unnamed = append(sweep.Unnamed, command.LeaseUnnamed{Lease: lease.Number, UnnamedMS: ms})
		}
	}
}

// worthSaying reports whether the lease table could draw anything from the
// silence that it has not drawn yet: an idle log must stay idle.
func (l *liveness) worthSaying(view table, agent *model.Agent, s command.AgentSilence, settings model.Settings, epochMS int64) bool {
	if s.DetachedMS < settings.UnknownAfterMS && s.SilenceMS < settings.UnknownSilenceMS {
		return false
	}
	for _, d := range view.DevicesOn(agent.Host) {
		if d.State == model.DeviceReady || d.State == model.DeviceBusy {
			return true
		}
	}
	return !agent.WrittenOff && s.SilenceMS >= settings.WriteOffAfterMS && epochMS >= settings.HoldoffMS
}

// unordered lists the jobs placed on a host in this epoch of which the host
// cannot know: no session ever carried their order.
func unordered(view table, host string, term uint64, ordered func(job, lease uint64) bool) []uint64 {
	var jobs []uint64
	for _, lease := range view.LeasesOn(host) {
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
