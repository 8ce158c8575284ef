package sim

import (
	"slices"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/model/selector"
)

// accepted reports whether a command of the entry has had an effect.
func (s *step) accepted(i int) bool {
	switch r := s.results[i]; r.Code {
	case command.OK, command.NotPlaced, command.AlreadyEnded:
		return !r.Repeat
	}
	return false
}

// refusals: a refused request changes nothing and says what to do next: law 10.
func (s *step) refusals() {
	all := true
	for i, r := range s.results {
		if r.Code != command.OK && r.Message == "" {
			s.w.fail("law 10: a %s is refused as %q at index %d without a word", s.commands[i].Kind, r.Code, s.index)
		}
		if s.accepted(i) {
			all = false
		} else {
			s.w.counts.Refusals++
		}
	}
	if !all {
		return
	}
	same := s.now.Settings() == s.old.Settings() && slices.Equal(s.now.Devices(), s.old.Devices()) &&
		slices.Equal(s.now.Agents(), s.old.Agents()) && slices.Equal(s.now.Leases(), s.old.Leases()) && slices.Equal(s.now.Members(), s.old.Members())
	for i, c := range s.commands {
		r := c.Request
		same = same && (r.ID == "" || s.now.RequestFor(r.Scope, r.ID) == s.old.RequestFor(r.Scope, r.ID))
		if s.changed > 0 || !same || s.now.Counts() != s.old.Counts() {
			s.w.fail("law 10: a %s is refused as %q at index %d, and the tables changed", c.Kind, s.results[i].Code, s.index)
		}
	}
}

// callers: only who may has taken effect: the owner of a job or an
// administrator, by force an administrator alone; and nobody retires a host that
// is in contact.
func (s *step) callers() {
	for i, c := range s.commands {
		if !s.accepted(i) {
			continue
		}
		job, by, admin := uint64(0), "", false
		switch b := c.Body.(type) {
		case *command.JobKill:
			job, by, admin = b.Job, b.By, b.Admin
		case *command.LeaseExtend:
			job, by, admin = b.Job, b.By, b.Admin
		case *command.LeaseRelease:
			job, by, admin = b.Job, b.By, b.Admin
			if j := s.old.Job(job); b.Force && !admin && j != nil && j.State.Active() {
				s.w.fail("index %d: %s has released job %d by force and is no administrator", s.index, by, job)
			}
		case *command.DeviceRetire:
			if a := s.old.Agent(b.Host); a != nil && !a.Silent && s.sweeps() == 0 {
				s.w.fail("law 7: host %s was retired at index %d and is in contact", b.Host, s.index)
			}
		}
		if j := s.now.Job(job); j != nil && !admin && by != j.Submitter {
			s.w.fail("index %d: %s took effect on job %d of %s", s.index, by, job, j.Submitter)
		}
	}
}

// oneEffect: a request ID has one effect: law 3.
func (s *step) oneEffect() {
	for i, c := range s.commands {
		if c.Request.ID == "" || !s.accepted(i) {
			continue
		}
		name := c.Request.Scope + "/" + c.Request.ID
		if at, known := s.x.effects[name]; known && s.now.UptimeMS()-at < s.old.Settings().RequestMinAgeMS {
			s.w.fail("law 3: request %s has had an effect, and at index %d it has another", name, s.index)
		}
		s.x.effects[name] = s.now.UptimeMS()
	}
}

// passes: a pass over the queue finds nothing to do.
func (s *step) passes() {
	only := true
	for i, c := range s.commands {
		_, pass := c.Body.(*command.Schedule)
		only = only && (pass || !s.accepted(i))
	}
	for i, c := range s.commands {
		if _, pass := c.Body.(*command.Schedule); pass && only && len(s.results[i].Jobs) > 0 && !s.results[i].Repeat {
			s.w.fail("law 6: a pass over the queue at index %d placed job %d", s.index, s.results[i].Jobs[0].Number)
		}
	}
}

// extensions: a granted runtime is what was asked for, longer than before and
// within what the devices allow.
func (s *step) extensions() {
	for i, c := range s.commands {
		x, ok := c.Body.(*command.LeaseExtend)
		if !ok || !s.accepted(i) {
			continue
		}
		was, is := s.old.Job(x.Job), s.now.Job(x.Job)
		if is == nil || is.MaxRuntimeS < x.MaxRuntimeS || was != nil && was.MaxRuntimeS > is.MaxRuntimeS {
			s.w.fail("index %d: job %d was granted %d s and may run %d s", s.index, x.Job, x.MaxRuntimeS, is.MaxRuntimeS)
		}
		s.x.granted[x.Job] = s.w.now
		for _, id := range is.Devices {
			before, after := s.old.Device(id), s.now.Device(id)
			if exceeds(before, x.MaxRuntimeS) && exceeds(after, x.MaxRuntimeS) {
				s.w.fail("index %d: job %d was granted %d s, and %s allows %d s", s.index, x.Job, x.MaxRuntimeS, id, after.MaxRuntimeS)
			}
		}
	}
}

func exceeds(d *model.Device, runtimeS int64) bool {
	return d != nil && d.MaxRuntimeS > 0 && runtimeS > d.MaxRuntimeS
}

