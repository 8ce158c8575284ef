package agent

import (
	"errors"

	"rcd/model"
)

// awaitGPUs waits until the GPUs of a job's devices are known to be there: a host
// that has just booted may not have its driver yet. One that is not there fails
// the job, and the device is out of the pool with it, also when an operator has
// returned it too early. It returns false when j is not to be started, and has
// its outcome then unless the agent stops.
func (a *agent) awaitGPUs(j *job) bool {
	for {
		reason, news := a.gpus.fit(j.devices)
		if reason != "" {
			o := startFailed(errors.New(reason), model.OriginDevice)
			o.Survivors = cut(reason)
			a.settle(j, o)
			return false
		}
		if news == nil {
			return true
		}
		select {
		case <-news:
		case <-j.cancel:
			a.mu.Lock()
			reason := j.killing
			a.mu.Unlock()
			a.cancelled(j, reason)
			return false
		case <-a.ctx.Done():
			return false
		}
	}
}
