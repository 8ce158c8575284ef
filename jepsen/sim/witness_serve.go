package sim

import (
	"math"
	"slices"

	"rcd/model"
	"rcd/model/selector"
)

// serving is what registered devices have allowed the jobs of one target over
// the time, as the witness has seen it: since when is a runtime not served?
type serving struct {
	target  string // a device, or a selector
	pinned  bool
	allowed int64 // now: the longest runtime, -1 none at all
	// falls has the values that were allowed before, each with the uptime at
	// which that ended, falling.
	falls []fall
}

type fall struct{ allowed, untilMS int64 }

// since returns the uptime from which on a runtime has not been served; false
// when it is.
func (v *serving) since(runtimeS int64) (int64, bool) {
	if v.allowed >= runtimeS {
		return 0, false
	}
	for i := len(v.falls) - 1; i >= 0; i-- {
		if v.falls[i].allowed >= runtimeS {
			return v.falls[i].untilMS, true
		}
	}
	return 0, true
}

func (v *serving) set(allowed, nowMS int64) {
	if allowed < v.allowed {
		for len(v.falls) > 0 && v.falls[len(v.falls)-1].allowed <= v.allowed {
			v.falls = v.falls[:len(v.falls)-1]
		}
		v.falls = append(v.falls, fall{v.allowed, nowMS})
	}
	v.allowed = allowed
}

// servingOf returns the target of a job, from the first job on.
func (x *witness) servingOf(j *model.Job) *serving {
	target, pinned := j.Pinned, true
	if target == "" {
		target, pinned = j.Selector, false
	}
	for _, v := range x.served {
		if v.target == target && v.pinned == pinned {
			return v
		}
	}
	v := &serving{target: target, pinned: pinned}
	v.allowed = x.allowed(v, x.devices)
	x.served = append(x.served, v)
	return v
}

// allowed computes what devices allow a target, whatever their state and
// volatile labels.
func (x *witness) allowed(v *serving, devices []*model.Device) int64 {
	most := int64(-1)
	for _, d := range devices {
		matches := v.pinned && d.ID == v.target || !v.pinned && x.selector(v.target).MatchStable(d.Label)
		switch {
		case d.Absent || !matches:
		case d.MaxRuntimeS == 0:
			return math.MaxInt64
		default:
			most = max(most, d.MaxRuntimeS)
		}
	}
	return most
}

func runtimeAsked(j *model.Job) int64 {
	if !j.CeilingAsked {
		return 0
	}
	return j.MaxRuntimeS
}

// facts takes up what an entry changed of what devices allow.
func (s *step) facts() {
	devices := s.now.Devices()
	if slices.EqualFunc(s.x.devices, devices, sameFacts) {
		s.x.devices = devices
		return
	}
	s.x.devices = devices
	for _, v := range s.x.served {
		v.set(s.x.allowed(v, devices), s.now.UptimeMS())
	}
}

func sameFacts(a, b *model.Device) bool {
	return a == b || a.ID == b.ID && a.Absent == b.Absent && a.MaxRuntimeS == b.MaxRuntimeS &&
		sameStable(a.Declared, b.Declared) && sameStable(a.Detected, b.Detected)
}

func sameStable(a, b []model.Label) bool {
	stable := func(l model.Label) bool { return !selector.Volatile(l.Key) }
	next := func(list []model.Label, i int) int {
		for i < len(list) && !stable(list[i]) {
			i++
		}
		return i
	}
	i, j := next(a, 0), next(b, 0)
	for i < len(a) && j < len(b) {
		if a[i].Key != b[j].Key || a[i].Value != b[j].Value {
			return false
		}
		i, j = next(a, i+1), next(b, j+1)
	}
	return i == len(a) && j == len(b)
}

// unservedEnd: a queued job that ends by itself was retired with its device,
// was not to wait, or nobody could serve it for the whole grace. It is called
// before the entry's own changes of devices are taken up.
func (s *step) unservedEnd(was, is *model.Job) {
	switch {
	case was == nil || was.State != model.JobQueued || is.State != model.JobKilled || is.Origin != model.OriginDevice:
		return
	case was.Pinned != "" && s.old.Device(was.Pinned) != nil && s.retired(was.Pinned, s.old.Device(was.Pinned).Host):
		s.w.counts.RetiredJobs++
		return
	}
	s.w.counts.UnservedJobs++
	grace := min(s.old.Settings().NoServeGraceMS, s.now.Settings().NoServeGraceMS)
	since, unserved := s.x.servingOf(was).since(runtimeAsked(was))
	if !unserved || s.now.UptimeMS()-since < grace {
		s.w.fail("job %d ends at index %d (%s): unserved %t since %d ms, it is %d ms and the grace %d", is.Number, s.index, is.EndReason, unserved, since, s.now.UptimeMS(), grace)
	}
}

// overdue tests that a leader that can act ends in time what nobody serves.
func (x *witness) overdue(e *epoch) {
	v := e.n.m.View()
	if x.w.log.leader != e.n || x.w.log.term != e.term || v.Index() != x.last.Index() || !x.w.log.majority() ||
		x.w.now < x.w.log.stalled || len(x.w.log.tail) > 0 || e.admitting > 0 {
		return
	}
	uptime := v.EpochUptimeMS() + (x.w.now - e.began).Milliseconds()
	late := false
	for j := range v.Queued() {
		since, unserved := x.servingOf(j).since(runtimeAsked(j))
		since = max(since, x.queuedAt[j.Number])
		late = late || unserved && uptime-since > v.Settings().NoServeGraceMS+overdueMS
	}
	if !late {
		e.late = 0
		return
	}
	if e.late++; e.late > overdueTicks {
		x.w.fail("a job that nobody serves any more is past the grace, and %s has not ended it", e.n.id)
	}
}

const (
	overdueMS    = 3000
	overdueTicks = 10
)
