package sim

import (
	"fmt"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// storm makes steps of load and of faults, some virtual minutes in all.
func (w *World) storm(steps int) {
	type kind struct {
		weight int
		do     func()
	}
	kinds := []kind{
		{34, w.clients.submit},
		{9, w.clients.kill},
		{5, w.newLeader},
		{3, w.regain},
		{2, w.crash},
		{2, w.lag},
		{4, w.snapshot},
		{4, w.restartAgent},
		{2, w.reboot},
		{3, w.cutHost},
		{2, w.cutPair},
		{2, w.cutOneWay},
		{3, w.lie},
		{3, w.forge},
		{3, w.clockStep},
		{2, w.reconfigure},
		{1, w.wrongMachine},
		{3, w.slowNetwork},
		{3, func() { w.Run(w.between(20*time.Second, 120*time.Second)) }},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for range steps {
		pick := w.rng.IntN(total)
		for _, k := range kinds {
			if pick -= k.weight; pick < 0 {
				k.do()
				break
			}
		}
		w.Run(time.Duration(w.rng.ExpFloat64() * float64(1200*time.Millisecond)))
	}
}

func (w *World) anyHost() *host { return w.hosts[w.rng.IntN(len(w.hosts))] }
func (w *World) anyNode() *node { return w.nodes[w.rng.IntN(len(w.nodes))] }

// maxBelief bounds how long a deposed leader does not notice: Raft's leader
// lease and whatever delays the goroutines behind it, well inside the shortest
// holdoff.
const maxBelief = 5 * time.Second

// newLeader deposes the leader; another one, or the same, leads soon. Now and
// then it goes with work in flight.
func (w *World) newLeader() {
	w.inFlight()
	notices := time.Duration(0)
	if w.rng.IntN(3) > 0 {
		notices = w.between(0, maxBelief)
	}
	w.log.depose(notices)
	w.electSoon(w.between(0, 3*time.Second))
}

// inFlight fills the log with what is not committed yet.
func (w *World) inFlight() {
	if w.rng.IntN(2) == 0 {
		return
	}
	w.stall(w.between(50*time.Millisecond, 4*time.Second))
	for range 1 + w.rng.IntN(4) {
		w.clients.submit()
		w.clients.kill()
		w.Run(w.between(0, 12*time.Millisecond))
	}
	w.Run(w.between(0, 1500*time.Millisecond))
}

// stall lets nothing be committed for a while.
func (w *World) stall(d time.Duration) { w.log.stalled = w.now + d }

func (w *World) electSoon(d time.Duration) {
	w.after(d, func() {
		if w.log.leader != nil {
			return
		}
		n := w.anyNode()
		if !n.up || !w.log.majority() {
			w.electSoon(time.Second)
			return
		}
		w.log.elect(n)
	})
}

// regain: leadership is lost and regained at once, and nobody noticed.
func (w *World) regain() {
	w.inFlight()
	if n := w.log.leader; n != nil {
		w.log.depose(w.between(0, maxBelief))
		w.log.elect(n)
	}
}

func (w *World) crash() {
	n := w.anyNode()
	n.crash()
	w.electSoon(w.between(100*time.Millisecond, 3*time.Second))
	w.after(w.between(time.Second, 40*time.Second), n.restart)
}

func (w *World) lag() {
	n := w.anyNode()
	n.lag = w.now + w.between(time.Second, 20*time.Second)
	w.note("%s applies nothing until %.3fs", n.id, n.lag.Seconds())
	if w.rng.IntN(2) == 0 {
		w.after(n.lag-w.now-time.Millisecond, func() { n.install(w.anyNode()) })
	}
}

func (w *World) snapshot() {
	if n := w.anyNode(); n.up && n.m.Index() > 0 {
		n.takeSnapshot()
	}
}

func (w *World) restartAgent() {
	h := w.anyHost()
	h.stopAgent()
	w.after(w.between(100*time.Millisecond, 30*time.Second), func() {
		if !h.up && w.rng.IntN(4) == 0 {
			h.relabel()
		}
		if !h.up && w.rng.IntN(5) == 0 && len(h.devices) > 1 && h.leftOut == "" {
			h.leftOut = h.devices[w.rng.IntN(len(h.devices))].Name
		} else if !h.up {
			h.leftOut = ""
		}
		h.startAgent()
	})
}

func (w *World) reboot() {
	h := w.anyHost()
	h.reboot()
	if w.rng.IntN(6) == 0 && h == w.hosts[0] {
		w.note("host %s is gone for good", h.name)
		h.gone = true
		return
	}
	w.after(w.between(2*time.Second, 200*time.Second), h.startAgent)
}

// cutHost cuts a host off every controller.
func (w *World) cutHost() {
	h, until := w.anyHost(), w.now+w.between(time.Second, 200*time.Second)
	w.note("host %s is cut off until %.3fs", h.name, until.Seconds())
	for _, n := range w.nodes {
		h.cutIn[n.id], h.cutOut[n.id] = until, until
	}
}

// slowNetwork delays and drops far more than usual.
func (w *World) slowNetwork() {
	w.slowUntil = w.now + w.between(time.Second, 30*time.Second)
	w.note("the network is bad until %.3fs", w.slowUntil.Seconds())
}

// cutPair cuts a host off one controller.
func (w *World) cutPair() {
	h, n, until := w.anyHost(), w.anyNode(), w.now+w.between(time.Second, 60*time.Second)
	w.note("host %s and %s are cut until %.3fs", h.name, n.id, until.Seconds())
	h.cutIn[n.id], h.cutOut[n.id] = until, until
}

// cutOneWay drops one direction only.
func (w *World) cutOneWay() {
	h, until := w.anyHost(), w.now+w.between(time.Second, 60*time.Second)
	in := w.rng.IntN(2) == 0
	w.note("host %s is cut one way until %.3fs", h.name, until.Seconds())
	for _, n := range w.nodes {
		if in {
			h.cutIn[n.id] = until
		} else {
			h.cutOut[n.id] = until
		}
	}
}

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

// clockStep moves a wall clock by up to hours, either way. Epochs that have
// begun go on by the monotonic clock.
func (w *World) clockStep() {
	n := w.anyNode()
	n.wall = w.between(-5*time.Hour, 5*time.Hour)
	w.note("the wall clock of %s is off by %v", n.id, n.wall.Round(time.Second))
}

func (w *World) reconfigure() {
	switch w.rng.IntN(3) {
	case 0:
		w.clients.set(command.Setting{Name: "aging_ms", Value: []int64{0, 60_000, 1_800_000}[w.rng.IntN(3)]})
	case 1:
		w.clients.set(command.Setting{Name: "retain_disconnected_jobs", Value: w.rng.Int64N(2)})
	default:
		w.clients.set(command.Setting{Name: "holdoff_ms", Value: 10_000 + w.rng.Int64N(25_000)})
	}
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
	e.propose(w.encode(command.Request{}, registration(hello)), func(a answer) {
		if a.known && a.result.Code != command.WrongMachine && a.result.Code != command.StaleEpoch {
			w.fail("another machine came in as %s: %q", h.name, a.result.Code)
		}
	})
}
