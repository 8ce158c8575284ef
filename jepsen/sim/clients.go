package sim

import (
	"crypto/sha256"
	"fmt"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

const (
	answerTimeout = 3 * time.Second
	retryWithin   = 10 * time.Minute // below the age at which a request may be forgotten
)

// neverTag marks a job that must never come into being.
const neverTag = "never"

// clients are the people and programs outside: they submit, retry and end, and
// remember what they were told.
type clients struct {
	w        *World
	requests int
	submits  []*submit
	asks     int    // that have no answer yet
	only     *epoch // see at
	mute     bool   // the clients of holds speak by a script alone
}

// submit is one request as its client knows it.
type submit struct {
	request command.Request
	specs   []command.JobSpec
	direct  bool // an allocation past the queue
	began   time.Duration
	tries   int
	full    int      // answers that there is no room
	jobs    []uint64 // as acknowledged
	done    bool     // answered for good
}

// configure sets the bounds of this run: short ones, so that a storm passes
// them.
func (c *clients) configure() {
	w := c.w
	values := []command.Setting{
		{Name: "holdoff_ms", Value: 10_000 + w.rng.Int64N(25_000)},
		{Name: "write_off_after_ms", Value: 31_000 + w.rng.Int64N(120_000)},
		{Name: "lease_unstarted_ms", Value: 10_000 + w.rng.Int64N(40_000)},
		{Name: "lease_unnamed_ms", Value: 15_000 + w.rng.Int64N(60_000)},
		{Name: "flap_limit", Value: w.rng.Int64N(5)},
		{Name: "no_serve_grace_ms", Value: 60_000 + w.rng.Int64N(90_000)},
		{Name: "retain_disconnected_jobs", Value: w.rng.Int64N(2)},
		{Name: "aging_ms", Value: []int64{0, 60_000, 1_800_000}[w.rng.IntN(3)]},
	}
	switch w.rng.IntN(6) {
	case 0:
		values = append(values, command.Setting{Name: "max_requests", Value: 15})
	case 1:
		values = append(values, command.Setting{Name: "max_queued", Value: 4})
	case 2:
		values = append(values, command.Setting{Name: "max_finished", Value: 5})
	}
	if w.rng.IntN(2) == 0 { // else the guard holds nobody back in so small a fleet
		values = append(values, command.Setting{Name: "mass_floor", Value: w.rng.Int64N(2)},
			command.Setting{Name: "mass_percent", Value: w.rng.Int64N(60)})
	}
	c.set(values...)
}

func (c *clients) set(values ...command.Setting) {
	c.propose(c.w.encode(command.Request{}, &command.ConfigSet{Settings: values}), func(a answer) {
		if a.known && a.result.Code != command.OK && a.result.Code != command.StaleEpoch {
			c.w.note("settings refused: %s", a.result.Message)
		}
		if !a.known && c.w.now < time.Second {
			c.w.after(50*time.Millisecond, c.configure)
		}
	})
}

// at makes clients turn to one epoch only while do runs.
func (c *clients) at(e *epoch, do func()) {
	c.only = e
	do()
	c.only = nil
}

// leader picks an epoch that some node believes in, nil when there is none.
func (c *clients) leader() *epoch {
	if c.only != nil {
		return c.only
	}
	var open []*epoch
	for _, e := range c.w.epochs {
		if e.open {
			open = append(open, e)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[c.w.rng.IntN(len(open))]
}

// propose sends a command to who seems to lead and answers once, at the latest
// after answerTimeout.
func (c *clients) propose(cmd []byte, done func(answer)) {
	answered := false
	once := func(a answer) {
		if !answered {
			answered = true
			done(a)
		}
	}
	c.w.after(answerTimeout, func() { once(answer{}) })
	e := c.leader()
	if e == nil {
		return
	}
	delay := c.w.between(time.Millisecond, 10*time.Millisecond)
	if c.w.chance(3) {
		delay = c.w.between(time.Second, 2*answerTimeout)
	}
	c.w.after(delay, func() {
		e.propose(cmd, func(a answer) {
			if !c.w.chance(4) { // else the answer gets lost
				once(a)
			}
		})
		if c.w.chance(3) {
			e.propose(cmd, func(answer) {})
		}
	})
}

// submit asks for one job or a few, again and again under one request ID until
// it has an answer.
func (c *clients) submit() {
	n := 1
	if c.w.rng.IntN(8) == 0 {
		n = 2 + c.w.rng.IntN(3)
		c.w.counts.Arrays++
	}
	var specs []command.JobSpec
	for range n {
		specs = append(specs, c.spec())
	}
	c.try(c.request(specs...))
}

// request makes a request of these jobs. The note of each is its tag, by which
// the witness knows it.
func (c *clients) request(specs ...command.JobSpec) *submit {
	c.requests++
	s := &submit{specs: specs, began: c.w.now}
	id := fmt.Sprintf("r-%d", c.requests)
	for i := range specs {
		specs[i].Note = fmt.Sprintf("%s.%d", id, i)
		c.w.witness.specs[specs[i].Note] = &specs[i]
	}
	body := sha256.Sum256([]byte(id))
	s.request = command.Request{
		Scope: fmt.Sprintf("user-%d", c.w.rng.IntN(2)), ID: id,
		Digest: body[:], Strict: c.w.rng.IntN(2) == 0,
	}
	c.submits = append(c.submits, s)
	return s
}

// selectors that ask for what devices declare, for what their host detects, and
// for what changes all the time.
var selectors = []string{
	"gpu=a", "gpu=b", "vram>=40G", "vram>=16G", "gpu=a,vram>=80G", "link=fast", "gpu!=a", "gpu in (a,b)", "!link",
	"driver>=570", "driver>=550", "vram_free>=24G", "gpu=b,vram_free>=40G", "link,vram_free>=8G",
}

func (c *clients) spec() command.JobSpec {
	rng := c.w.rng
	s := command.JobSpec{
		Command: []string{"work"}, Submitter: []string{"ann", "bob"}[rng.IntN(2)],
		Priority: int8(rng.IntN(21) - 10), NoWait: rng.IntN(10) == 0,
	}
	if rng.IntN(2) == 0 {
		h := c.w.hosts[rng.IntN(len(c.w.hosts))]
		s.Pinned = model.DeviceID(h.name, h.devices[rng.IntN(len(h.devices))].Name)
	} else {
		s.Selector = selectors[rng.IntN(len(selectors))]
	}
	if rng.IntN(2) == 0 { // at a ceiling, a second off it, or anywhere
		s.MaxRuntimeS = max(0, ceilings[rng.IntN(len(ceilings))]+rng.Int64N(3)-1)
		if s.MaxRuntimeS < 5 {
			s.MaxRuntimeS = 5 + rng.Int64N(60)
		}
	}
	if rng.IntN(6) == 0 {
		c.w.counts.Holds++
		s.Kind, s.Command = model.KindHold, nil
		s.MaxRuntimeS = 5 + rng.Int64N(40)
		c.withSession(&s)
	}
	return s
}

// allocate asks for one device past the queue.
func (c *clients) allocate() {
	spec := c.spec()
	for spec.Pinned == "" {
		spec = c.spec()
	}
	s := c.request(spec)
	s.direct = true
	c.try(s)
}

// snatch asks for a device in the moment at which its job ends, when others may
// wait for it.
func (c *clients) snatch(e *epoch, device string) {
	spec := c.spec()
	spec.Pinned, spec.Selector = device, ""
	s := c.request(spec)
	s.direct = true
	e.propose(s.encode(c.w, s.request, s.specs), func(answer) { c.try(s) }) // its answer gets lost
}

// encode makes the command of a request with these jobs.
func (s *submit) encode(w *World, r command.Request, specs []command.JobSpec) []byte {
	if s.direct {
		return w.encode(r, &command.LeaseAllocate{Job: specs[0]})
	}
	return w.encode(r, &command.JobEnqueue{Jobs: specs})
}

func (c *clients) try(s *submit) {
	if s.done {
		return
	}
	if s.tries > 0 {
		c.w.counts.Retries++
	}
	s.tries++
	c.propose(s.encode(c.w, s.request, s.specs), func(a answer) {
		code := a.result.Code
		switch {
		case !a.known || code == command.StaleEpoch || code == command.Overloaded || code == command.QueueFull:
			wait := c.w.between(200*time.Millisecond, 2*time.Second)
			if code == command.Overloaded || code == command.QueueFull {
				c.w.counts.Overloaded++
				wait = c.w.between(20*time.Second, 90*time.Second)
				s.full++
			}
			if c.w.now-s.began > retryWithin || s.full > 3 {
				s.done = true
				return
			}
			c.w.after(wait, func() { c.try(s) })
		case code == command.OK || code == command.NotPlaced:
			c.acknowledged(s, a)
		default:
			c.w.note("%s refused: %s", s.request.ID, code)
			c.w.counts.Refused++
			if s.specs[0].Hold != 0 {
				c.w.counts.InsideRefused++
			}
			s.done = true
		}
	})
}

// acknowledged remembers what was promised and, now and then, asks again under
// the same ID.
func (c *clients) acknowledged(s *submit, a answer) {
	var jobs []uint64
	for _, j := range a.result.Jobs {
		jobs = append(jobs, j.Number)
	}
	if a.result.Code == command.NotPlaced {
		c.w.counts.NotPlaced++
	}
	c.w.note("%s acknowledged at index %d: jobs %v %s", s.request.ID, a.index, jobs, a.result.Code)
	c.w.witness.acknowledged(s, jobs)
	c.listenFor(s)
	s.done = true
	c.w.counts.Acked++
	if s.direct {
		c.w.counts.Allocated++
	}
	if c.w.chance(30) {
		c.w.after(c.w.between(0, 60*time.Second), func() { c.again(s) })
	}
}

// again repeats an answered request, sometimes with another body.
func (c *clients) again(s *submit) {
	r, specs := s.request, s.specs
	other := c.w.rng.IntN(3) == 0
	if other {
		digest := sha256.Sum256([]byte("another"))
		r.Digest = digest[:]
		specs = []command.JobSpec{c.spec()}
		if specs[0].Note = neverTag; s.direct {
			specs[0].Pinned, specs[0].Selector = s.specs[0].Pinned, ""
		}
	}
	c.propose(s.encode(c.w, r, specs), func(a answer) {
		switch {
		case !a.known || a.result.Code == command.StaleEpoch || c.w.now-s.began > retryWithin:
		case other && r.Strict:
			if a.result.Code != command.KeyReused {
				c.w.fail("request %s with another body gave %q, not %q", r.ID, a.result.Code, command.KeyReused)
			}
			c.w.counts.KeyReused++
		default:
			c.w.counts.RepeatsAnswered++
			c.w.witness.repeated(s, a)
		}
	})
}
