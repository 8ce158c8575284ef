package controller

import (
	"sync"

	"rcd/fsm/command"
)

// notifier wakes whoever waits for something to happen to a job. It carries no
// values: a woken waiter looks at the lease table again.
type notifier struct {
	mu   sync.Mutex
	jobs map[uint64]map[chan struct{}]struct{}
}

func newNotifier() *notifier {
	return &notifier{jobs: map[uint64]map[chan struct{}]struct{}{}}
}

// watch returns a channel that receives after each event of the job, several
// in one when the reader is slow, and the function that ends the watch.
func (n *notifier) watch(job uint64) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.jobs[job] == nil {
		n.jobs[job] = map[chan struct{}]struct{}{}
	}
	n.jobs[job][ch] = struct{}{}
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.jobs[job], ch)
		if len(n.jobs[job]) == 0 {
			delete(n.jobs, job)
		}
	}
}

// events is called on the state machine's goroutine and never blocks.
func (n *notifier) events(events []command.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range events {
		if e.Job != 0 {
			n.wake(n.jobs[e.Job])
		}
	}
}

// all wakes everybody: after a restore no events tell what changed.
func (n *notifier) all() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, waiters := range n.jobs {
		n.wake(waiters)
	}
}

func (n *notifier) wake(waiters map[chan struct{}]struct{}) {
	for ch := range waiters {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
