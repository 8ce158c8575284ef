package sim

import (
	"slices"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	rc "rcd/session"
)

// clock returns a virtual time as the monotonic clock that session.Liveness
// takes.
func clock(d time.Duration) time.Time { return time.UnixMilli(wallStartMS).Add(d) }

type hostHeard struct {
	instance string
	at       time.Duration
}

// contacts lists who this node hears, by its sessions and as a follower, sorted
// by host.
func (e *epoch) contacts() []rc.Contact {
	var all []rc.Contact
	for _, h := range e.w.hosts {
		heard, known := e.n.heard[h.name]
		c := rc.Contact{Host: h.name, Instance: heard.instance, LastHeard: clock(max(e.began, heard.at))}
		switch s := e.sessionOf(h.name); {
		case s != nil:
			c.Instance, c.Attached, c.AttachedSince = s.instance, true, clock(s.since)
			c.LastHeard, c.Named = clock(s.heard), s.reported()
		case known:
			c.DetachedSince = clock(max(e.began, e.detached[h.name]))
		default:
			continue
		}
		all = append(all, c)
	}
	return all
}

// evidence returns the sweep that the leader has reason to propose, false when
// there is none.
func (e *epoch) evidence() (*command.Sweep, bool) {
	for _, other := range e.w.nodes {
		for _, h := range e.w.hosts { // followers say whom they heard
			if heard, ok := other.heard[h.name]; ok && other.up {
				e.live.Hear(h.name, heard.instance, clock(heard.at))
			}
		}
	}
	contacts, view := e.contacts(), e.n.m.View()
	e.live.Attend(contacts)
	sweep, worth := e.live.Evidence(clock(e.w.now), view, contacts, e.term, func(job, lease uint64) bool {
		return e.ordered[jobKey{job, lease}] && !e.w.broken(QuirkForgetOrders)
	})
	if !e.w.broken(QuirkDeaf) {
		sweep.Sessions = e.unheard(view)
	}
	worth = worth || len(sweep.Sessions) > 0
	switch e.w.options.Quirk {
	case QuirkJudgeOnce:
		sweep.Silent = slices.DeleteFunc(sweep.Silent, func(s command.AgentSilence) bool { return judgedBefore(view, s) })
		worth = len(sweep.Silent)+len(sweep.Heard)+len(sweep.Unnamed) > 0
	case QuirkSayWithheld:
		for _, a := range view.Agents() {
			if a.Silent && view.StillWithheld(e.term) {
				ms := min((e.w.now - e.began).Milliseconds(), view.Settings().WriteOffAfterMS)
				sweep.Silent, worth = append(sweep.Silent, command.AgentSilence{Host: a.Host, Instance: a.Instance, SilenceMS: ms, DetachedMS: ms}), true
			}
		}
	case QuirkHearAbsent:
		for _, c := range contacts {
			absent := slices.ContainsFunc(view.DevicesOn(c.Host), func(d *model.Device) bool { return d.Absent })
			if c.Attached && absent {
				sweep.Heard, worth = append(sweep.Heard, command.AgentHeard{Host: c.Host, Instance: c.Instance}), true
			}
		}
	}
	return sweep, worth
}

// judgedBefore reports whether the silence of a host has been judged by the
// short bound, and by the long one when that has passed.
func judgedBefore(view *fsm.View, s command.AgentSilence) bool {
	for _, d := range view.DevicesOn(s.Host) {
		if d.State == model.DeviceReady || d.State == model.DeviceBusy {
			return false
		}
	}
	return view.Agent(s.Host).WrittenOff || s.SilenceMS < view.Settings().WriteOffAfterMS
}
