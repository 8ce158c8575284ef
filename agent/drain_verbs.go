package agent

import (
	"maps"
	"slices"
)

// drainBegins takes every device of the host out of the pool. kill: jobs are
// ended, those on the way too. It is on disk when it returns; the leader hears
// of it when there is one.
func (a *agent) drainBegins(kill bool, reason string) error {
	if err := a.drains.begin(declaredNames(a.config), reason, kill, false); err != nil {
		return err
	}
	a.log.Warn("host drained: every device is out of the pool until an operator returns it", "kill", kill, "reason", reason)
	a.factsChanged()
	a.endDrained()
	return nil
}

// resumeDrain goes on with what an agent before, or a drain without one, has
// left on disk.
func (a *agent) resumeDrain() error {
	if err := a.drains.found(declaredNames(a.config)); err != nil {
		return err
	}
	a.endDrained()
	return nil
}

// endDrained ends the jobs that a closed drain does not want. A job that is
// taken on later is looked at by then (accept).
func (a *agent) endDrained() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		if a.drains.refuses(j.devices, j.lease) {
			a.kill(j, reasonDrained)
		}
	}
}

// idleAfter calls closing and reports whether no job is there; a job that is
// taken on after it finds the drain closed.
func (a *agent) idleAfter(closing func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		if j.outcome == nil {
			return false
		}
	}
	closing()
	return true
}

// drainCancelled forgets a drain, and returns its devices, sorted: the leader
// may have them out of the pool, whatever is known of that here.
func (a *agent) drainCancelled() ([]string, error) {
	was, err := a.drains.cancel()
	if was == nil || err != nil {
		return nil, err
	}
	a.log.Warn("drain of the host cancelled")
	return was.deviceNames(), nil
}

func (s *drainState) deviceNames() []string { return slices.Sorted(maps.Keys(s.Devices)) }

// onDevice reports whether a job that has not ended is on a device.
func (a *agent) onDevice(device string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		if j.outcome == nil && slices.Contains(j.devices, device) {
			return true
		}
	}
	return false
}
