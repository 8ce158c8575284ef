package sim

import (
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
		{3, w.clients.allocate},
		{8, w.clients.inside},
		{5, w.clients.kill},
		{4, w.clients.release},
		{7, w.clients.extend},
		{1, w.clients.schedule},
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
		{3, w.reconfigure},
		{1, w.wrongMachine},
		{1, w.cutMany},
		{1, w.flap},
		{3, w.newFacts},
		{2, w.fault},
		{1, w.restartInHoldoff},
		{1, w.givenUp},
		{2, w.freeze},
		{1, w.foreignWord},
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
	w.restart(h, w.between(100*time.Millisecond, 30*time.Second))
}

// restart starts an agent again, maybe with another configuration.
func (w *World) restart(h *host, down time.Duration) {
	h.stopAgent()
	w.after(down, func() {
		if !h.up && !w.calm {
			h.reconfigure()
		}
		h.startAgent()
	})
}

// restartInHoldoff restarts agents just after a new leader has begun.
func (w *World) restartInHoldoff() {
	w.newLeader()
	w.Run(w.between(3*time.Second, 6*time.Second))
	for _, h := range w.hosts {
		if w.rng.IntN(2) == 0 {
			w.restart(h, w.between(100*time.Millisecond, 5*time.Second))
		}
	}
}

// freeze lets the disk of a host take nothing for a while. Its agent goes on.
func (w *World) freeze() {
	h := w.anyHost()
	h.frozen = w.now + w.between(time.Second, 90*time.Second)
	w.counts.Frozen++
	w.note("the disk of %s is frozen until %.3fs", h.name, h.frozen.Seconds())
}

// givenUp cuts off a host with jobs, and the operator does not wait for it.
func (w *World) givenUp() {
	for _, h := range w.hosts {
		if len(h.trees) == 0 {
			continue
		}
		until := w.now + w.between(60*time.Second, 180*time.Second)
		w.note("host %s is cut off until %.3fs, and given up", h.name, until.Seconds())
		w.operator.hurry = h.name
		for _, n := range w.nodes {
			h.cutIn[n.id], h.cutOut[n.id] = until, until
		}
		return
	}
}

// flap restarts a host again and again, each time with a job to lose.
func (w *World) flap() {
	h := w.anyHost()
	for range 3 + w.rng.IntN(3) {
		w.pinTo(model.DeviceID(h.name, h.devices[w.rng.IntN(len(h.devices))].Name))
		w.Run(w.between(time.Second, 4*time.Second))
		h.reboot()
		w.after(w.between(100*time.Millisecond, 2*time.Second), h.startAgent)
		w.Run(w.between(2*time.Second, 6*time.Second))
	}
}

// pinTo submits a job for a device.
func (w *World) pinTo(device string) {
	w.clients.try(w.clients.request(command.JobSpec{Command: []string{"work"}, Submitter: "ann", Pinned: device}))
}

// newFacts changes what a running agent says of its host.
func (w *World) newFacts() {
	h := w.anyHost()
	if w.rng.IntN(2) == 0 {
		h.sheet++
		h.tellFacts()
		return
	}
	i := w.rng.IntN(len(h.devices))
	h.relabelOne(i)
	h.redeclare(h.devices[i].Name)
}

// fault is a device that breaks, as its host or a person says.
func (w *World) fault() {
	h := w.anyHost()
	d := h.devices[w.rng.IntN(len(h.devices))].Name
	w.counts.Faults++
	if w.rng.IntN(2) == 0 {
		h.fault(d)
		return
	}
	w.clients.ask(&command.DeviceFault{Device: model.DeviceID(h.name, d), Detail: "smells of smoke"}, func(answer) {})
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

// cutMany cuts several hosts off every controller, as a broken switch does.
func (w *World) cutMany() {
	until := w.now + w.between(30*time.Second, 240*time.Second)
	for _, h := range w.hosts {
		if w.rng.IntN(5) == 0 {
			continue
		}
		w.note("host %s is cut off until %.3fs", h.name, until.Seconds())
		for _, n := range w.nodes {
			h.cutIn[n.id], h.cutOut[n.id] = until, until
		}
	}
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

// clockStep moves a wall clock by up to hours, either way. Epochs that have
// begun go on by the monotonic clock.
func (w *World) clockStep() {
	n := w.anyNode()
	n.wall = w.between(-5*time.Hour, 5*time.Hour)
	w.note("the wall clock of %s is off by %v", n.id, n.wall.Round(time.Second))
}

// reconfigure changes a setting within its range.
func (w *World) reconfigure() {
	rng := w.rng
	choices := []command.Setting{
		{Name: "aging_ms", Value: []int64{0, 60_000, 1_800_000}[rng.IntN(3)]},
		{Name: "retain_disconnected_jobs", Value: rng.Int64N(2)},
		{Name: "holdoff_ms", Value: 10_000 + rng.Int64N(25_000)},
		{Name: "no_serve_grace_ms", Value: 60_000 + rng.Int64N(90_000)},
		{Name: "mass_floor", Value: rng.Int64N(4)},
		{Name: "mass_percent", Value: rng.Int64N(101)},
		{Name: "flap_limit", Value: rng.Int64N(5)},
		{Name: "flap_window_ms", Value: 60_000 + rng.Int64N(3_600_000)},
		{Name: "unknown_after_ms", Value: 1_000 + rng.Int64N(5_000)},
		{Name: "lease_unstarted_ms", Value: 10_000 + rng.Int64N(40_000)},
	}
	w.clients.set(choices[rng.IntN(len(choices))])
}
