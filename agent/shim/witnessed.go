package shim

import (
	"errors"
	"fmt"

	"rcd/agent/witness"
)

// witnessed runs a job with the locks of its simulated devices, which its processes inherit. A hold has no process: there the shim's own part is all.
func (s *supervisor) witnessed(supervise func() Result) Result {
	place := s.order.Spec.Witness
	if place == nil {
		return supervise()
	}
	hold, err := place.Take(witness.Holder{Lease: s.order.Spec.Lease, Job: s.order.Spec.JobID})
	if err != nil {
		result := startFailed(s.dir, hostError{fmt.Errorf("witness: %w", err)})
		if errors.Is(err, witness.ErrDouble) {
			// Somebody is there who should not be: the device is not fit for the next lease either.
			result.Unverified = clip(err.Error())
		}
		return result
	}
	result := supervise()
	if !result.Clean() {
		hold.LetGo() // what is left has it still
		return result
	}
	// Before the result is told, for then the next lease may come.
	if err := hold.End(); err != nil {
		s.log.Error("end of a lease not witnessed", "error", err)
	}
	return result
}