// order: a device that becomes free goes to the first in the queue that can use
// it. Keys are made here from what was asked, by the words of the contract.
func (s *step) order() {
	for i, c := range s.commands {
		if b, ok := c.Body.(*command.ConfigSet); ok && s.accepted(i) {
			for _, v := range b.Settings {
				if v.Name == "aging_ms" {
					s.x.aging = v.Value
				}
			}
		}
	}
	for _, e := range s.events {
		if e.Kind != command.EventJobPlaced {
			continue
		}
		got, d := s.now.Job(e.Job), s.now.Device(e.Device)
		if got == nil || got.Lease != e.Lease || !got.State.Active() || d == nil {
			continue
		}
		if got.Hold != 0 {
			continue // see entered
		}
		if s.allocated(e.Job) {
			s.pastTheQueue(got, d)
			continue
		}
		if !s.x.canUse(got, d) {
			s.w.fail("index %d: job %d was placed on %s and cannot use it", s.index, got.Number, d.ID)
		}
		for j := range s.now.Queued() {
			if s.before(j, got) && s.x.canUse(j, d) {
				s.w.fail("index %d: job %d got %s, and job %d is in front of it and could use it", s.index, got.Number, d.ID, j.Number)
			}
		}
	}
}

// pastTheQueue: who gets a device directly takes it from nobody who waited for
// it. An entry that changes what devices are is left out.
func (s *step) pastTheQueue(got *model.Job, d *model.Device) {
	if was := s.old.Device(d.ID); was == nil || !sameFacts(was, d) || !slices.Equal(was.Detected, d.Detected) {
		return
	}
	s.w.counts.Snatched++
	for j := range s.now.Queued() {
		if was := s.old.Job(j.Number); was != nil && was.State == model.JobQueued && s.x.canUse(j, d) {
			s.w.fail("index %d: job %d was given %s past the queue, where job %d has waited for it", s.index, got.Number, d.ID, j.Number)
		}
	}
}

func (s *step) allocated(job uint64) bool {
	for i, c := range s.commands {
		if _, ok := c.Body.(*command.LeaseAllocate); ok && len(s.results[i].Jobs) > 0 && s.results[i].Jobs[0].Number == job {
			return true
		}
	}
	return false
}

// before reports whether one job stands in front of another in the queue.
func (s *step) before(a, b *model.Job) bool {
	aging := s.x.aging
	if aging == 0 {
		return a.Priority > b.Priority || a.Priority == b.Priority && a.Number < b.Number
	}
	ka, kb := a.QueuedUptimeMS-int64(a.Priority)*aging, b.QueuedUptimeMS-int64(b.Priority)*aging
	return ka < kb || ka == kb && a.Number < b.Number
}

// canUse reports whether a job could run on a device if that were free.
func (x *witness) canUse(j *model.Job, d *model.Device) bool {
	if j.CeilingAsked && exceeds(d, j.MaxRuntimeS) {
		return false
	}
	if j.Pinned != "" {
		return j.Pinned == d.ID
	}
	return x.selector(j.Selector).Match(d.Label)
}

func (x *witness) selector(text string) selector.Selector {
	parsed, known := x.selectors[text]
	if !known {
		var err error
		if parsed, err = selector.Parse(text); err != nil {
			x.w.fail("the selector %q of a job does not parse: %v", text, err)
		}
		x.selectors[text] = parsed
	}
	return parsed
}

// guard: so many hosts that the fault is more likely here than there are not
// written off without a person: law 4. The entry is looked at only where it
// does nothing else about hosts.
func (s *step) guard() {
	fresh, silent, all := 0, int64(0), int64(0)
	for _, a := range s.now.Agents() {
		was := s.old.Agent(a.Host)
		all++
		if a.Silent && (was == nil || !was.WrittenOff || s.x.wroteOff[a.Host] > s.now.UptimeMS()-3_600_000) {
			silent++
		}
		if a.WrittenOff && was != nil && !was.WrittenOff {
			fresh++
			s.x.wroteOff[a.Host] = s.now.UptimeMS()
		}
	}
	settings := s.old.Settings()
	mass := silent > settings.MassFloor && silent*100 > settings.MassPercent*all
	if fresh > 0 && mass && settings.MassPermit && !s.sets() {
		s.w.counts.Permitted++
		if s.now.Settings().MassPermit {
			s.w.fail("law 4: a permit was used at index %d and still stands", s.index)
		}
	}
	if fresh == 0 || settings.MassPermit || s.sets() || s.hasRetire() || s.sweeps() > 1 || s.now.UptimeMS() > 3_600_000 {
		return
	}
	s.w.counts.WrittenOff++
	if mass {
		s.w.fail("law 4: %d hosts are written off at index %d while %d of %d are silent; more than %d and %d %% need a person's word",
			fresh, s.index, silent, all, settings.MassFloor, settings.MassPercent)
	}
}

func (s *step) sweeps() (n int) {
	for _, c := range s.commands {
		if _, ok := c.Body.(*command.Sweep); ok {
			n++
		}
	}
	return n
}
