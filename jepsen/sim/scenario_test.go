package sim

import (
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// Each scenario is a bug that was found, in its shortest form; jepsen/BUGS.md
// lists them. They run on a world without random faults, which ends as every
// run does: in a calm in which everything has to come to its end.

func scenario(seed uint64, quirk Quirk, script func(w *World)) error {
	_, err := Run(Options{Seed: seed, Quirk: quirk, Script: func(w *World) {
		w.calm = true
		script(w)
	}})
	return err
}

// both wants the script to pass, whatever the fleet, and to fail with the bug
// put back on some fleet.
func both(t *testing.T, quirk Quirk, script func(w *World)) {
	t.Helper()
	var seen error
	for seed := uint64(1); seed <= 5; seed++ {
		if err := scenario(seed, NoQuirk, script); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if err := scenario(seed, quirk, script); err != nil {
			seen = err
		}
	}
	if seen == nil {
		t.Error("passes with the bug put back")
		return
	}
	t.Logf("with the bug put back: %.200v", seen)
}

// pin submits a job for a device and returns its client's side.
func (w *World) pin(device string) *submit {
	s := w.clients.request(command.JobSpec{Command: []string{"work"}, Submitter: "ann", Pinned: device})
	w.clients.try(s)
	return s
}

// cut cuts a host off every controller for a while.
func (w *World) cut(h *host, d time.Duration) {
	for _, n := range w.nodes {
		h.cutIn[n.id], h.cutOut[n.id] = w.now+d, w.now+d
	}
}

func (w *World) device(h *host) string { return model.DeviceID(h.name, h.devices[0].Name) }

// An agent comes back while the sweep that takes its unordered job away is in
// flight. If its hello does not wait, and its orders with it, the job is
// ordered and goes back to the queue.
func TestAHelloWaitsForTheVerdictOnItsHost(t *testing.T) {
	both(t, QuirkAdmitInVerdict, func(w *World) {
		h := w.hosts[0]
		e := w.log.leader.epoch
		w.cut(h, 4*time.Second)
		h.dropped(h.session)
		e.sessionOf(h.name).closeLeaderSide(false)
		w.pin(w.device(h)) // placed at once: the device is ready still
		w.Run(3100 * time.Millisecond)
		w.stall(3500 * time.Millisecond)
		w.Run(4 * time.Second)
	})
}

// An agent is admitted just before the sweep that would take its unordered job
// away is collected, and attached just after: the sweep has to leave its host
// out.
func TestASweepLeavesOutAHostThatIsBeingTakenIn(t *testing.T) {
	both(t, QuirkAttachUnseen, func(w *World) {
		h := w.hosts[0]
		e := w.log.leader.epoch
		w.cut(h, 2500*time.Millisecond)
		h.dropped(h.session)
		e.sessionOf(h.name).closeLeaderSide(false)
		h.up = false // no hello of its own accord
		sweep := e.began + (w.now + 3*time.Second - e.began).Truncate(tickEvery) + tickEvery
		w.Run(sweep - w.now - 300*time.Millisecond)
		w.pin(w.device(h))
		w.Run(200 * time.Millisecond)
		h.up = true
		w.slowAttach = 200 * time.Millisecond
		e.verify(h, h.hello(), 0)
		w.Run(99 * time.Millisecond)
		w.slowAttach = 0
		w.stall(time.Second)
		w.Run(4 * time.Second)
		h.beat(h.instance())
		h.connect(h.instance())
	})
}

// A leader that was deposed and has not noticed sees, as a follower, what the
// next term places. If it orders that, the new leader does not know, and takes
// the job back.
func TestAPassedLeaderOrdersNothingOfALaterTerm(t *testing.T) {
	both(t, QuirkOrderAhead, func(w *World) {
		h := w.hosts[0]
		old := w.log.leader
		w.log.depose(4500 * time.Millisecond)
		for _, n := range w.nodes {
			if n != old {
				w.log.elect(n)
				h.cutIn[n.id], h.cutOut[n.id] = w.now+30*time.Second, w.now+30*time.Second
				break
			}
		}
		w.Run(200 * time.Millisecond)
		w.clients.at(w.log.leader.epoch, func() { w.pin(w.device(h)) })
		w.Run(20 * time.Second)
	})
}

// A host is written off while its jobs are to be retained; then they are not to
// be any more. The leader has to say again that the host is silent.
func TestRetainedJobsAreJudgedWhenTheyAreRetainedNoMore(t *testing.T) {
	both(t, QuirkJudgeOnce, func(w *World) {
		h := w.hosts[0]
		w.operator.away = true
		w.clients.set(command.Setting{Name: "retain_disconnected_jobs", Value: 1}, command.Setting{Name: "mass_floor", Value: 3})
		w.pin(w.device(h))
		w.Run(2 * time.Second)
		h.reboot()
		h.gone = true
		w.Run(4 * time.Minute)
		w.clients.set(command.Setting{Name: "retain_disconnected_jobs", Value: 0})
		w.Run(time.Second)
	})
}

// A job is placed on a device while the sweep that makes it unknown is in
// flight. The next sweeps have to name it, although the host is known to be
// silent, or a dead host swallows it until it is written off.
func TestAJobPlacedDuringTheSweepGoesBack(t *testing.T) {
	both(t, QuirkJudgeOnce, func(w *World) {
		h := w.hosts[0]
		e := w.log.leader.epoch
		w.cut(h, time.Hour)
		h.dropped(h.session)
		e.sessionOf(h.name).closeLeaderSide(false)
		for !e.verdict {
			w.Run(time.Millisecond)
			if w.now > time.Minute {
				t.Fatal("no sweep")
			}
		}
		// In front of the sweep in the log.
		sweep := e.queue
		e.queue = nil
		s := w.clients.request(command.JobSpec{Command: []string{"work"}, Submitter: "ann", Pinned: w.device(h)})
		submit := w.encode(s.request, &command.JobEnqueue{Jobs: s.specs})
		e.n.appendEntry(e, [][]byte{submit}, []func(answer){func(answer) {}})
		e.n.appendBatch(sweep)
		w.clients.try(s) // the first answer got lost
		w.Run(35 * time.Second)
	})
}

// A device that its host no longer declares is unknown for ever. Its agent is
// there all the same: saying so again every second would never let the log
// rest.
func TestADeviceNoLongerDeclaredLeavesTheLogIdle(t *testing.T) {
	both(t, QuirkHearAbsent, func(w *World) {
		h := w.hosts[0]
		h.stopAgent()
		w.Run(time.Second)
		h.leftOut = h.devices[0].Name
		h.startAgent()
		w.Run(10 * time.Second)
	})
}
