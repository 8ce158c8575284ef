package sim

import (
	"crypto/sha256"
	"fmt"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// question is a request that makes no job, as its client knows it. Half of them
// carry a request ID; the others may take effect more than once.
type question struct {
	request command.Request
	body    any
	began   time.Duration
}

// ask proposes a command until its outcome is known, and tells it once. Now
// and then it asks again under the same request ID.
func (c *clients) ask(body any, done func(answer)) {
	q := &question{body: body, began: c.w.now}
	if c.w.rng.IntN(2) == 0 {
		c.requests++
		id := fmt.Sprintf("q-%d", c.requests)
		digest := sha256.Sum256([]byte(id))
		q.request = command.Request{Scope: fmt.Sprintf("user-%d", c.w.rng.IntN(2)), ID: id, Digest: digest[:], Strict: c.w.rng.IntN(2) == 0}
	}
	c.asks++
	c.askOn(q, func(a answer) {
		c.asks--
		if a.known {
			done(a)
		}
	})
}

func (c *clients) askOn(q *question, done func(answer)) {
	c.propose(c.w.encode(q.request, q.body), func(a answer) {
		switch code := a.result.Code; {
		case c.w.now-q.began > retryWithin:
			done(answer{})
		case !a.known || code == command.StaleEpoch:
			c.w.counts.Retries++
			c.w.after(c.w.between(200*time.Millisecond, 2*time.Second), func() { c.askOn(q, done) })
		case code == command.Overloaded:
			done(answer{})
		default:
			done(a)
			if code == command.OK && q.request.ID != "" && c.w.chance(20) {
				c.w.after(c.w.between(0, 60*time.Second), func() { c.askAgain(q, a) })
			}
		}
	})
}

// askAgain repeats an accepted request: nothing is done and the answer is the
// same, or says that what it was about has been forgotten.
func (c *clients) askAgain(q *question, first answer) {
	c.propose(c.w.encode(q.request, q.body), func(a answer) {
		switch {
		case !a.known || a.result.Code == command.StaleEpoch || c.w.now-q.began > retryWithin:
		case a.result.Code == command.NotFound:
			for _, j := range first.result.Jobs {
				if !c.w.witness.pruned[j.Number] {
					c.w.fail("law 2: request %s is answered with not found, and job %d was never pruned", q.request.ID, j.Number)
				}
			}
		case a.result.Code != command.OK || !a.result.Repeat || a.result.Kill != first.result.Kill:
			c.w.fail("law 3: request %s was accepted and gives %q on repeat (repeat %t)", q.request.ID, a.result.Code, a.result.Repeat)
		default:
			c.w.counts.AskedAgain++
		}
	})
}

// someJob picks a job that has not ended, nil when there is none.
func (c *clients) someJob(view *fsm.View) *model.Job {
	live := view.Active()
	for j := range view.Queued() {
		live = append(live, j)
	}
	if len(live) == 0 {
		return nil
	}
	return live[c.w.rng.IntN(len(live))]
}

// caller draws who asks for something about a job: mostly who may.
func (c *clients) caller(j *model.Job) (by string, admin bool) {
	if c.w.rng.IntN(3) == 0 {
		return "root", c.w.rng.IntN(3) > 0 || c.w.calm
	}
	return j.Submitter, false
}

func (e *epoch) detachedFrom(j *model.Job) bool {
	return j.State.Active() && e.sessionOf(j.Host) == nil
}

// kill asks for the end of some job.
func (c *clients) kill() {
	if e := c.leader(); e != nil {
		if j := c.someJob(e.n.m.View()); j != nil {
			by, admin := c.caller(j)
			c.ask(&command.JobKill{Job: j.Number, By: by, Admin: admin, Detached: e.detachedFrom(j)}, c.ended)
		}
	}
}

func (c *clients) ended(a answer) {
	if a.result.Code == command.OK && a.result.Kill == command.KillFinalized {
		c.w.counts.Finalized++
	}
}

// release gives a lease back, by its owner or by an administrator, who may
// force it when the host is silent.
func (c *clients) release() {
	e := c.leader()
	if e == nil {
		return
	}
	j := c.someJob(e.n.m.View())
	if j == nil {
		return
	}
	body := &command.LeaseRelease{Job: j.Number, Detached: e.detachedFrom(j)}
	body.By, body.Admin = c.caller(j)
	if c.w.rng.IntN(3) == 0 {
		if body.Force = true; c.w.rng.IntN(4) > 0 { // else whoever it is has no right to
			body.By, body.Admin = "root", true
		}
	}
	c.ask(body, func(a answer) {
		switch {
		case a.result.Code != command.OK:
			c.w.counts.ReleaseRefused++
		case body.Force && a.result.Kill == command.KillFinalized:
			c.w.counts.Forced++
		default:
			c.w.counts.Released++
		}
	})
}

// extend asks for a longer runtime: within the ceilings, at one, above them,
// or for less than there is.
func (c *clients) extend() {
	e := c.leader()
	if e == nil {
		return
	}
	view, rng := e.n.m.View(), c.w.rng
	j := c.someJob(view)
	if j == nil {
		return
	}
	ids := j.Devices
	if j.Pinned != "" {
		ids = []string{j.Pinned}
	}
	body := &command.LeaseExtend{Job: j.Number, MaxRuntimeS: j.MaxRuntimeS + 5 + rng.Int64N(90)}
	body.By, body.Admin = c.caller(j)
	switch {
	case rng.IntN(8) == 0:
		body.MaxRuntimeS = j.MaxRuntimeS - rng.Int64N(3)
	case rng.IntN(3) == 0 && len(ids) > 0:
		if d := view.Device(ids[0]); d != nil && d.MaxRuntimeS > 0 {
			body.MaxRuntimeS = d.MaxRuntimeS + rng.Int64N(2)
		}
	}
	c.ask(body, func(a answer) {
		switch a.result.Code {
		case command.OK:
			c.w.counts.Extended++
		case command.RuntimeAboveLimit:
			c.w.counts.ExtendedAbove++
		default:
			c.w.counts.ExtendRefused++
		}
	})
}

// schedule asks for a pass over the queue, which finds nothing to do.
func (c *clients) schedule() { c.ask(&command.Schedule{}, func(answer) { c.w.counts.Scheduled++ }) }
