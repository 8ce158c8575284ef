package sim

import (
	"slices"

	"rcd/fsm/command"
	"rcd/model"
)

// devices holds every device against what it was: law 7.
func (s *step) devices() {
	now := s.now.Devices()
	for _, is := range now {
		was := s.old.Device(is.ID)
		if was == nil || was == is {
			continue
		}
		if is.State == model.DeviceUnhealthy && (was.State != model.DeviceUnhealthy || was.Reason != is.Reason) {
			s.quarantined(was, is)
		}
		if was.State == model.DeviceUnhealthy && is.State != model.DeviceUnhealthy {
			s.returned(was, is)
		}
		if was.State == model.DeviceUnknown && (is.State == model.DeviceReady || is.State == model.DeviceBusy) && !s.contact(is.Host) {
			s.w.fail("law 7: %s turned %s at index %d without a word of its host", is.ID, is.State, s.index)
		}
		if is.Lease != was.Lease && is.Lease != 0 && is.Lease <= was.HighestLease {
			s.w.fail("law 1: %s gets lease %d at index %d, after lease %d", is.ID, is.Lease, s.index, was.HighestLease)
		}
		if was.Lease != 0 && is.Lease != was.Lease && is.State == model.DeviceReady && !s.contact(is.Host) {
			s.w.fail("law 7: %s lost lease %d and is ready at index %d without a word of its host", is.ID, was.Lease, s.index)
		}
	}
	if len(now) != len(s.old.Devices()) || s.hasRetire() {
		s.vanished()
	}
	s.faults()
}

func (s *step) hasRetire() bool {
	return s.accepts(func(b any) bool { _, ok := b.(*command.DeviceRetire); return ok })
}

// vanished: a device leaves the table by an operator's word alone, without a
// live lease, and nobody goes on waiting for it.
func (s *step) vanished() {
	for _, was := range s.old.Devices() {
		if s.now.Device(was.ID) != nil {
			continue
		}
		if !s.retired(was.ID, was.Host) {
			s.w.fail("index %d: %s vanished and nobody has retired it", s.index, was.ID)
		}
		if was.Lease != 0 && s.now.Lease(was.Lease) != nil {
			s.w.fail("law 7: %s was retired at index %d under live lease %d", was.ID, s.index, was.Lease)
		}
		s.x.returns[was.ID] = nil
		s.x.gone[was.ID] = true
	}
	for j := range s.now.Queued() {
		if j.Pinned != "" && s.now.Device(j.Pinned) == nil {
			s.w.fail("index %d: job %d waits for %s, which is not there any more", s.index, j.Number, j.Pinned)
		}
	}
}

// faults: what is said to be unfit is out of the pool, whoever holds it.
func (s *step) faults() {
	for i, c := range s.commands {
		f, ok := c.Body.(*command.DeviceFault)
		if !ok || !s.accepted(i) {
			continue
		}
		if was := s.old.Device(f.Device); was != nil && was.Lease != 0 {
			s.w.counts.FaultsBusy++
		} else {
			s.w.counts.FaultsIdle++
		}
		if is := s.now.Device(f.Device); is != nil && !s.left(f.Device, is.Host) && (is.State != model.DeviceUnhealthy || is.Reason < model.ReasonFault) {
			s.w.fail("law 7: %s was reported unfit at index %d and is %s for %s", is.ID, s.index, is.State, is.Reason)
		}
	}
}

// quarantined: the first reason stays unless the new one is graver, each has
// its evidence, and one drawn from silence has its holdoff behind it.
func (s *step) quarantined(was, is *model.Device) {
	graver := is.Reason >= model.ReasonFault && was.Reason < model.ReasonFault
	if was.State == model.DeviceUnhealthy && !graver && !s.left(was.ID, was.Host) {
		s.w.fail("law 7: %s was in quarantine for %s, and at index %d for %s", is.ID, was.Reason, s.index, is.Reason)
	}
	evidence := true
	switch is.Reason {
	case model.ReasonWorkerLost:
		if s.accepts(detachedWish) || s.accepts(endsSessions) {
			s.holdoffOnly("device " + is.ID + " is out of reach")
			return
		}
		s.fromSilence("device " + is.ID + " is written off")
	case model.ReasonLeaseExpired:
		s.fromSilence("a lease of device " + is.ID + " expired")
	case model.ReasonRegistration:
		evidence = s.accepts(func(b any) bool { r, ok := b.(*command.AgentRegister); return ok && r.Host == is.Host })
	case model.ReasonFault:
		evidence = s.accepts(func(b any) bool {
			switch b := b.(type) {
			case *command.DeviceFault:
				return b.Device == is.ID
			case *command.JobFinish:
				return b.Host == is.Host && b.Survivors != ""
			}
			return false
		})
	default:
		evidence = false
	}
	if !evidence {
		s.w.fail("law 7: %s is in quarantine for %s at index %d, and nothing says so", is.ID, is.Reason, s.index)
	}
}

