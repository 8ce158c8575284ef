package raftnode

import (
	"context"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"rcd/fsm/command"
)

const (
	// maxQueued and maxQueuedBytes bound what waits for an entry. At the size
	// of a usual submit the first is reached first.
	maxQueued      = 8192
	maxQueuedBytes = 32 << 20

	// entriesInFlight: one entry is written while the one before commits.
	entriesInFlight = 2

	// commandOverhead is what the entry adds to a command, at most.
	commandOverhead = 8
)

// log is what the combiner needs of raft. The future must not be waited on
// twice.
type log interface {
	// apply hands an entry over. It blocks until raft's main loop has taken it
	// or a timeout has passed; entries are logged in the order of the calls.
	apply(data []byte) raft.ApplyFuture
}

// outcome is the answer to a proposal.
type outcome struct {
	result command.Result
	index  uint64
	err    error
}

// proposal is one command on its way. Its fields but cmd are guarded by the
// combiner's mutex.
type proposal struct {
	cmd    []byte
	answer chan outcome // buffered; gets exactly one unless withdrawn
	handed bool         // given to raft: may be logged
	gone   bool         // withdrawn before that
}

// combiner makes entries of the commands proposed within one epoch: whatever
// is queued when an entry may start, without a timer, so that one command
// alone never waits and a thousand share a disk write. It is opened after the
// epoch has begun and closed when leadership is lost.
type combiner struct {
	term  uint64
	stamp func() int64 // Unix nanoseconds for the next entry
	log   log
	// abandon ends waits for futures that raft will never answer.
	abandon context.Context

	wake chan struct{} // there may be something in queue
	done chan struct{} // closed with closed
	wait sync.WaitGroup

	mu     sync.Mutex // guards what follows and the proposals in it
	queue  []*proposal
	bytes  int // of the commands in queue, withdrawn ones included
	closed bool
}

func newCombiner(abandon context.Context, term uint64, stamp func() int64, log log) *combiner {
	c := &combiner{
		term: term, stamp: stamp, log: log, abandon: abandon,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	c.wait.Add(1)
	go c.run()
	return c
}

// propose returns the answer to cmd. When ctx ends first, the error says
// whether the command may still happen.
func (c *combiner) propose(ctx context.Context, cmd []byte) (command.Result, uint64, error) {
	p := &proposal{cmd: cmd, answer: make(chan outcome, 1)}
	if err := c.enqueue(p); err != nil {
		return command.Result{}, 0, err
	}
	select {
	case o := <-p.answer:
		return o.result, o.index, o.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case o := <-p.answer: // both at once: the answer is worth more
		return o.result, o.index, o.err
	default:
	}
	if p.handed {
		return command.Result{}, 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	}
	p.gone = true
	return command.Result{}, 0, fmt.Errorf("%w: %w", ErrOverloaded, ctx.Err())
}

func (c *combiner) enqueue(p *proposal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrNotLeader
	}
	if len(c.queue) >= maxQueued || c.bytes+len(p.cmd) > maxQueuedBytes {
		return ErrOverloaded
	}
	c.queue = append(c.queue, p)
	c.bytes += len(p.cmd)
	c.signal()
	return nil
}

func (c *combiner) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close answers what is still queued and lets nothing more in. What was handed
// to raft is answered when raft does.
func (c *combiner) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	for _, p := range c.queue {
		p.answer <- outcome{err: ErrNotLeader}
	}
	c.queue, c.bytes = nil, 0
}

// run makes the entries, one after the other, so that stamps and the log have
// the same order.
func (c *combiner) run() {
	defer c.wait.Done()
	slots := make(chan struct{}, entriesInFlight)
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		select {
		case slots <- struct{}{}:
		case <-c.done:
			return
		}
		batch := c.take()
		if len(batch) == 0 {
			<-slots
			continue
		}
		future, err := c.submit(batch)
		if err != nil {
			answer(batch, err)
			<-slots
			continue
		}
		c.wait.Add(1)
		go func() {
			defer c.wait.Done()
			c.finish(batch, future)
			<-slots
		}()
	}
}

// take removes the commands of the next entry from the queue.
func (c *combiner) take() []*proposal {
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch []*proposal
	size, n := 0, 0
	for _, p := range c.queue {
		cost := len(p.cmd) + commandOverhead
		full := len(batch) == command.MaxCommandsPerEntry || size+cost > command.MaxEntryBytes
		if !p.gone && len(batch) > 0 && full {
			break
		}
		n++
		c.bytes -= len(p.cmd)
		if !p.gone {
			p.handed = true
			batch = append(batch, p)
			size += cost
		}
	}
	clear(c.queue[:n]) // the array lives on; what is answered must not
	c.queue = c.queue[n:]
	if len(c.queue) > 0 {
		c.signal()
	}
	return batch
}

func (c *combiner) submit(batch []*proposal) (raft.ApplyFuture, error) {
	commands := make([][]byte, len(batch))
	for i, p := range batch {
		commands[i] = p.cmd
	}
	data, err := command.EncodeEntry(c.term, c.stamp(), commands)
	if err != nil {
		return nil, err
	}
	return c.log.apply(data), nil
}

// finish waits for an entry and fans its answers out.
func (c *combiner) finish(batch []*proposal, future raft.ApplyFuture) {
	if err := await(c.abandon, future); err != nil {
		answer(batch, proposeError(err))
		return
	}
	got, ok := future.Response().(applied)
	switch {
	case !ok:
		answer(batch, fmt.Errorf("%w: no answer from the state machine", ErrOutcomeUnknown))
	case got.err != nil:
		answer(batch, fmt.Errorf("%w: %w", ErrOutcomeUnknown, got.err))
	case got.term != c.term:
		// Leadership was lost and regained between making the entry and
		// logging it. Every replica refused it as stale: nothing happened.
		answer(batch, ErrNotLeader)
	case len(got.results) != len(batch):
		panic(fmt.Sprintf("raftnode: state machine gave %d results for %d commands at index %d", len(got.results), len(batch), future.Index()))
	default:
		for i, p := range batch {
			p.answer <- outcome{result: got.results[i], index: future.Index()}
		}
	}
}

func answer(batch []*proposal, err error) {
	for _, p := range batch {
		p.answer <- outcome{err: err}
	}
}

// await returns what a future says, or errAbandoned when ctx ends first. Raft
// leaves a few futures unanswered when it is shut down (those between its main
// loop and its state machine loop); the goroutine that waits for such a one is
// lost with it.
func await(ctx context.Context, future raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errAbandoned
	}
}
