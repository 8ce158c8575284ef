package sim

import (
	"rcd/fsm/command"
	"rcd/model"
)

// devices holds every device against what it was: law 7.
func (s *step) devices() {
	for _, is := range s.now.Devices() {
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
}

// quarantined: the first reason stays unless the new one is graver, and one
// drawn from silence has its holdoff behind it.
func (s *step) quarantined(was, is *model.Device) {
	graver := is.Reason >= model.ReasonFault && was.Reason < model.ReasonFault
	if was.State == model.DeviceUnhealthy && !graver && !s.left(was.ID) {
		s.w.fail("law 7: %s was in quarantine for %s, and at index %d for %s", is.ID, was.Reason, s.index, is.Reason)
	}
	switch is.Reason {
	case model.ReasonWorkerLost:
		for _, c := range s.commands {
			if k, ok := c.Body.(*command.JobKill); ok && k.Detached {
				s.holdoffOnly("device " + is.ID + " is out of reach")
				return
			}
		}
		s.fromSilence("device " + is.ID + " is written off")
	case model.ReasonLeaseExpired:
		s.fromSilence("a lease of device " + is.ID + " expired")
	}
}

// holdoffOnly tests a verdict that a person asked for.
func (s *step) holdoffOnly(what string) {
	if age := (s.entry.Stamp - s.x.terms[s.term]) / 1_000_000; age < s.old.Settings().HoldoffMS {
		s.w.fail("law 4: %s at index %d, %d ms into the epoch", what, s.index, age)
	}
}

// left reports whether the entry has an operator's word on a device.
func (s *step) left(device string) bool {
	return s.accepts(func(b any) bool {
		c, ok := b.(*command.DeviceClear)
		return ok && c.Device == device
	})
}

// returned: a quarantine ends by an operator's word or by the evidence that
// answers its reason.
func (s *step) returned(was, is *model.Device) {
	if was.Lease != 0 && is.Lease == was.Lease {
		s.w.fail("law 7: %s left quarantine at index %d with live lease %d", is.ID, s.index, was.Lease)
	}
	if s.left(was.ID) {
		return
	}
	s.w.counts.Recovered++
	if was.Reason >= model.ReasonFault {
		s.w.fail("law 7: %s left quarantine for %s at index %d without an operator", is.ID, was.Reason, s.index)
	}
	agent := s.old.Agent(is.Host)
	proven := s.accepts(func(b any) bool {
		r, ok := b.(*command.AgentRegister)
		return ok && r.Host == is.Host && (r.Proof.Isolated || r.Proof.SurvivorsChecked && !r.Proof.SurvivorsFound || agent != nil && agent.BootID != r.BootID)
	})
	if !proven {
		s.w.fail("law 7: %s left quarantine for %s at index %d without evidence", is.ID, was.Reason, s.index)
	}
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
