package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/spool"
)

const (
	// pumpChunk is read from a pipe at a time: what a pipe holds by default.
	pumpChunk = 64 << 10
	// drainBound ends the reading of pipes that a process outside the tree still holds and still fills, once the tree is empty.
	drainBound = 2 * time.Second
)

// pump is the one goroutine that reads the job's pipes or terminal and writes its spool, so that the order of the output is one.
type pump struct {
	writer  *spool.Writer
	board   *board
	readers *readers // nil for a log job, which is never held back and whose output may be dropped
	lost    func() bool
	log     *slog.Logger

	failing bool          // the last write to the spool failed
	waited  time.Duration // for the disk, in the read just now

	began time.Time
	last  atomic.Int64 // when output came last or was last kept from coming, as time since began
	held  atomic.Bool  // the job is being held back by us

	pipes [2]int // stdout, stderr; -1 when closed

	mu   sync.Mutex
	stop [2]int // wakes the reader: by a byte, or to finish by its end; the second is guarded by mu and -1 once closed
	done chan struct{}
}

// newPump makes the pump of a log job.
func newPump(writer *spool.Writer, b *board, log *slog.Logger) (*pump, error) {
	p := &pump{writer: writer, board: b, log: log, done: make(chan struct{})}
	if err := unix.Pipe2(p.stop[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return p, nil
}

// holdBack makes it the pump of a job whose output waits for its readers. lost tells whether nobody can come to read it any more.
func (p *pump) holdBack(r *readers, lost func() bool) {
	p.readers, p.lost = r, lost
	r.onAdvance(p.wake)
}

// start begins to read the streams of a job that runs.
func (p *pump) start(job streams) {
	p.began, p.pipes = time.Now(), [2]int{job.stdout, job.stderr}
	go p.run()
}

// idle returns for how long there has been no output that could have come.
func (p *pump) idle() time.Duration {
	if p.held.Load() {
		return 0
	}
	return time.Since(p.began) - time.Duration(p.last.Load())
}

// finish takes what is in the pipes now and ends the pump. To be called once, when the tree is empty: the writers are gone, so what they wrote is
// all there.
func (p *pump) finish() {
	p.mu.Lock()
	shut(&p.stop[1])
	p.mu.Unlock()
	<-p.done
	_ = unix.Close(p.stop[0])
}

// wake makes the pump look at its readers again.
func (p *pump) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop[1] >= 0 {
		_, _ = unix.Write(p.stop[1], []byte{0}) // full means that it has been woken already
	}
}

// run reads until both pipes are at their end, or finish.
func (p *pump) run() {
	defer close(p.done)
	room := make([]byte, pumpChunk)
	var deadline time.Time // zero until told to finish
	for p.pipes[0] >= 0 || p.pipes[1] >= 0 {
		wait, fds := -1, []unix.PollFd{{Fd: int32(p.pipes[0]), Events: unix.POLLIN}, {Fd: int32(p.pipes[1]), Events: unix.POLLIN}}
		if deadline.IsZero() {
			fds = append(fds, unix.PollFd{Fd: int32(p.stop[0]), Events: unix.POLLIN})
		} else {
			wait = 0
		}
		// What is left at the end has been written: it is taken whoever reads.
		if p.hold(deadline.IsZero() && p.full()) {
			fds[0].Fd, fds[1].Fd = -1, -1
		}
		ready, err := unix.Poll(fds, wait)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			p.log.Error("read output", "error", err) // ENOMEM; nothing else can be
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !deadline.IsZero() && (ready == 0 || time.Now().After(deadline)) {
			break
		}
		for i := range p.pipes {
			if fds[i].Revents != 0 {
				p.read(i, room)
			}
		}
		if !deadline.IsZero() { // that was not the writer's time
			deadline = deadline.Add(p.waited)
		}
		p.waited = 0
		if len(fds) > 2 && fds[2].Revents != 0 && p.toldToFinish() {
			deadline = time.Now().Add(drainBound)
		}
	}
	p.hold(false)
	for i := range p.pipes {
		shut(&p.pipes[i])
	}
}

// toldToFinish takes the wake-ups that have come and tells whether they were the last.
func (p *pump) toldToFinish() bool {
	var bytes [64]byte
	n, err := unix.Read(p.stop[0], bytes[:])
	return n == 0 && err == nil
}

// full tells whether so much waits for the readers that no more may come.
func (p *pump) full() bool {
	return p.readers != nil && p.writer.Length()-p.readers.at() >= outputWindow
}

// hold notes whether the job is held back, and returns it. Its silence meanwhile is not its own.
func (p *pump) hold(held bool) bool {
	if p.held.Load() && !held {
		p.last.Store(int64(time.Since(p.began)))
	}
	p.held.Store(held)
	return held
}

// read moves what one pipe holds into the spool. A terminal that nobody has open any more ends with EIO.
func (p *pump) read(i int, room []byte) {
	n, err := unix.Read(p.pipes[i], room)
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		return
	}
	if n <= 0 {
		shut(&p.pipes[i])
		return
	}
	stream := spool.Stream(i + 1)
	if p.readers != nil {
		p.stow(stream, room[:n])
	} else {
		p.note(p.writer.Append(stream, room[:n]))
	}
	p.last.Store(int64(time.Since(p.began)))
	p.board.grow(p.writer.Length())
}

// stow stores what must not be dropped: as long as the disk does not take it the job is held back, and so is its end. Only what nobody can come for any
// more is let go.
func (p *pump) stow(stream spool.Stream, b []byte) {
	p.writer.Keep(p.readers.at())
	for {
		n, err := p.writer.Offer(stream, b)
		p.note(err)
		if b = b[n:]; len(b) == 0 {
			return
		}
		if p.lost() {
			_ = p.writer.Append(stream, b)
			return
		}
		p.hold(true)
		since := time.Now()
		time.Sleep(stowPause)
		p.waited += time.Since(since)
	}
}

// note says it once when the spool begins to refuse writes, and once when it takes them again: a full disk refuses thousands.
func (p *pump) note(err error) {
	if failing := err != nil; failing != p.failing {
		p.failing = failing
		p.log.Warn("storing output", "failing", failing, "offset", p.writer.Length(), "error", err)
	}
}