// detachedWish reports whether a person asked for the end of a job without its
// host.
func detachedWish(body any) bool {
	switch b := body.(type) {
	case *command.JobKill:
		return b.Detached
	case *command.LeaseRelease:
		return b.Detached
	}
	return false
}

// holdoffOnly tests a verdict that a person asked for.
func (s *step) holdoffOnly(what string) {
	if age := (s.entry.Stamp - s.x.terms[s.term]) / 1_000_000; age < s.old.Settings().HoldoffMS {
		s.w.fail("law 4: %s at index %d, %d ms into the epoch", what, s.index, age)
	}
}

// left reports whether the entry has an operator's word that a device is free.
func (s *step) left(device, host string) bool {
	return s.retired(device, host) || s.accepts(func(b any) bool {
		c, ok := b.(*command.DeviceClear)
		return ok && c.Device == device
	})
}

// retired reports whether the entry retires a device, or its host.
func (s *step) retired(device, host string) bool {
	return s.accepts(func(b any) bool {
		c, ok := b.(*command.DeviceRetire)
		return ok && (c.Device == device || c.Host == host)
	})
}

// returned: a quarantine ends by an operator's word, or by the evidence that
// answers its reason, and that not too often.
func (s *step) returned(was, is *model.Device) {
	if was.Lease != 0 && is.Lease == was.Lease {
		s.w.fail("law 7: %s left quarantine at index %d with live lease %d", is.ID, s.index, was.Lease)
	}
	if s.left(was.ID, was.Host) {
		return
	}
	if was.Reason >= model.ReasonFault {
		s.w.fail("law 7: %s left quarantine for %s at index %d without an operator", is.ID, was.Reason, s.index)
	}
	if !s.accepts(func(b any) bool { return s.proves(b, is.Host) }) {
		s.w.fail("law 7: %s left quarantine for %s at index %d without evidence", is.ID, was.Reason, s.index)
	}
	settings := s.old.Settings()
	at, returns := s.now.UptimeMS(), s.x.returns[is.ID]
	returns = slices.DeleteFunc(returns, func(before int64) bool { return before <= at-settings.FlapWindowMS })
	s.x.returns[is.ID] = append(returns, at)
	if int64(len(returns)) >= settings.FlapLimit && !s.sets() {
		s.w.fail("law 7: %s returned by itself at index %d after %d returns in %d ms; %d are allowed", is.ID, s.index, len(returns), settings.FlapWindowMS, settings.FlapLimit)
	}
}

// proves reports whether a command says of a host that nothing of an earlier
// job can hold its devices, and that they may return by themselves.
func (s *step) proves(body any, host string) bool {
	switch b := body.(type) {
	case *command.AgentRegister:
		a := s.old.Agent(host)
		rebooted := a != nil && a.BootID != b.BootID && a.Instance != b.Instance
		found := b.Proof.SurvivorsChecked && !b.Proof.SurvivorsFound
		if b.Host != host || b.RequireManualClear || !found && !b.Proof.Isolated && !rebooted {
			return false
		}
		s.w.counts.Recovered++
		return true
	case *command.Recover:
		if b.Host != host || b.RequireManualClear || !b.Proof.SurvivorsChecked || b.Proof.SurvivorsFound {
			return false
		}
		s.w.counts.RecoveredLater++
		return true
	}
	return false
}

// sets reports whether the entry changes a setting.
func (s *step) sets() bool {
	return s.accepts(func(b any) bool { _, ok := b.(*command.ConfigSet); return ok })
}

// contact reports whether the entry has a word of a host.
func (s *step) contact(host string) bool {
	return s.accepts(func(b any) bool {
		switch b := b.(type) {
		case *command.AgentRegister:
			return b.Host == host
		case *command.JobStart:
			return b.Host == host
		case *command.JobFinish:
			return b.Host == host
		case *command.LabelsReplace:
			return b.Host == host
		case *command.SheetPut:
			return b.Host == host
		case *command.Recover:
			return b.Host == host
		case *command.DeviceFault:
			d := s.old.Device(b.Device)
			return b.Instance != "" && d != nil && d.Host == host
		case *command.Sweep:
			for _, h := range b.Heard {
				if h.Host == host {
					return true
				}
			}
		case *command.DeviceClear:
			return true // its host is in contact, or the state says unknown
		}
		return false
	})
}
