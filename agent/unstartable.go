package agent

import (
	"fmt"
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
}

// weigh takes the outcome of a job before it is told, and adds to one too many
// what takes its devices out of the pool.
func (t *startTally) weigh(o *wire.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case command.EndKind(o.End) != command.EndStartFailed:
		t.failed = 0 // a process ran
		return
	case model.Origin(o.Origin) != model.OriginHost && model.Origin(o.Origin) != model.OriginAgent:
		return // that says nothing of the host
	}
	if t.failed++; t.failed >= unstartableAfter {
		o.Survivors = cut(joined(o.Survivors, fmt.Sprintf("the last %d jobs could not be started on this host (%s); mend that, then return the device with rc clear", t.failed, brief(o.Reason))))
	}
}
