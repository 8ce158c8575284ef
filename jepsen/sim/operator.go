package sim

import (
	"slices"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// operatorWaits is how long something stands before a person acts on it:
// longer than any order of a leader that has not noticed is under way.
const operatorWaits = 20 * time.Second

// operator is the person who looks after the fleet and whose word is true: a
// device is cleared or retired when nothing runs on it, a host is retired when
// it is switched off, or silent while its agent can name whatever still runs.
type operator struct {
	w *World
	// since is when something was first seen as it is: a device in quarantine or
	// absent, a host silent and without leases, a write-off withheld.
	since map[string]time.Duration
	away  bool // nobody looks
	// hurry is a host that is cut off and that somebody has given up: its leases
	// end by force and it is retired, whatever runs there still.
	hurry string
}

// stands reports whether something has been so for operatorWaits. With now
// false it is forgotten.
func (o *operator) stands(what string, now bool) bool {
	since, known := o.since[what]
	switch {
	case !now:
		delete(o.since, what)
		return false
	case !known:
		o.since[what] = o.w.now
		return false
	}
	return o.w.now-since > operatorWaits && (o.w.calm || o.w.chance(40))
}

// round is what the operator does every few seconds.
func (o *operator) round() {
	o.w.after(5*time.Second, o.round)
	e := o.w.clients.leader()
	if e == nil || o.away {
		return
	}
	view := e.n.m.View()
	for _, d := range view.Devices() {
		sick := d.State == model.DeviceUnhealthy || d.Absent && d.Lease == 0
		if o.stands("device "+d.ID, sick) {
			o.attend(e, d)
		}
	}
	for _, a := range view.Agents() {
		silent := a.Silent && e.sessionOf(a.Host) == nil
		o.stands("host "+a.Host, silent && len(view.LeasesOn(a.Host)) == 0)
		if silent {
			o.attendHost(e, view, a.Host)
		}
	}
	withheld, waits := view.Withheld()
	if o.stands("write-off", waits && withheld.LastTerm == view.Term()) {
		o.w.counts.Permits++
		o.w.clients.set(command.Setting{Name: "mass_permit", Value: 1})
	}
}

// say proposes what was true a moment ago, once: repeated minutes later it need
// not be true any more.
func (o *operator) say(e *epoch, body any, done func(answer)) {
	e.propose(o.w.encode(command.Request{}, body), func(a answer) {
		if a.known {
			done(a)
		}
	})
}

func (w *World) hostNamed(name string) *host {
	return w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.name == name })]
}

// attend looks at a device in quarantine, or one that its host no longer
// declares.
func (o *operator) attend(e *epoch, d *model.Device) {
	h := o.w.hostNamed(d.Host)
	if trees := h.treesOn(d.Name); len(trees) > 0 {
		if o.w.calm && slices.ContainsFunc(trees, func(t *tree) bool { return h.record(t.key) == nil }) {
			h.reboot()
			o.w.after(time.Second, h.startAgent)
		}
		return
	}
	starts := slices.ContainsFunc(h.records, func(r *record) bool { return r.device == d.Name && r.phase == wire.PhaseStarting })
	if h.gone || starts || d.Lease != 0 {
		return
	}
	if d.Absent || o.w.rng.IntN(6) == 0 {
		if d.Absent && o.w.calm {
			return // the grace has to do for who waits for it
		}
		o.say(e, &command.DeviceRetire{Device: d.ID}, func(a answer) {
			if a.result.Code == command.OK {
				o.w.counts.DevicesRetired++
			}
		})
		return
	}
	if d.State != model.DeviceUnhealthy {
		return
	}
	o.say(e, &command.DeviceClear{Device: d.ID}, func(a answer) {
		if a.result.Code == command.OK {
			o.w.counts.Cleared++
		}
	})
}

// attendHost looks at a silent host: one that is gone gives up its leases by
// force, and one without any is retired.
func (o *operator) attendHost(e *epoch, view *fsm.View, name string) {
	h := o.w.hostNamed(name)
	leases := view.LeasesOn(name)
	if len(leases) > 0 {
		if h.gone && (o.w.calm || o.w.chance(10)) || o.hurry == name && !o.w.calm {
			for _, j := range view.LiveJobsOn(name) {
				job := j.Number
				if h := view.Job(j.Hold); h != nil && h.State.Terminal() {
					job = h.Number // people name the hold for what it has left behind
				}
				o.w.clients.ask(&command.LeaseRelease{Job: job, By: "root", Admin: true, Force: true, Detached: true}, func(a answer) {
					if a.result.Code == command.OK {
						o.w.counts.Forced++
					}
				})
			}
		}
		return
	}
	named := !slices.ContainsFunc(h.trees, func(t *tree) bool { return h.record(t.key) == nil })
	if !named || !h.gone && (o.w.calm || o.hurry != name && !o.w.chance(10)) || !o.stands("host "+name, true) {
		return
	}
	if h.retiredAlive = !h.gone; len(h.trees) > 0 {
		o.w.counts.RetiredAlive++
	}
	o.say(e, &command.DeviceRetire{Host: name}, func(a answer) {
		if a.result.Code == command.OK {
			o.w.counts.HostsRetired++
			o.comesBack(h)
		}
	})
}

// comesBack decides what becomes of a name after its host was retired: another
// machine gets it, the old one is switched on again, or nothing.
func (o *operator) comesBack(h *host) {
	if !h.gone || o.w.calm {
		return
	}
	fate := o.w.rng.IntN(5)
	o.w.after(o.w.between(time.Second, 60*time.Second), func() {
		switch {
		case !h.gone || o.w.calm:
		case fate < 3:
			h.replace()
		case fate == 3:
			o.w.note("host %s is switched on again", h.name)
			h.gone = false
			h.startAgent()
		}
	})
}
