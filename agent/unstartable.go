package agent

import (
	"fmt"
	"slices"
	"sync"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// unstartableAfter is how many jobs in a row must have failed to start for the
// host's sake before its devices are taken out of the pool, each at the next job
// that fails on it: one failure may be of the moment, and a host that fails each
// job at once would empty the queue.
const unstartableAfter = 3

// startTally counts such jobs.
type startTally struct {
	mu     sync.Mutex
	failed int
	// told is the last lease with which each device was taken out: one that lives
	// on, a hold's, has it told once and not by each job inside.
	told map[string]uint64
}

// weigh takes the outcome of a job before it is told, and adds to one too many
// what takes its devices out of the pool. ran: the job's supervisor was started.
func (t *startTally) weigh(j *job, o *wire.Outcome, ran bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if command.EndKind(o.End) != command.EndStartFailed {
		if ran {
			t.failed = 0 // the host can start something
		}
		return
	}
	if model.Origin(o.Origin) != model.OriginHost && model.Origin(o.Origin) != model.OriginAgent {
		return // that says nothing of the host
	}
	t.failed++
	again := func(device string) bool { return t.told[device] == j.lease }
	if t.failed < unstartableAfter || len(j.devices) > 0 && !slices.ContainsFunc(j.devices, func(d string) bool { return !again(d) }) {
		return
	}
	if t.told == nil {
		t.told = map[string]uint64{}
	}
	for _, d := range j.devices {
		t.told[d] = j.lease
	}
	o.Survivors = cut(joined(o.Survivors, fmt.Sprintf("the last %d jobs could not be started on this host (%s); mend that, then return the device with rc clear", t.failed, brief(o.Reason))))
}
