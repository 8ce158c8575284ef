package sim

import (
	"fmt"
	"slices"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/model/selector"
	"rcd/wire"
)

// witness knows the truth and holds the state machine against it.
type witness struct {
	w       *World
	digests []fsm.Digest // by place in the log
	last    *fsm.View    // after the newest index that any node has applied
	terms   map[uint64]int64

	tags    map[string]uint64 // law 3: one job per tag of a request
	acked   []*submit
	ends    map[uint64]*model.Job // jobs seen ended
	pruned  map[uint64]bool
	beats   map[uint64]beat         // the last word of a hold's client that a leader took
	runs    map[uint64]jobKey       // jobs that got a process
	truth   map[jobKey]wire.Outcome // how the host says they ended
	noStart map[jobKey]bool         // that could not be started

	movedFor uint64                      // the term whose withholding moved leadership last
	specs    map[string]*command.JobSpec // by tag
	effects  map[string]int64            // uptime at which a request took effect
	granted  map[uint64]time.Duration    // when a job got its latest extension
	queuedAt map[uint64]int64            // uptime at which a job came to the queue last
	aging    int64                       // milliseconds, as entries have set it
	gone     map[string]bool             // devices that were retired once
	returns  map[string][]int64          // uptimes at which a device returned by itself
	wroteOff map[string]int64            // uptime at which a host was written off

	selectors map[string]selector.Selector
	served    []*serving
	devices   []*model.Device // as of the last entry
}

func newWitness(w *World) *witness {
	return &witness{
		w: w, last: fsm.New(fsm.Options{}).View(), terms: map[uint64]int64{}, tags: map[string]uint64{},
		ends: map[uint64]*model.Job{}, pruned: map[uint64]bool{}, beats: map[uint64]beat{}, runs: map[uint64]jobKey{},
		truth: map[jobKey]wire.Outcome{}, noStart: map[jobKey]bool{}, specs: map[string]*command.JobSpec{},
		effects: map[string]int64{}, granted: map[uint64]time.Duration{}, queuedAt: map[uint64]int64{},
		aging: model.DefaultSettings().AgingMS, gone: map[string]bool{}, returns: map[string][]int64{}, wroteOff: map[string]int64{}, selectors: map[string]selector.Selector{},
	}
}

// proposed notes when an epoch truly began: the stamp of its first entry.
func (x *witness) proposed(e *epoch, stamp int64) {
	if _, known := x.terms[e.term]; !known {
		x.terms[e.term] = stamp
	}
}

// applied looks at one entry on one node: the whole state on the first node
// that applies it, what it wrote on the others. before is the state of that node
// before the entry.
func (x *witness) applied(n *node, place int, e logged, before *fsm.View, results []command.Result, events []command.Event) {
	digest, index := n.m.Digest(), e.index
	if place < len(x.digests) {
		if x.digests[place] != digest && !n.damaged {
			x.w.fail("law 5: %s has digest %s at index %d, another node had %s", n.id, digest, index, x.digests[place])
		}
		if err := n.m.CheckEntry(); err != nil {
			x.w.fail("%s at index %d: %v", n.id, index, err)
		}
		return
	}
	x.digests = append(x.digests, digest)
	if place%checkEvery == 0 {
		if err := n.m.Check(); err != nil {
			x.w.fail("%s at index %d: %v", n.id, index, err)
		}
	}
	if err := n.m.CheckEntry(); err != nil {
		x.w.fail("%s at index %d, entry only: %v", n.id, index, err)
	}
	v := n.m.View()
	s := &step{x: x, w: x.w, index: index, term: e.term, old: before, now: v, results: results, events: events}
	s.decode(e.data)
	s.note()
	s.epochRule()
	s.clocks()
	s.jobs()
	s.facts()
	s.devices()
	s.refusals()
	s.callers()
	s.oneEffect()
	s.passes()
	s.extensions()
	s.order()
	s.guard()
	s.cluster()
	x.last = v
	x.trees()
}

// checkEvery is how many entries lie between two looks at the whole state: they
// cost as much as all the rest together. Every entry is looked at by itself.
const checkEvery = 16

// restored looks at a node that came back from a snapshot.
func (x *witness) restored(n *node) {
	index := n.m.Index()
	want := x.digests[x.w.log.place(index)-1]
	if got := n.m.Digest(); got != want && !n.damaged {
		x.w.fail("law 5: %s restored digest %s at index %d, others had %s", n.id, got, index, want)
	}
	if err := n.m.Check(); err != nil {
		x.w.fail("%s restored at index %d: %v", n.id, index, err)
	}
}

