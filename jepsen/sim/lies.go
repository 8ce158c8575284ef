package sim

import (
	"fmt"

	"rcd/fsm/command"
	"rcd/model"
	rc "rcd/session"
	"rcd/wire"
)

// lie proposes a sweep with evidence that is made up: hours of silence, of
// leases not named, of an epoch that has lasted for days. The table has to
// bound it by what it knows itself.
func (w *World) lie() {
	e := w.clients.leader()
	if e == nil || e.verdict || e.admitting > 0 {
		return
	}
	w.counts.Lies++
	view := e.n.m.View()
	body := &command.Sweep{EpochMS: 1 << 40}
	for _, a := range view.Agents() {
		instance := a.Instance
		if w.rng.IntN(4) == 0 {
			instance = "another"
		}
		if e.sessionOf(a.Host) == nil {
			body.Silent = append(body.Silent, command.AgentSilence{Host: a.Host, Instance: instance, SilenceMS: 1 << 40, DetachedMS: 1 << 40})
		}
	}
	for _, l := range view.Leases() {
		body.Unnamed = append(body.Unnamed, command.LeaseUnnamed{Lease: l.Number, UnnamedMS: 1 << 40})
		// Never ordered, it says: true of none that another term has placed, and
		// of no use while the host is there.
		if l.Term != e.term || e.sessionOf(l.Host) != nil && view.Device(l.Devices[0]).State == model.DeviceBusy {
			body.Unordered = append(body.Unordered, l.Jobs...)
		}
	}
	for _, h := range view.Sessions() {
		body.Sessions = append(body.Sessions, command.SessionSilence{Job: h.Number, SilenceMS: 1 << 40})
	}
	e.verdict = true
	e.propose(w.encode(command.Request{}, body), func(answer) { e.judged() })
}

// forge reports the start and the end of a live job under a lease that is not
// its own, or from a process that is not the registered agent. The table takes
// neither.
func (w *World) forge() {
	e := w.clients.leader()
	if e == nil {
		return
	}
	active := e.n.m.View().Active()
	if len(active) == 0 {
		return
	}
	j := active[w.rng.IntN(len(active))]
	a := e.n.m.View().Agent(j.Host)
	ref, instance := command.JobRef{Job: j.Number, Lease: j.Lease}, a.Instance
	switch w.rng.IntN(3) {
	case 0:
		ref.Lease--
	case 1:
		ref.Lease += 1000
	default:
		instance = "passed"
	}
	code := int32(99)
	var body any = &command.JobFinish{JobRef: ref, Host: j.Host, Instance: instance, ExitCode: &code, OutputKnown: true}
	if w.rng.IntN(2) == 0 {
		body = &command.JobStart{JobRef: ref, Host: j.Host, Instance: instance}
	}
	w.counts.Forged++
	e.propose(w.encode(command.Request{}, body), func(a answer) {
		if a.known && a.result.Code == command.OK {
			w.fail("law 9: a report of job %d under lease %d by %s was taken, its lease is %d", j.Number, ref.Lease, instance, j.Lease)
		}
	})
}

// wrongMachine is another machine that comes under a known name.
func (w *World) wrongMachine() {
	e := w.clients.leader()
	if e == nil {
		return
	}
	h := w.anyHost()
	if e.n.m.View().Agent(h.name) == nil {
		return
	}
	hello := h.hello()
	hello.MachineID, hello.Instance = "m-other", fmt.Sprintf("other-%d", w.rng.IntN(1000))
	if w.rng.IntN(2) == 0 {
		e.n.takeHello(h, hello) // refused before it comes to the table
		return
	}
	e.propose(w.encode(command.Request{}, impossible(hello)), func(a answer) {
		if a.known && a.result.Code != command.WrongMachine && a.result.Code != command.StaleEpoch && a.result.Code != command.BadRequest {
			w.fail("another machine came in as %s: %q", h.name, a.result.Code)
		}
	})
}

// impossible is a registration that is refused in any case, should its host be
// retired before it is applied: it must not make a host that nobody is.
func impossible(hello wire.Hello) *command.AgentRegister {
	body := rc.Registration(hello)
	body.Devices = append(body.Devices, command.DeviceSpec{Name: "no:name"})
	return body
}

// foreignWord is what nobody with a good reason says: a raise of the feature
// level that not all controllers know, the word of a controller that is none,
// and a proof that only a fresh process could give.
func (w *World) foreignWord() {
	e := w.clients.leader()
	if e == nil {
		return
	}
	switch w.rng.IntN(5) {
	case 4:
		w.former(e)
	case 3:
		// The operator has the wrong host in mind: it is in contact, or a sweep
		// has not said otherwise.
		for _, a := range e.n.m.View().Agents() {
			if !a.Silent {
				e.propose(w.encode(command.Request{}, &command.DeviceRetire{Host: a.Host}), func(a answer) {
					if a.known && a.result.Code == command.DeviceBusy {
						w.counts.RetireRefused++
					}
				})
				return
			}
		}
	case 0:
		body := &command.FeatureRaise{Level: 1 + uint32(w.rng.IntN(3))}
		for _, n := range w.nodes {
			body.Members = append(body.Members, n.id)
		}
		e.propose(w.encode(command.Request{}, body), func(a answer) {
			if a.known && a.result.Code == command.FeatureRefused {
				w.counts.RaiseRefused++
			}
		})
	case 1:
		w.counts.Ghosts++
		e.propose(w.encode(command.Request{}, &command.MemberPut{ID: "c9", Incarnation: "gone", Supports: 1}), func(answer) {})
	default:
		agents := e.n.m.View().Agents()
		if len(agents) == 0 {
			return
		}
		a := agents[w.rng.IntN(len(agents))]
		w.counts.Forged++
		body := &command.Recover{Host: a.Host, Instance: a.Instance, Proof: command.Proof{Isolated: true}}
		if w.rng.IntN(2) == 0 {
			body.Instance, body.Proof.SurvivorsChecked = "passed", true
		}
		e.propose(w.encode(command.Request{}, body), func(a answer) {
			if a.known && a.result.Code == command.OK && body.Instance == "passed" {
				w.fail("law 7: the proof of a process that is not registered was taken for %s", body.Host)
			}
		})
	}
}

// former is the registration of an agent process that another one has followed.
func (w *World) former(e *epoch) {
	h := w.anyHost()
	a := e.n.m.View().Agent(h.name)
	if a == nil || len(a.Former) == 0 {
		return
	}
	hello := h.hello()
	hello.MachineID, hello.BootID, hello.Jobs = a.MachineID, a.BootID, nil
	hello.Instance = a.Former[w.rng.IntN(len(a.Former))]
	e.propose(w.encode(command.Request{}, impossible(hello)), func(a answer) {
		switch {
		case !a.known || a.result.Code == command.StaleEpoch || a.result.Code == command.WrongMachine || a.result.Code == command.BadRequest:
		case a.result.Code == command.StaleInstance:
			w.counts.FormerRefused++
		default:
			w.fail("agent process %s of %s came in after another: %q", hello.Instance, h.name, a.result.Code)
		}
	})
}
