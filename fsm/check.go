package fsm

import (
	"errors"
	"fmt"
	"slices"

	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// ErrInvariant means that the state breaks one of its laws.
var ErrInvariant = errors.New("broken invariant")

// Check looks at the whole state: the laws that hold at every index (one live
// lease per device, no ready device beside a queued job it could run, one row
// per request), rows that agree with each other, indexes and the scheduler
// that agree with the rows, counters above all rows, and the digest computed
// again. It returns every finding, each wrapping ErrInvariant. It shares no
// code with what it checks where that could hide a mistake, and its cost grows
// with the state.
func (m *Machine) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &checker{v: m.work}
	c.jobs()
	c.leases()
	c.devices()
	c.requests()
	c.sheets()
	c.indexes()
	c.unserved()
	c.placements(m.work.Devices(), nil)
	c.digest()
	c.published(m.view.Load())
	if m.sched.Queued() != m.work.queue.len() {
		c.found("the scheduler holds %d jobs, the queue %d", m.sched.Queued(), m.work.queue.len())
	}
	if m.sched.Pending() || m.sched.Touched() {
		c.found("the scheduler has work left")
	}
	return errors.Join(c.findings...)
}

// CheckEntry looks at what the last entry wrote, and at placement for the
// devices and jobs it touched: whether a job could run on a device depends on
// their two rows alone, so a pair that it left untouched is as it was found
// after the entry before.
func (m *Machine) CheckEntry() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &checker{v: m.work}
	c.written()
	var devices []*model.Device
	for _, id := range m.work.devices.dirty {
		if d := m.work.devices.get(id); d != nil {
			devices = append(devices, d)
		}
	}
	var jobs []*model.Job
	for _, number := range m.work.jobs.dirty {
		if j := m.work.jobs.get(number); j != nil && j.State == model.JobQueued {
			jobs = append(jobs, j)
		}
	}
	c.placements(devices, nil)
	if len(jobs) > 0 {
		c.placements(m.work.Devices(), jobs)
	}
	return errors.Join(c.findings...)
}

// assertEntry looks at the rows that the entry wrote before it counts; a
// finding undoes the entry.
func (t *txn) assertEntry() {
	c := &checker{v: t.View}
	c.written()
	if len(c.findings) > 0 {
		broken(c.findings[0].Error())
	}
	assert(!t.sched.Pending() && !t.sched.Touched(), "the scheduler has work left")
}

type checker struct {
	v        *View
	findings []error
}

func (c *checker) found(format string, args ...any) {
	const most = 20 // enough to see a pattern
	if len(c.findings) < most {
		c.findings = append(c.findings, fmt.Errorf("%w: "+format, append([]any{ErrInvariant}, args...)...))
	}
}

func (c *checker) written() {
	for _, number := range c.v.jobs.dirty {
		if j := c.v.jobs.get(number); j != nil {
			c.job(j)
		}
	}
	for _, number := range c.v.leases.dirty {
		if l := c.v.leases.get(number); l != nil {
			c.lease(l)
		}
	}
	for _, id := range c.v.devices.dirty {
		if d := c.v.devices.get(id); d != nil {
			c.device(d)
		}
	}
	for _, target := range c.v.unserved.dirty {
		if u := c.v.unserved.get(target); u != nil {
			c.unservedRow(u)
		}
	}
	for _, host := range c.v.agents.dirty {
		for _, d := range c.v.devicesOn(host) {
			c.device(d)
		}
	}
}

func (c *checker) jobs() {
	c.v.jobs.scan(func(number uint64, j *model.Job) bool {
		if number != j.Number {
			c.found("job %d is stored under %d", j.Number, number)
		}
		c.job(j)
		return true
	})
}