// trees tests law 1 on the hosts: a live process tree belongs to the live lease
// of its device, or the device is in quarantine.
func (x *witness) trees() {
	for _, h := range x.w.hosts {
		for _, t := range h.trees {
			d := x.last.Device(model.DeviceID(h.name, t.device))
			if d == nil && x.gone[model.DeviceID(h.name, t.device)] {
				continue // an operator has retired it; nobody can get it
			}
			given := h.record(t.key) // one that could not be killed is given up
			if j := x.last.Job(t.key.job); d != nil && j != nil && d.Lease == t.key.lease && !j.State.Terminal() && j.MaxRuntimeS > 0 && (given == nil || given.phase != wire.PhaseEnded) {
				if ran, limit := x.w.now-t.started, time.Duration(j.MaxRuntimeS)*time.Second; ran > limit+time.Second {
					x.w.fail("law 1: %d/%d has run for %v on %s, past the limit of %v", t.key.job, t.key.lease, ran, d.ID, limit)
				}
			}
			if j := x.last.Job(t.key.job); d != nil && d.Lease == t.key.lease && (j == nil || j.State.Terminal()) && d.State != model.DeviceUnhealthy {
				x.w.fail("law 1: %d/%d has ended and lives on %s, which is %s", t.key.job, t.key.lease, d.ID, deviceText(d))
			}
			if d == nil || d.Lease != t.key.lease && d.State != model.DeviceUnhealthy {
				x.w.fail("law 1: %d/%d lives on %s:%s, and the table has %s", t.key.job, t.key.lease, h.name, t.device, deviceText(d))
			}
		}
	}
}

func deviceText(d *model.Device) string {
	if d == nil {
		return "no such device"
	}
	return fmt.Sprintf("%s %s lease %d", d.State, d.Reason, d.Lease)
}

// spawned tests a process start: on its device with nobody but jobs of its lease,
// and once per job.
func (x *witness) spawned(h *host, t *tree) {
	x.w.counts.Processes++
	for _, other := range h.trees {
		if other != t && other.device == t.device && other.key.lease != t.key.lease {
			x.w.fail("law 1: %d/%d starts on %s:%s beside %d/%d", t.key.job, t.key.lease, h.name, t.device, other.key.job, other.key.lease)
		}
	}
	if before, ran := x.runs[t.key.job]; ran {
		x.w.fail("law 3: job %d gets a second process under lease %d, the first was under %d", t.key.job, t.key.lease, before.lease)
	}
	x.runs[t.key.job] = t.key
	x.trees()
}

// ended notes how a host says that a job ended.
func (x *witness) ended(_ *host, k jobKey, o wire.Outcome) {
	if _, known := x.truth[k]; !known {
		x.truth[k] = o
	}
}

// failed notes a process that could not be made.
func (x *witness) failed(k jobKey) { x.noStart[k] = true }

// acknowledged notes what a client was promised.
func (x *witness) acknowledged(s *submit, jobs []uint64) {
	made := make([]uint64, len(s.specs))
	for i, spec := range s.specs {
		made[i] = x.tags[spec.Note]
		if made[i] == 0 {
			x.w.fail("law 2: request %s was acknowledged and made no job of %s", s.request.ID, spec.Note)
		}
		if !slices.Contains(jobs, made[i]) && !x.pruned[made[i]] {
			x.w.fail("law 2: request %s made jobs %v and was answered with %v", s.request.ID, made, jobs)
		}
	}
	for _, n := range jobs {
		if !slices.Contains(made, n) {
			x.w.fail("law 3: request %s was answered with job %d, which is not its own", s.request.ID, n)
		}
	}
	s.jobs = made
	x.acked = append(x.acked, s)
}

// repeated tests the answer to a request that was answered before.
func (x *witness) repeated(s *submit, a answer) {
	if a.result.Code == command.NotFound {
		for _, n := range s.jobs {
			if !x.pruned[n] {
				x.w.fail("law 2: request %s is answered with not found, and job %d was never pruned", s.request.ID, n)
			}
		}
		return
	}
	for _, j := range a.result.Jobs {
		if !slices.Contains(s.jobs, j.Number) {
			x.w.fail("law 3: request %s made jobs %v and is answered with job %d (%s)", s.request.ID, s.jobs, j.Number, a.result.Code)
		}
	}
	if a.result.Code != command.OK && a.result.Code != command.NotPlaced {
		x.w.fail("law 2: request %s was accepted and is refused on repeat: %s", s.request.ID, a.result.Code)
	}
}

