package raftnode

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rcd/fsm/command"
)

const (
	// enqueueTimeout is how long raft's main loop may take to accept an entry;
	// above it the loop is stuck in a disk write.
	enqueueTimeout = time.Second
	// beginRetry is the pause before another try to begin an epoch.
	beginRetry = 20 * time.Millisecond
	// dutiesRetry is the pause before the duties are tried again where there
	// is nobody to give leadership to.
	dutiesRetry = time.Second
	// notifyBacklog is how many changes of leadership may wait for the pump;
	// raft's main loop blocks on the next.
	notifyBacklog = 8
)

// Epoch is a term in which this node has begun to lead.
type Epoch struct {
	Term       uint64
	BeginIndex uint64    // of epoch.begin; applied here before anything else
	Started    time.Time // with its monotonic reading: ages within the epoch
}

// tenure is one unbroken time of leadership as raft signalled it.
type tenure struct {
	ctx context.Context
	end context.CancelFunc
}

// leadership turns raft's signals into epochs: on acquisition it commits
// epoch.begin, opens the combiner and runs the duties; on loss it ends all
// three and waits for them before the next. One goroutine (run) does that,
// another (pump) does nothing but end contexts, so that raft never waits.
type leadership struct {
	raft   *raft.Raft
	notify <-chan bool
	deps   *Deps
	// resign gives leadership away when the duties cannot start; it reports
	// whether somebody could take it.
	resign  func(context.Context) bool
	abandon context.Context
	logger  *slog.Logger

	mu       sync.Mutex // guards what follows
	duties   func(context.Context, Epoch) error
	tenure   *tenure // the latest
	epoch    Epoch   // while combiner is not nil
	combiner *combiner
	reigning bool // from a tenure's start until all it started has ended
	closed   bool
	changed  chan struct{} // closed and replaced at every change of the above
}

// apply implements log.
func (l *leadership) apply(data []byte) raft.ApplyFuture {
	return l.raft.Apply(data, enqueueTimeout)
}

// update changes the state under the lock and tells who waits.
func (l *leadership) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// pump follows raft's signals until stop ends. Raft sends both edges of every
// change, so a loss and regain of any length passes here as two signals.
func (l *leadership) pump(stop context.Context) {
	for {
		select {
		case gained := <-l.notify:
			l.update(func() {
				if l.tenure != nil {
					l.tenure.end()
					l.tenure = nil
				}
				if gained && !l.closed {
					ctx, end := context.WithCancel(stop)
					l.tenure = &tenure{ctx, end}
				}
			})
		case <-stop.Done():
			return
		}
	}
}

// run leads whenever the node is the leader, until stop ends.
func (l *leadership) run(stop context.Context) {
	var last *tenure
	for {
		l.mu.Lock()
		t, ready, changed := l.tenure, l.duties != nil, l.changed
		l.mu.Unlock()
		if t != nil && t != last && ready {
			last = t
			l.update(func() { l.reigning = true })
			l.reign(t)
			l.update(func() { l.reigning = false })
			continue
		}
		select {
		case <-changed:
		case <-stop.Done():
			return
		}
	}
}

// reign is one tenure, from epoch.begin until leadership is lost.
func (l *leadership) reign(t *tenure) {
	epoch, ok := l.begin(t)
	if !ok {
		<-t.ctx.Done()
		return
	}
	l.logger.Info("leading", "term", epoch.Term, "index", epoch.BeginIndex)
	for t.ctx.Err() == nil {
		ctx, end := context.WithCancel(t.ctx)
		failed := l.serve(ctx, epoch)
		end()
		if failed == nil {
			continue
		}
		l.logger.Error("duties of the leader failed, giving leadership away", "term", epoch.Term, "err", failed)
		if !l.resign(t.ctx) {
			sleep(t.ctx, dutiesRetry)
		}
	}
	l.logger.Info("no longer leading", "term", epoch.Term)
}

// begin commits epoch.begin. It returns false when leadership was lost first.
func (l *leadership) begin(t *tenure) (Epoch, bool) {
	for t.ctx.Err() == nil {
		if l.raft.State() != raft.Leader {
			return Epoch{}, false
		}
		term, started := l.raft.CurrentTerm(), l.deps.Clock.Now()
		data, err := command.EncodeEntry(term, started.UnixNano(), [][]byte{l.deps.EpochBegin(term, started)})
		if err != nil {
			panic("raftnode: epoch.begin does not encode: " + err.Error())
		}
		future := l.apply(data)
		err = await(t.ctx, future)
		if err == nil {
			got, _ := future.Response().(applied)
			if got.err != nil {
				return Epoch{}, false // halted
			}
			if got.term == term && len(got.results) == 1 && got.results[0].Code == command.OK {
				return Epoch{Term: term, BeginIndex: future.Index(), Started: started}, true
			}
			// Logged in another term than it names: refused everywhere.
			l.logger.Warn("epoch.begin refused", "term", term, "logged_in", got.term)
		}
		if errors.Is(err, errAbandoned) {
			return Epoch{}, false
		}
		if err != nil {
			l.logger.Warn("epoch.begin failed", "term", term, "err", err)
		}
		sleep(t.ctx, beginRetry)
	}
	return Epoch{}, false
}

// serve runs combiner and duties until ctx ends, or until the duties fail,
// whose error it returns. Both have ended when it returns.
func (l *leadership) serve(ctx context.Context, epoch Epoch) error {
	stamp := func() int64 { return epoch.Started.UnixNano() + int64(l.deps.Clock.Now().Sub(epoch.Started)) }
	c := newCombiner(l.abandon, epoch.Term, stamp, l)
	var duties func(context.Context, Epoch) error
	l.update(func() { l.epoch, l.combiner, duties = epoch, c, l.duties })
	inner, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- duties(inner, epoch) }()

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-ended:
		ended <- nil
		if failed == nil {
			<-ctx.Done()
		} else if ctx.Err() != nil {
			failed = nil // it ended because it was told to
		}
	}
	l.update(func() { l.epoch, l.combiner = Epoch{}, nil })
	c.close()
	end()
	<-ended
	c.wait.Wait()
	return failed
}

// current returns the open epoch and its combiner, or nil.
func (l *leadership) current() (Epoch, *combiner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, l.combiner
}

// awaitEpoch returns the open epoch, waiting while the node is the leader and
// has not begun. It returns ErrNotLeader when it is not.
func (l *leadership) awaitEpoch(ctx context.Context) (Epoch, error) {
	for {
		l.mu.Lock()
		epoch, open, leads, changed := l.epoch, l.combiner != nil, l.tenure != nil, l.changed
		l.mu.Unlock()
		if open {
			return epoch, nil
		}
		if !leads {
			return Epoch{}, ErrNotLeader
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Epoch{}, ctx.Err()
		}
	}
}

// close ends the tenure for good and waits, at most limit, until what is in
// flight has been answered: raft must still run to answer it.
func (l *leadership) close(limit time.Duration) {
	l.update(func() {
		l.closed = true
		if l.combiner != nil {
			l.combiner.close()
		}
		if l.tenure != nil {
			l.tenure.end()
			l.tenure = nil
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		l.mu.Lock()
		busy, changed := l.reigning, l.changed
		l.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// sleep returns after d or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