func (c *checker) job(j *model.Job) {
	if j.Number == 0 || j.Number > c.v.meta.LastJob || j.Lease > c.v.meta.LastLease {
		c.found("job %d (lease %d) is above its counter", j.Number, j.Lease)
	}
	if (j.Pinned == "") == (j.Selector == "") {
		c.found("job %d has no target or two", j.Number)
	}
	l := c.v.leases.get(j.Lease)
	live := l != nil && slices.Contains(l.Jobs, j.Number)
	switch {
	case j.State == model.JobQueued && (j.Lease != 0 || len(j.Devices) > 0 || j.Host != "" || j.FinishedAtMS != 0 || j.NoWait):
		c.found("queued job %d has a lease, a device, an end or no wish to wait", j.Number)
	case j.State.Active() && (!live || !slices.Equal(l.Devices, j.Devices) || l.Host != j.Host):
		c.found("active job %d does not hold lease %d", j.Number, j.Lease)
	case j.State.Active() && (j.FinishedAtMS != 0 || j.ExitCode != nil || j.LateExitCode != nil):
		c.found("active job %d has an end", j.Number)
	case j.State == model.JobRunning && !l.Begun:
		c.found("job %d runs under lease %d, which has not begun", j.Number, j.Lease)
	case j.State.Terminal() && live:
		c.found("ended job %d holds lease %d", j.Number, j.Lease)
	case j.State.Terminal() && j.EndUptimeMS > c.v.uptimeMS():
		c.found("job %d ends in the future", j.Number)
	case j.ExitCode != nil && j.LateExitCode != nil:
		c.found("job %d has an exit code and a late one", j.Number)
	case j.State == model.JobQueued && j.QueueAtMS != scheduler.KeyAt(j.QueuedUptimeMS, j.Priority, c.v.settings.AgingMS):
		c.found("job %d has a queue key of another policy", j.Number)
	}
	if c.inside(j); live && j.Kind == model.KindHold {
		c.sharing(l)
	}
}

func (c *checker) leases() {
	c.v.leases.scan(func(number uint64, l *model.Lease) bool {
		if number != l.Number {
			c.found("lease %d is stored under %d", l.Number, number)
		}
		c.lease(l)
		return true
	})
}

func (c *checker) lease(l *model.Lease) {
	if l.Number == 0 || l.Number > c.v.meta.LastLease {
		c.found("lease %d is above its counter", l.Number)
	}
	if len(l.Jobs) == 0 || len(l.Devices) == 0 || !slices.IsSorted(l.Jobs) || !slices.IsSorted(l.Devices) {
		c.found("lease %d has no job, no device or unsorted ones", l.Number)
	}
	for _, number := range l.Jobs {
		if j := c.v.jobs.get(number); j == nil || !j.State.Active() || j.Lease != l.Number {
			c.found("lease %d names job %d, which does not hold it", l.Number, number)
		}
	}
	for _, id := range l.Devices {
		if d := c.v.devices.get(id); d == nil || d.Lease != l.Number || d.Host != l.Host {
			c.found("lease %d names device %s, which is not under it", l.Number, id)
		}
	}
	c.sharing(l)
}

func (c *checker) devices() {
	c.v.devices.scan(func(id string, d *model.Device) bool {
		if id != d.ID || d.ID != model.DeviceID(d.Host, d.Name) {
			c.found("device %s is stored under %s", d.ID, id)
		}
		c.device(d)
		return true
	})
	c.v.agents.scan(func(host string, a *model.Agent) bool {
		if host != a.Host {
			c.found("agent %s is stored under %s", a.Host, host)
		}
		for _, d := range c.v.devicesOn(host) {
			c.device(d)
		}
		return true
	})
}

