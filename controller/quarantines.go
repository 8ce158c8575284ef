package controller

import "sync"

// quarantines remembers the index at which a device of a host last went into
// quarantine. A proof that was asked for before says nothing about that device:
// the start of the job whose lease ended there may have been obeyed just after
// the host had looked (jepsen/BUGS.md).
type quarantines struct {
	mu sync.Mutex
	at map[string]uint64 // by host; those of this epoch
}

// reset forgets them, at the start of an epoch: a proof is asked for in the
// epoch in which it comes.
func (q *quarantines) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = map[string]uint64{}
}

// note is called on the state machine's goroutine, before the proposer of the
// entry hears of it.
func (q *quarantines) note(host string, index uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at != nil {
		q.at[host] = max(q.at[host], index)
	}
}

func (q *quarantines) last(host string) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.at[host]
}
