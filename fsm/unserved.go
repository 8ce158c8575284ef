package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"rcd/model"
	"rcd/scheduler"
)

// A queued job that no registered device can serve any more ends after a
// grace. Registered counts, not ready: a host that reboots, is silent or stands
// in quarantine cancels nothing. What a device allows counts, and its labels
// but the volatile ones. A device that its host no longer declares serves
// nobody.
//
// The table unserved has one row for every target with a job that nobody can
// serve. A step says since when the jobs that need more than its ceiling have
// been in that case. It stands for the jobs that the steps before it leave, of
// which there is at least one, except that the last step always has the
// ceiling of now. So a row has at most one step more than its jobs have
// runtimes, and the first step is about the job that has waited for longest.
//
// A job that arrives is served, or it is refused; so the step that counts for
// it began later than the job. One that comes back from a dead host joins those
// that wait for the same.

// noteUnserved brings the rows of the targets up to date that the entry has
// touched so far.
func (t *txn) noteUnserved() {
	for _, target := range t.sched.TakeTouched() {
		t.noteTarget(target)
	}
}

func (t *txn) noteTarget(target string) {
	old := t.unserved.get(target)
	steps := t.unservedSteps(target, old)
	switch {
	case len(steps) > 0 && (old == nil || !slices.Equal(old.Steps, steps)):
		t.unserved.put(&t.digest, target, model.Unserved{Target: target, Steps: steps})
	case len(steps) == 0 && old != nil:
		t.unserved.remove(&t.digest, target)
	}
}

// unservedSteps returns what the row of a target must say now; none when there
// must be no row.
func (t *txn) unservedSteps(target string, old *model.Unserved) []model.UnservedStep {
	allows := t.sched.Allows(target)
	if !t.sched.Waits(target, allows, scheduler.Unlimited) {
		return nil
	}
	last := model.UnservedStep{CeilingS: allows, SinceUptimeMS: t.uptimeMS()}
	var steps []model.UnservedStep
	upTo := scheduler.Unlimited
	if old != nil {
		for _, s := range old.Steps {
			if s.CeilingS <= allows {
				last.SinceUptimeMS = s.SinceUptimeMS
				break
			}
			if t.sched.Waits(target, s.CeilingS, upTo) {
				steps = append(steps, s)
				upTo = s.CeilingS
			}
		}
	}
	return append(steps, last)
}

// jobLeft has the row of a target looked at again at the end of the entry,
// after a job has left it, maybe to come back at once in another place. It is
// on the way of every placement, and there is hardly ever a row.
func (t *txn) jobLeft(j *model.Job) {
	if t.unserved.len() == 0 {
		return
	}
	if target := targetOf(j); t.unserved.get(target) != nil {
		t.sched.Touch(target)
	}
}

// keepEdges tells a scheduler that was built again what the rows go by.
func keepEdges(v *View, s *scheduler.Scheduler) {
	v.unserved.scan(func(_ string, u *model.Unserved) bool {
		for _, step := range u.Steps {
			s.KeepEdge(step.CeilingS)
		}
		return true
	})
}

// maxUnservedEnds bounds the jobs that one sweep ends because nobody can serve
// them, so that a long queue never holds up the entry behind it.
const maxUnservedEnds = 1000

// unservedGroup are the jobs that one step of a row is about.
type unservedGroup struct {
	target  string
	step    model.UnservedStep
	upToS   int64 // the longest runtime among them
	allowsS int64 // what devices allow now
}

// endUnserved ends the jobs that nobody has been able to serve for longer than
// the grace, those first that have been in that case for longest. It draws
// nothing from silence, so no holdoff is in its way.
func (t *txn) endUnserved() {
	t.noteUnserved() // an earlier command of this entry may have changed it all
	if !t.NoServeDue() {
		return
	}
	left := maxUnservedEnds
	for _, g := range t.dueGroups() {
		for _, number := range t.sched.Waiting(g.target, g.step.CeilingS, g.upToS, left) {
			j := t.mustJob(number)
			t.endJob(j, ending{state: model.JobKilled, reason: unservedReason(j, g.allowsS), origin: model.OriginDevice})
			left--
		}
		if left == 0 {
			return
		}
	}
}

// dueGroups returns the groups past the grace, the oldest first.
func (t *txn) dueGroups() []unservedGroup {
	var groups []unservedGroup
	t.unserved.scan(func(target string, u *model.Unserved) bool {
		upTo := scheduler.Unlimited
		for _, s := range u.Steps {
			if t.uptimeMS()-s.SinceUptimeMS < t.settings.NoServeGraceMS {
				break
			}
			groups = append(groups, unservedGroup{target, s, upTo, u.Steps[len(u.Steps)-1].CeilingS})
			upTo = s.CeilingS
		}
		return true
	})
	slices.SortStableFunc(groups, func(a, b unservedGroup) int {
		return cmp.Compare(a.step.SinceUptimeMS, b.step.SinceUptimeMS)
	})
	return groups
}

// unservedReason says why a job ends when devices allow its target this much.
func unservedReason(j *model.Job, allowsS int64) string {
	none := allowsS == scheduler.NoDevice
	switch {
	case j.Pinned != "" && none:
		return "its host no longer declares " + j.Pinned
	case j.Pinned != "":
		return fmt.Sprintf("%s no longer allows %d s", j.Pinned, j.MaxRuntimeS)
	case none:
		return fmt.Sprintf("no registered device matches %q any more", short(j.Selector))
	}
	return fmt.Sprintf("no registered device that matches %q allows %d s any more", short(j.Selector), j.MaxRuntimeS)
}

// NoServeDue reports whether a sweep at the uptime of the last entry would end
// a job that no registered device can serve any more.
func (v *View) NoServeDue() bool {
	at, ok := v.NoServeAtMS()
	return ok && v.uptimeMS() >= at
}

// NoServeAtMS returns the uptime in milliseconds from which a sweep ends a job
// that no registered device can serve any more; false when there is no such
// job. Uptime stands still in an idle log, so that a leader must add the time
// since the last entry by its own clock. Its cost does not see the queue.
func (v *View) NoServeAtMS() (uptimeMS int64, ok bool) {
	v.unserved.scan(func(_ string, u *model.Unserved) bool {
		if since := u.Steps[0].SinceUptimeMS; !ok || since < uptimeMS {
			uptimeMS, ok = since, true
		}
		return true
	})
	return uptimeMS + v.settings.NoServeGraceMS, ok
}

// UnservedSince returns the uptime in milliseconds since when no registered
// device can serve a job; false when one can, or when it is not queued.
func (v *View) UnservedSince(j *model.Job) (uptimeMS int64, ok bool) {
	if j.State != model.JobQueued {
		return 0, false
	}
	u := v.unserved.get(targetOf(j))
	if u == nil {
		return 0, false
	}
	for _, s := range u.Steps {
		if scheduler.Runtime(j) > s.CeilingS {
			return s.SinceUptimeMS, true
		}
	}
	return 0, false
}

// UnservedReason says in words, as the end of the job will, why no registered
// device can serve it; "" when one can.
func (v *View) UnservedReason(j *model.Job) string {
	if _, unserved := v.UnservedSince(j); !unserved {
		return ""
	}
	steps := v.unserved.get(targetOf(j)).Steps
	return unservedReason(j, steps[len(steps)-1].CeilingS)
}
