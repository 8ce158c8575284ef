package sim

import (
	"strings"
	"testing"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// atInside brings a world to the feature level of jobs inside holds.
func (w *World) atInside() {
	for _, n := range w.nodes {
		if n.knows < fsm.LevelInside {
			n.crash()
			n.knows = fsm.LevelInside
			n.restart()
		}
	}
	if w.log.leader == nil {
		w.electSoon(0)
	}
	w.clients.mute = true
	w.Run(20 * time.Second)
	if level := w.witness.last.FeatureLevel(); level < fsm.LevelInside {
		w.fail("the feature level is %d", level)
	}
}

// held submits a hold on the first device of a host and returns its number.
func (w *World) held(h *host, sessionS int64) uint64 {
	limit := h.devices[0].MaxRuntimeS
	if limit == 0 {
		limit = 300
	}
	s := w.clients.request(command.JobSpec{Kind: model.KindHold, Submitter: "ann", Pinned: w.device(h), MaxRuntimeS: limit, SessionS: sessionS})
	w.clients.try(s)
	w.Run(500 * time.Millisecond)
	if len(s.jobs) != 1 {
		w.fail("the hold was not taken")
	}
	return s.jobs[0]
}

func (w *World) insideOf(hold uint64, times int) *submit {
	specs := make([]command.JobSpec, times)
	for i := range specs {
		specs[i] = command.JobSpec{Hold: hold, Command: []string{"work"}, Submitter: "ann"}
	}
	s := w.clients.request(specs...)
	w.clients.try(s)
	w.Run(500 * time.Millisecond)
	return s
}

// everyFleet runs a script on some fleets.
func everyFleet(t *testing.T, script func(w *World)) {
	t.Helper()
	for seed := uint64(1); seed <= 8; seed++ {
		if err := scenario(seed, NoQuirk, script); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A host dies before it heard of a hold and of what is inside: the hold goes back
// to the queue and leaves nobody behind, and runs when the host is back.
func TestADeadHostGivesAHoldBackWithoutWhatIsInside(t *testing.T) {
	everyFleet(t, func(w *World) {
		w.atInside()
		h := w.hosts[0]
		e := w.log.leader.epoch
		h.up = false // no hello of its own accord
		h.dropped(h.session)
		e.sessionOf(h.name).closeLeaderSide(false)
		hold := w.held(h, 0)
		in := w.insideOf(hold, 2)
		w.Run(30 * time.Second)
		if j := w.witness.last.Job(hold); j.State != model.JobQueued {
			w.fail("the hold is %s", j.State)
		}
		for _, n := range in.jobs {
			if j := w.witness.last.Job(n); j.State != model.JobKilled || !strings.HasSuffix(j.EndReason, "went back to the queue") {
				w.fail("job %d inside is %s (%s)", n, j.State, j.EndReason)
			}
		}
		h.up = true
		h.beat(h.instance())
		h.connect(h.instance())
		w.Run(10 * time.Second)
		if j := w.witness.last.Job(hold); j.State != model.JobRunning {
			w.fail("the hold is %s", j.State)
		}
	})
}

// An agent is killed behind the fence of a job inside: its next process names the
// hold, and is asked for the job again. The fence says that it has begun it.
func TestAJobInsideIsNeverBegunTwice(t *testing.T) {
	everyFleet(t, func(w *World) {
		w.atInside()
		h := w.hosts[0]
		hold := w.held(h, 0)
		w.Run(5 * time.Second)
		name := h.devices[0].Name
		lease := w.witness.last.Job(hold).Lease
		next := w.witness.last.Job(hold).Number + 1
		h.begun[name] = h.begun[name].with(jobKey{next, lease}) // and no record
		in := w.insideOf(hold, 2)
		if in.jobs[0] != next {
			w.fail("job %d is inside, not %d", in.jobs[0], next)
		}
		h.stopAgent()
		w.Run(time.Second)
		h.startAgent()
		w.Run(10 * time.Second)
		if j := w.witness.last.Job(next); j.State != model.JobLost && !h.container {
			w.fail("job %d is %s", next, j.State)
		}
		if _, ran := w.witness.runs[next]; ran {
			w.fail("job %d ran", next)
		}
	})
}

// Leadership changes while the client of a hold speaks, and the hold goes on. Then
// the client dies, and the hold and what is inside end.
func TestTheSessionOfAHoldOutlivesAFailover(t *testing.T) {
	everyFleet(t, func(w *World) {
		w.atInside()
		h := w.hosts[0]
		hold := w.held(h, 20)
		w.insideOf(hold, 2)
		every := 20 * time.Second / 3
		w.clients.speak(hold, every, w.now+130*time.Second)
		w.Run(60 * time.Second)
		w.log.depose(0)
		w.electSoon(time.Second)
		w.Run(60 * time.Second)
		if j := w.witness.last.Job(hold); j.KillRequested || j.State.Terminal() && j.Origin == model.OriginUser {
			w.fail("the hold is %s (%s)", j.State, j.EndReason)
		}
		w.Run(70 * time.Second)
		if j := w.witness.last.Job(hold); !strings.HasPrefix(j.KillBy, sessionEnded) && j.EndReason != "max_runtime exceeded" {
			w.fail("the hold is %s (%s)", j.State, j.EndReason)
		}
	})
}