// promises tests that what was acknowledged is still there.
func (x *witness) promises() {
	for _, s := range x.acked {
		for i, n := range s.jobs {
			j := x.last.Job(n)
			if j == nil && x.pruned[n] {
				continue
			}
			if j == nil || j.Note != s.specs[i].Note {
				x.w.fail("law 2: job %d was acknowledged to request %s and is gone", n, s.request.ID)
			}
		}
	}
}

// stuckTicks is how many ticks of a leader that can act a job may be held by a
// host that is out of reach and was never told: the time for which a host that
// was admitted is left out of sweeps (15 s), and a few.
const stuckTicks = 22

// swallowed tests that a dead host does not swallow the queue: a placement of
// this epoch that no session carried goes back.
func (x *witness) swallowed(e *epoch) {
	v := e.n.m.View()
	if x.w.log.leader != e.n || x.w.log.term != e.term || v.Index() != x.last.Index() || !x.w.log.majority() {
		return
	}
	if e.stuck == nil {
		e.stuck = map[uint64]int{}
	}
	for _, j := range v.Active() {
		d := v.Device(j.Devices[0])
		held := j.State == model.JobAssigned && j.PlacedTerm == e.term && !e.ordered[jobKey{j.Number, j.Lease}] &&
			d.State == model.DeviceUnknown && e.sessionOf(j.Host) == nil && e.admitting == 0 && len(x.w.log.tail) == 0
		if !held {
			delete(e.stuck, j.Lease)
			continue
		}
		if e.stuck[j.Lease]++; e.stuck[j.Lease] > stuckTicks {
			x.w.fail("job %d is held by %s, which is out of reach and was never told of it", j.Number, j.Host)
		}
	}
}

// neglectTicks is how long an attached host may run a job that the table does
// not want, or does not know to be running: several heartbeats and orders, of
// which a bad network loses some.
const neglectTicks = 45

// neglected tests that a leader with a session acts on what the host names.
func (x *witness) neglected(e *epoch) {
	v := e.n.m.View()
	if x.w.log.leader != e.n || x.w.log.term != e.term || v.Index() != x.last.Index() || x.w.now < x.w.log.stalled {
		return
	}
	for _, s := range e.sessions {
		if s.h.session != s || s.h.frozen > x.w.now-neglectTicks*time.Second {
			continue
		}
		for _, r := range s.h.records {
			j := v.Job(r.key.job)
			wanted := j != nil && j.Lease == r.key.lease && !j.State.Terminal() && !j.KillRequested
			if r.phase != wire.PhaseRunning || r.killing || wanted && j.State == model.JobRunning {
				delete(s.neglect, r.key)
				continue
			}
			if s.neglect[r.key]++; s.neglect[r.key] > neglectTicks {
				x.w.fail("%d/%d runs on %s for %d s of this session; wanted %t, and nobody acts", r.key.job, r.key.lease, s.hello.Host, neglectTicks, wanted)
			}
		}
	}
}

// evidence tests what a leader says about hosts against the truth: no host is
// more silent than the last word that any controller had from it, no lease less
// named than in the last heartbeat that this leader took.
func (x *witness) evidence(e *epoch, sweep *command.Sweep) {
	for _, s := range sweep.Silent {
		for _, n := range x.w.nodes {
			heard, ok := n.heard[s.Host]
			if truth := (x.w.now - heard.at).Milliseconds(); ok && n.up && heard.instance == s.Instance && s.SilenceMS > truth {
				x.w.fail("law 4: %s says that %s was silent for %d ms, %s heard it %d ms ago", e.n.id, s.Host, s.SilenceMS, n.id, truth)
			}
		}
	}
	for _, u := range sweep.Sessions {
		b, ok := x.beats[u.Job]
		if truth := (x.w.now - b.at).Milliseconds(); ok && b.term == e.term && u.SilenceMS > truth {
			x.w.fail("law 4: %s says that the client of hold %d was silent for %d ms, it was heard %d ms ago", e.n.id, u.Job, u.SilenceMS, truth)
		}
	}
	for _, u := range sweep.Unnamed {
		at, ok := e.named[u.Lease]
		truth := (x.w.now - at).Milliseconds()
		if l := e.n.m.View().Lease(u.Lease); l != nil && l.Kind == model.KindHold {
			// A leader looks every second at what the last heartbeat named, and an
			// outcome that was acked since is not among it any more.
			truth += (2*time.Second + tickEvery).Milliseconds()
		}
		if ok && u.UnnamedMS > truth {
			x.w.fail("law 4: %s says that lease %d was not named for %d ms, it was %d ms ago", e.n.id, u.Lease, u.UnnamedMS, truth)
		}
	}
}
