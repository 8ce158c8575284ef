package sim

import (
	"slices"
	"strings"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// step is one entry as the witness judges it: the state before and after.
type step struct {
	x        *witness
	w        *World
	index    uint64
	term     uint64 // of Raft
	old, now *fsm.View
	entry    command.Entry
	commands []command.Command
	results  []command.Result
	events   []command.Event
	changed  int // jobs that are not what they were
}

func (s *step) decode(data []byte) {
	var err error
	if s.entry, err = command.DecodeEntry(data); err != nil {
		s.w.fail("index %d: %v", s.index, err)
	}
	for _, raw := range s.entry.Commands {
		c, err := command.Decode(raw)
		if err != nil {
			s.w.fail("index %d: %v", s.index, err)
		}
		s.commands = append(s.commands, c)
	}
	if len(s.results) != len(s.commands) {
		s.w.fail("index %d: %d results for %d commands", s.index, len(s.results), len(s.commands))
	}
}

func (s *step) note() {
	if s.w.options.Out == nil {
		return
	}
	var words []string
	for i, c := range s.commands {
		word := c.Kind.String()
		if code := s.results[i].Code; code != command.OK {
			word += "=" + string(code)
		}
		words = append(words, word)
	}
	s.w.note("#%d term %d: %s", s.index, s.term, strings.Join(words, " "))
	for _, e := range s.events {
		s.w.note("     event %d job %d lease %d %s%s %s", e.Kind, e.Job, e.Lease, e.Host, e.Device, e.Reason)
	}
}

// accepts reports whether an accepted command of the entry satisfies is.
func (s *step) accepts(is func(body any) bool) bool {
	for i, c := range s.commands {
		if s.accepted(i) && is(c.Body) {
			return true
		}
	}
	return false
}

// epochRule: whoever does not speak for the epoch changes nothing at all.
func (s *step) epochRule() {
	begins := s.accepts(func(b any) bool { _, ok := b.(*command.EpochBegin); return ok })
	if begins {
		s.w.counts.Terms++
		if s.now.Term() != s.term || s.old.Term() >= s.term {
			s.w.fail("index %d: the epoch went from %d to %d in term %d", s.index, s.old.Term(), s.now.Term(), s.term)
		}
		return
	}
	if s.now.Term() != s.old.Term() {
		s.w.fail("index %d: the epoch changed without a beginning", s.index)
	}
	if s.entry.Term == s.term && s.term == s.old.Term() {
		return
	}
	s.w.counts.StaleRefused++
	if s.now.Digest() != s.old.Digest() {
		s.w.fail("law 4: index %d speaks for term %d in epoch %d and changed the state", s.index, s.entry.Term, s.old.Term())
	}
	for i, r := range s.results {
		if r.Code != command.StaleEpoch {
			s.w.fail("law 4: index %d: command %d of a passed epoch was answered with %q", s.index, i, r.Code)
		}
	}
}

// clocks: now never goes back, uptime is the true time inside epochs.
func (s *step) clocks() {
	if s.now.NowMS() < s.old.NowMS() {
		s.w.fail("index %d: now went back from %d to %d", s.index, s.old.NowMS(), s.now.NowMS())
	}
	up := s.now.UptimeMS() - s.old.UptimeMS()
	if up < 0 || s.now.UptimeMS() > s.w.now.Milliseconds() {
		s.w.fail("index %d: uptime %d ms after %d, and %v have passed in truth", s.index, s.now.UptimeMS(), s.old.UptimeMS(), s.w.now)
	}
	if began, ok := s.x.terms[s.term]; ok && s.now.Term() == s.term && s.entry.Term == s.term {
		age := s.now.UptimeMS() - s.now.EpochUptimeMS()
		if truth := (s.entry.Stamp - began) / int64(time.Millisecond); age > truth+1 {
			s.w.fail("index %d: the epoch is %d ms old by uptime and %d in truth", s.index, age, truth)
		}
	}
}

// jobs holds every job against what it was and against the truth.
func (s *step) jobs() {
	for n := uint64(1); ; n++ {
		was, is := s.old.Job(n), s.now.Job(n)
		if was == nil && is == nil {
			if s.x.pruned[n] {
				continue
			}
			return
		}
		if was == is {
			continue
		}
		s.changed++
		switch {
		case is == nil:
			s.prunedJob(was)
		case was == nil:
			if n > 1 && s.now.Job(n-1) == nil && !s.x.pruned[n-1] {
				s.w.fail("index %d: job %d came before its predecessor", s.index, n)
			}
			s.newJob(is)
		}
		if is != nil {
			s.changedJob(was, is)
		}
	}
}

func (s *step) prunedJob(was *model.Job) {
	ended := was.State.Terminal() || slices.ContainsFunc(s.events, func(e command.Event) bool { // in this very entry
		return e.Kind == command.EventJobEnded && e.Job == was.Number
	})
	if !ended || !s.accepts(func(b any) bool { _, ok := b.(*command.JobPrune); return ok }) {
		s.w.fail("law 2: job %d (%s) vanished at index %d", was.Number, was.State, s.index)
	}
	s.x.pruned[was.Number] = true
	s.w.counts.Pruned++
}

func (s *step) newJob(j *model.Job) {
	if first, known := s.x.tags[j.Note]; known {
		s.w.fail("law 3: %s made job %d and now job %d", j.Note, first, j.Number)
	}
	if j.Note == neverTag {
		s.w.fail("law 3: a used request ID had a second effect, job %d", j.Number)
	}
	s.x.tags[j.Note] = j.Number
	s.x.queuedAt[j.Number] = s.now.UptimeMS()
	spec, known := s.x.specs[j.Note]
	ran := int64(0)
	if j.CeilingAsked {
		ran = j.MaxRuntimeS
	}
	target := spec.Pinned
	if j.Hold != 0 {
		target = s.entered(j)
	}
	same := known && j.Hold == spec.Hold && j.SessionS == spec.SessionS && j.Pinned == target && j.Selector == spec.Selector && j.Priority == spec.Priority && j.Kind == spec.Kind &&
		j.NoWait == spec.NoWait && ran >= spec.MaxRuntimeS && j.QueuedUptimeMS == s.now.UptimeMS()
	if !same {
		s.w.fail("index %d: job %d is not what %s asked for", s.index, j.Number, j.Note)
	}
	if j.Hold == 0 {
		s.x.servingOf(j)
	}
}

func (s *step) changedJob(was, is *model.Job) {
	s.sessionOf(was, is)
	if was != nil && was.State.Terminal() {
		s.finalJob(was, is)
		return
	}
	if !is.State.Terminal() {
		if was != nil && was.State.Active() && is.State == model.JobQueued {
			s.requeued(was)
		} else if was != nil && is.State < was.State {
			s.w.fail("index %d: job %d went from %s to %s", s.index, is.Number, was.State, is.State)
		}
		return
	}
	s.endedJob(was, is)
}

// requeued: only a job that no host can know goes back.
func (s *step) requeued(was *model.Job) {
	s.w.counts.Requeued++
	s.x.queuedAt[was.Number] = s.now.UptimeMS()
	if k, ran := s.x.runs[was.Number]; ran {
		s.w.fail("law 3: job %d goes back to the queue and has a process under lease %d", was.Number, k.lease)
	}
	if was.Hold != 0 {
		s.w.fail("index %d: job %d inside hold %d goes to the queue", s.index, was.Number, was.Hold)
	}
	if was.PlacedTerm != s.term || was.State == model.JobRunning {
		s.w.fail("index %d: job %d goes back to the queue, placed in term %d, %s", s.index, was.Number, was.PlacedTerm, was.State)
	}
}

// finalJob: a terminal state is final; late truth is added once.
func (s *step) finalJob(was, is *model.Job) {
	expect := *was
	if was.ExitCode == nil && was.LateExitCode == nil && is.LateExitCode != nil {
		expect.LateExitCode = is.LateExitCode
		s.w.counts.Late++
		s.exitCode(is, is.LateExitCode)
	}
	if !was.OutputKnown && is.OutputKnown {
		expect.Output, expect.OutputKnown, expect.OutputLength, expect.OutputDigest = is.Output, true, is.OutputLength, is.OutputDigest
	}
	same := is.State == expect.State && is.EndReason == expect.EndReason && is.Origin == expect.Origin &&
		is.FinishedAtMS == expect.FinishedAtMS && is.EndUptimeMS == expect.EndUptimeMS && sameCode(is.ExitCode, expect.ExitCode) &&
		sameCode(is.LateExitCode, expect.LateExitCode) && is.Output == expect.Output && is.OutputKnown == expect.OutputKnown &&
		is.OutputLength == expect.OutputLength && is.Lease == expect.Lease && slices.Equal(is.Devices, expect.Devices)
	if !same {
		s.w.fail("law 9: job %d was final and changed at index %d: %s %q, then %s %q", is.Number, s.index, was.State, was.EndReason, is.State, is.EndReason)
	}
}

func sameCode(a, b *int32) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// endedJob holds the end of a job against what its host knows.
func (s *step) endedJob(was, is *model.Job) {
	s.unservedEnd(was, is)
	switch is.State {
	case model.JobSucceeded:
		s.w.counts.Succeeded++
	case model.JobFailed:
		s.w.counts.Failed++
	case model.JobKilled:
		s.w.counts.Killed++
	case model.JobLost:
		s.w.counts.Lost++
		s.lostJob(was, is)
	}
	if is.ExitCode != nil {
		s.exitCode(is, is.ExitCode)
	}
	if (is.State == model.JobSucceeded || is.State == model.JobFailed) && is.ExitCode == nil {
		s.w.fail("law 9: job %d is %s without an exit code", is.Number, is.State)
	}
	if is.State == model.JobSucceeded && *is.ExitCode != 0 {
		s.w.fail("law 9: job %d succeeded with code %d", is.Number, *is.ExitCode)
	}
}

func (s *step) exitCode(j *model.Job, code *int32) {
	o, known := s.x.truth[jobKey{j.Number, j.Lease}]
	if !known || o.ExitCode == nil || *o.ExitCode != *code {
		s.w.fail("law 9: job %d has exit code %d at index %d, its host says %s", j.Number, *code, s.index, codeText(o.ExitCode))
	}
}

// lostJob: a verdict needs its evidence, and one from silence its holdoff.
func (s *step) lostJob(was, is *model.Job) {
	finished := s.accepts(func(b any) bool {
		f, ok := b.(*command.JobFinish)
		return ok && f.Job == is.Number && f.End == command.EndSupervisorDied
	})
	if finished {
		// The first word of the host counts: what it knew must not get lost.
		if o := s.x.truth[jobKey{is.Number, is.Lease}]; o.End != uint8(command.EndSupervisorDied) {
			s.w.fail("law 9: job %d is lost, and its host knew that it %s with code %s", is.Number, endNames[o.End], codeText(o.ExitCode))
		}
		return
	}
	for i, c := range s.commands {
		r, ok := c.Body.(*command.AgentRegister)
		if ok && s.results[i].Code == command.OK && was != nil && r.Host == was.Host {
			s.w.counts.RegistrationLost++
			s.begunThere(was, r)
			return
		}
	}
	s.fromSilence("job " + is.ID() + " is lost")
	if strings.Contains(is.EndReason, "named") {
		s.w.counts.UnnamedLost++
		return
	}
	s.w.counts.SilentLost++
	if s.old.Settings().RetainDisconnected {
		s.w.fail("index %d: job %d is lost by silence, and such jobs are to be retained", s.index, is.Number)
	}
}

// begunThere: a registration ends only leases that its host has begun.
func (s *step) begunThere(was *model.Job, r *command.AgentRegister) {
	if l := s.old.Lease(was.Lease); l == nil || l.Begun {
		return
	}
	for i := range r.Devices {
		if slices.Contains(was.Devices, model.DeviceID(r.Host, r.Devices[i].Name)) && r.Devices[i].Begun >= was.Lease {
			return
		}
	}
	s.w.fail("law 4: job %d is lost by a registration at index %d, and %s has not begun lease %d", was.Number, s.index, r.Host, was.Lease)
}

// fromSilence tests a destructive verdict: law 4.
func (s *step) fromSilence(what string) {
	if !s.accepts(func(b any) bool { _, ok := b.(*command.Sweep); return ok }) {
		s.w.fail("law 4: %s at index %d without any evidence", what, s.index)
	}
	began, settings := s.x.terms[s.term], s.old.Settings()
	age := (s.entry.Stamp - began) / int64(time.Millisecond)
	bound := min(settings.WriteOffAfterMS, settings.LeaseUnnamedMS, settings.LeaseUnstartedMS)
	if age < settings.HoldoffMS || age < bound {
		s.w.fail("law 4: %s at index %d, %d ms into the epoch; the holdoff is %d, the shortest bound %d", what, s.index, age, settings.HoldoffMS, bound)
	}
}