func (c *checker) device(d *model.Device) {
	l := c.v.leases.get(d.Lease)
	a := c.v.agents.get(d.Host)
	switch {
	case d.Lease != 0 && (l == nil || !slices.Contains(l.Devices, d.ID)):
		c.found("device %s is under lease %d, which does not name it", d.ID, d.Lease)
	case d.Lease > d.HighestLease || d.HighestLease > c.v.meta.LastLease:
		c.found("device %s has a lease above its highest", d.ID)
	case a == nil:
		c.found("device %s has no agent", d.ID)
	case d.State == model.DeviceReady && (d.Lease != 0 || a.Silent || d.Absent):
		c.found("device %s is ready with a lease, a silent agent or undeclared", d.ID)
	case d.State == model.DeviceBusy && (d.Lease == 0 || a.Silent):
		c.found("device %s is busy without a lease or with a silent agent", d.ID)
	case (d.State == model.DeviceUnhealthy) != (d.Reason != model.ReasonNone):
		c.found("device %s is %s with reason %q", d.ID, d.State, d.Reason)
	case (d.State == model.DeviceUnknown) != (d.UnknownUptimeMS != 0):
		c.found("device %s is %s, unknown since %d", d.ID, d.State, d.UnknownUptimeMS)
	case !sortedLabels(d.Declared) || !sortedLabels(d.Detected):
		c.found("device %s has unsorted labels", d.ID)
	}
}

func sortedLabels(labels []model.Label) bool {
	for i := 1; i < len(labels); i++ {
		if labels[i-1].Key >= labels[i].Key {
			return false
		}
	}
	return true
}

func (c *checker) requests() {
	c.v.requests.scan(func(key string, q *model.Request) bool {
		if key != requestName(q.Scope, q.ID) {
			c.found("request %q of %q is stored under another key", q.ID, q.Scope)
		}
		if q.UptimeMS > c.v.uptimeMS() {
			c.found("request %q comes from the future", q.ID)
		}
		return true
	})
}

func (c *checker) sheets() {
	c.v.sheets.scan(func(id string, s *model.Sheet) bool {
		if id != model.DeviceID(s.Host, s.Name) || s.Body == "" {
			c.found("sheet of %s:%s is empty or stored under %s", s.Host, s.Name, id)
		}
		if c.v.agents.get(s.Host) == nil || (s.Name != "" && c.v.devices.get(id) == nil) {
			c.found("sheet %s belongs to nobody", id)
		}
		return true
	})
	c.v.members.scan(func(id string, m *model.Member) bool {
		if id != m.ID || m.Supports < c.v.meta.Feature {
			c.found("controller %s is stored under %s, or knows less than the cluster's level", m.ID, id)
		}
		return true
	})
}

// need is the least that queued jobs of one target ask for.
type need struct {
	pinned  string
	parsed  selector.Selector
	runtime int64
	job     uint64
}

// placements looks for a ready device beside a queued job it could run, among
// these devices and these jobs; nil jobs means the whole queue.
func (c *checker) placements(devices []*model.Device, jobs []*model.Job) {
	ready := slices.DeleteFunc(slices.Clone(devices), func(d *model.Device) bool { return d.State != model.DeviceReady })
	if len(ready) == 0 {
		return
	}
	type target struct{ pinned, selector string }
	at := map[target]int{} // only looked up
	var needs []need
	add := func(j *model.Job) {
		key := target{j.Pinned, j.Selector}
		i, ok := at[key]
		if !ok {
			n := need{pinned: j.Pinned, runtime: scheduler.Runtime(j), job: j.Number}
			if j.Pinned == "" {
				var err error
				if n.parsed, err = selector.Parse(j.Selector); err != nil {
					c.found("queued job %d: %v", j.Number, err)
					return
				}
			}
			at[key] = len(needs)
			needs = append(needs, n)
		} else if r := scheduler.Runtime(j); r < needs[i].runtime {
			needs[i].runtime, needs[i].job = r, j.Number
		}
	}
	if jobs == nil {
		for j := range c.v.Queued() {
			add(j)
		}
	}
	for _, j := range jobs {
		add(j)
	}
	for _, d := range ready {
		for i := range needs {
			n := &needs[i]
			matches := n.pinned == d.ID || (n.pinned == "" && n.parsed.Match(d.Label))
			if matches && (d.MaxRuntimeS == 0 || n.runtime <= d.MaxRuntimeS) {
				c.found("device %s is ready and job %d waits, which it could run", d.ID, n.job)
			}
		}
	}
}
