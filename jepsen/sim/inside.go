package sim

import (
	"strings"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// inside submits a few jobs inside some hold, mostly one that takes them in and
// as who holds it.
func (c *clients) inside() {
	view, rng := c.w.witness.last, c.w.rng
	if view.FeatureLevel() < fsm.LevelInside {
		return
	}
	var holds []*model.Job
	for _, j := range view.Active() {
		if j.Kind == model.KindHold {
			holds = append(holds, j)
		}
	}
	for j := range view.Queued() {
		if j.Kind == model.KindHold && rng.IntN(4) == 0 {
			holds = append(holds, j)
		}
	}
	if len(holds) == 0 {
		return
	}
	h := holds[rng.IntN(len(holds))]
	specs := make([]command.JobSpec, 1+rng.IntN(3))
	for i := range specs {
		specs[i] = command.JobSpec{Hold: h.Number, Command: []string{"work"}, Submitter: h.Submitter}
		if rng.IntN(2) == 0 {
			specs[i].MaxRuntimeS = 5 + rng.Int64N(30)
		}
		if rng.IntN(20) == 0 {
			specs[i].Submitter = "eve"
		}
	}
	c.try(c.request(specs...))
}

// withSession gives a hold a session now and then, and a limit beyond it.
func (c *clients) withSession(s *command.JobSpec) {
	if c.w.witness.last.FeatureLevel() < fsm.LevelInside {
		return
	}
	s.MaxRuntimeS += c.w.rng.Int64N(120)
	if c.w.rng.IntN(2) == 0 {
		s.SessionS = model.MinSessionS + c.w.rng.Int64N(30)
	}
}

// beat is a word of the client of a hold: to which leader it came, and when.
type beat struct {
	term uint64
	at   time.Duration
}

// listenFor has the clients of holds speak from the moment at which they know
// their jobs. Half of them die at some time.
func (c *clients) listenFor(s *submit) {
	for i, job := range s.jobs {
		if s.specs[i].SessionS == 0 || c.mute {
			continue
		}
		c.w.counts.Sessions++
		until := time.Duration(-1)
		if c.w.rng.IntN(2) == 0 {
			until = c.w.now + c.w.between(0, 60*time.Second)
		}
		c.speak(job, time.Duration(s.specs[i].SessionS)*time.Second/3, until)
	}
}

// speak is a heartbeat of the client of a hold, by way of any controller.
func (c *clients) speak(job uint64, every, until time.Duration) {
	j := c.w.witness.last.Job(job)
	if j == nil || j.State.Terminal() || until >= 0 && c.w.now > until {
		return
	}
	c.w.after(every, func() { c.speak(job, every, until) })
	e := c.leader()
	if e == nil || c.w.chance(5) {
		return
	}
	delay := c.w.between(time.Millisecond, 20*time.Millisecond)
	if c.w.chance(4) {
		delay = c.w.between(100*time.Millisecond, 3*time.Second)
	}
	c.w.after(delay, func() {
		if !e.ended {
			e.callers[job] = c.w.now
			c.w.witness.beats[job] = beat{e.term, c.w.now}
		}
	})
}

// unheard is what the leader has to say of the clients of holds: of a silence that
// the table has not drawn everything from, or of one that is over.
func (e *epoch) unheard(view *fsm.View) (said []command.SessionSilence) {
	age := e.w.now - e.began
	uptime := view.EpochUptimeMS() + age.Milliseconds()
	for _, h := range view.Sessions() {
		at, heard := e.callers[h.Number]
		silence := min((e.w.now - max(e.began, at)).Milliseconds(), uptime-h.QueuedUptimeMS)
		bound := h.SessionS * 1000
		switch {
		case h.KillRequested:
		case silence >= bound && age.Milliseconds() >= view.Settings().HoldoffMS, silence >= bound/2 && !h.SessionSilent:
			said = append(said, command.SessionSilence{Job: h.Number, SilenceMS: silence})
		case h.SessionSilent && heard && silence < bound/2:
			said = append(said, command.SessionSilence{Job: h.Number})
		}
	}
	return said
}

// entered holds a new job inside a hold against the hold and returns the device
// that it has to be on.
func (s *step) entered(j *model.Job) string {
	h := s.old.Job(j.Hold)
	if h == nil {
		h = s.now.Job(j.Hold) // it came in this very entry
	} else if !h.State.Active() || h.KillRequested {
		s.w.fail("index %d: job %d comes inside hold %d, which is %s and takes nobody in", s.index, j.Number, h.Number, h.State)
	}
	if h == nil || h.Kind != model.KindHold || h.Submitter != j.Submitter || h.Lease != j.Lease || h.Host != j.Host {
		s.w.fail("index %d: job %d of %s comes inside %d and is under lease %d", s.index, j.Number, j.Submitter, j.Hold, j.Lease)
	}
	s.w.counts.Inside++
	return h.Devices[0]
}

// sessionEnded begins the reason of an end by the silence of a client.
const sessionEnded = "the session of its client has ended"

// sessionOf: a client's silence ends its hold after the holdoff only, and after as
// long an epoch as the silence that it may have: law 4. The end of a hold is asked
// for with that of what runs inside.
func (s *step) sessionOf(was, is *model.Job) {
	switch {
	case is.Hold != 0 && is.KillRequested && (was == nil || !was.KillRequested) && strings.HasPrefix(is.KillBy, "hold "):
		s.w.counts.InsideAsked++
	case is.Hold != 0 && is.State.Terminal() && was != nil && was.State.Active() && s.now.Lease(is.Lease) != nil:
		s.w.counts.InsideAlone++
	case was == nil:
	case is.SessionSilent && !was.SessionSilent:
		s.w.counts.SessionsSilent++
	case !is.SessionSilent && was.SessionSilent:
		s.w.counts.SessionsHeard++
	}
	if was == nil || is.SessionS == 0 {
		return
	}
	asked := is.KillRequested && !was.KillRequested && strings.HasPrefix(is.KillBy, sessionEnded)
	ended := was.State == model.JobQueued && is.State.Terminal() && strings.HasPrefix(is.EndReason, sessionEnded)
	if !asked && !ended {
		return
	}
	if s.w.counts.SessionsEnded++; ended {
		s.w.counts.SessionsQueued++
	}
	age := (s.entry.Stamp - s.x.terms[s.term]) / int64(time.Millisecond)
	if holdoff := s.old.Settings().HoldoffMS; !s.accepts(endsSessions) || age < holdoff && !s.sets() || age < is.SessionS*1000 {
		s.w.fail("law 4: the session of hold %d ends at index %d, %d ms into the epoch; it allows %d s, the holdoff is %d ms", is.Number, s.index, age, is.SessionS, holdoff)
	}
}

// endsSessions reports whether a command says how long clients were not heard.
func endsSessions(body any) bool {
	b, ok := body.(*command.Sweep)
	return ok && len(b.Sessions) > 0
}

// abandonedTicks is how many ticks of a leader that can act a hold may outlive the
// session of its client.
const abandonedTicks = 25

// abandoned tests that a hold whose client is gone ends within the holdoff and
// what its session allows.
func (x *witness) abandoned(e *epoch) {
	v := e.n.m.View()
	if x.w.log.leader != e.n || x.w.log.term != e.term || v.Index() != x.last.Index() || !x.w.log.majority() ||
		x.w.now < x.w.log.stalled || len(x.w.log.tail) > 0 {
		return
	}
	late := false
	for _, h := range v.Sessions() {
		since := max(e.began, x.beats[h.Number].at)
		bound := time.Duration(max(h.SessionS*1000, v.Settings().HoldoffMS)) * time.Millisecond
		late = late || !h.KillRequested && x.w.now-since > bound && v.UptimeMS()-h.QueuedUptimeMS > h.SessionS*1000
	}
	if !late {
		e.deserted = 0
		return
	}
	if e.deserted++; e.deserted > abandonedTicks {
		x.w.fail("law 4: the client of a hold is gone, and %s has not ended it", e.n.id)
	}
}
