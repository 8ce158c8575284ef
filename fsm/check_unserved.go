package fsm

import (
	"slices"

	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// unserved compares every row with what the devices allow the queued jobs of
// its target now, found by looking at all devices.
func (c *checker) unserved() {
	c.v.unserved.scan(func(target string, u *model.Unserved) bool {
		if target != u.Target {
			c.found("what nobody serves of %q is stored under %q", u.Target, target)
		}
		c.unservedRow(u)
		return true
	})
	allows := map[string]int64{}               // only looked up
	reached := map[string]map[int]bool{}       // steps with a job, by target; only looked up
	devices, rows := c.v.Devices(), []string{} // targets with a job that nobody serves
	for j := range c.v.Queued() {
		target := targetOf(j)
		if _, known := allows[target]; !known {
			allows[target] = allowedNow(j, devices)
			reached[target] = map[int]bool{}
		}
		_, noted := c.v.UnservedSince(j)
		if served := scheduler.Runtime(j) <= allows[target]; served == noted {
			c.found("queued job %d is served: %t, its target's row says %t", j.Number, served, !noted)
		}
		if u := c.v.unserved.get(target); u != nil {
			reached[target][slices.IndexFunc(u.Steps, func(s model.UnservedStep) bool { return scheduler.Runtime(j) > s.CeilingS })] = true
		}
		rows = append(rows, target)
	}
	slices.Sort(rows)
	c.v.unserved.scan(func(target string, u *model.Unserved) bool {
		if _, waits := slices.BinarySearch(rows, target); !waits {
			c.found("nobody waits for %q, which nobody serves", target)
			return true
		}
		for i, s := range u.Steps {
			last := i == len(u.Steps)-1
			if last && s.CeilingS != allows[target] {
				c.found("devices allow %q %d s, its row says %d", target, allows[target], s.CeilingS)
			}
			if (!last || i == 0) && !reached[target][i] {
				c.found("no job of %q needs its step at %d s", target, s.CeilingS)
			}
		}
		return true
	})
}

// unservedRow looks at one row for itself.
func (c *checker) unservedRow(u *model.Unserved) {
	if len(u.Steps) == 0 {
		c.found("what nobody serves of %q has no step", u.Target)
	}
	for i, s := range u.Steps {
		if s.CeilingS < -1 || s.CeilingS == 0 || s.SinceUptimeMS > c.v.uptimeMS() {
			c.found("a step of %q is at %d s, since %d", u.Target, s.CeilingS, s.SinceUptimeMS)
		}
		if i > 0 && (s.CeilingS >= u.Steps[i-1].CeilingS || s.SinceUptimeMS < u.Steps[i-1].SinceUptimeMS) {
			c.found("the steps of %q are out of order", u.Target)
		}
	}
}

// allowedNow is the longest runtime that a declared device allows the target
// of a job, -1 when there is no such device.
func allowedNow(j *model.Job, devices []*model.Device) int64 {
	parsed, _ := selector.Parse(j.Selector)
	most := scheduler.NoDevice
	for _, d := range devices {
		if d.Absent || (j.Pinned != "" && j.Pinned != d.ID) || (j.Pinned == "" && !parsed.MatchStable(d.Label)) {
			continue
		}
		if d.MaxRuntimeS == 0 {
			return scheduler.Unlimited
		}
		most = max(most, d.MaxRuntimeS)
	}
	return most
}
