package shim

import (
	"errors"
	"fmt"
	"log/slog"
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

// pump is the one goroutine that reads the job's pipes and writes its spool, so that the order of the output is one.
type pump struct {
	writer *spool.Writer
	board  *board
	log    *slog.Logger

	failing bool // the last write to the spool failed

	began time.Time
	last  atomic.Int64 // when output came last, as time since began

	pipes [2]int // stdout, stderr; -1 when closed
	stop  [2]int // a pipe that wakes the reader to finish
	done  chan struct{}
}

func newPump(writer *spool.Writer, b *board, log *slog.Logger) (*pump, error) {
	p := &pump{writer: writer, board: b, log: log, done: make(chan struct{})}
	if err := unix.Pipe2(p.stop[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return p, nil
}

// start begins to read the pipes of a job that runs.
func (p *pump) start(job launched) {
	p.began, p.pipes = time.Now(), [2]int{job.stdout, job.stderr}
	go p.run()
}

// idle returns for how long there has been no output.
func (p *pump) idle() time.Duration { return time.Since(p.began) - time.Duration(p.last.Load()) }

// finish takes what is in the pipes now and ends the pump. To be called once, when the tree is empty: the writers are gone, so what they wrote is
// all there.
func (p *pump) finish() {
	_ = unix.Close(p.stop[1])
	<-p.done
	_ = unix.Close(p.stop[0])
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
		if len(fds) > 2 && fds[2].Revents != 0 {
			deadline = time.Now().Add(drainBound)
		}
	}
	for i := range p.pipes {
		p.shut(i)
	}
}

// read moves what one pipe holds into the spool.
func (p *pump) read(i int, room []byte) {
	n, err := unix.Read(p.pipes[i], room)
	if errors.Is(err, unix.EINTR) {
		return
	}
	if n <= 0 {
		p.shut(i)
		return
	}
	err = p.writer.Append(spool.Stream(i+1), room[:n])
	if failing := err != nil; failing != p.failing {
		p.failing = failing // said once, for a full disk refuses thousands of writes
		p.log.Warn("storing output", "failing", failing, "offset", p.writer.Length(), "error", err)
	}
	p.last.Store(int64(time.Since(p.began)))
	p.board.grow(p.writer.Length())
}

func (p *pump) shut(i int) {
	if p.pipes[i] >= 0 {
		_ = unix.Close(p.pipes[i])
		p.pipes[i] = -1
	}
}
