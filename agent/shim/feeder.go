package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcd/internal/backlog"
)

// feederBuffer is how much input the shim holds that the process has not taken: so much that the next is there by the time the process has read one pipe full.
// Shims of earlier releases hold frugalBuffer.
const (
	feederBuffer = 256 << 10
	frugalBuffer = 64 << 10
)

// feeder is the job's input in its shim. It takes each byte once, from whoever is the writer, and one goroutine writes them to the process.
type feeder struct {
	terminal bool
	log      *slog.Logger
	wake     int // an eventfd for the goroutine

	mu       sync.Mutex
	writer   uint64        // guarded by mu; the highest that has come
	accepted int64         // guarded by mu; everything before it is here
	buf      backlog.Bytes // guarded by mu; what of it the process has not taken, at most feederBuffer
	ended    bool          // guarded by mu; no more will come
	gone     bool          // guarded by mu; nobody reads it any more
	size     Size          // guarded by mu; of the terminal
	changed  chan struct{} // guarded by mu; closed and replaced at each change
	fd       int           // guarded by mu; -1 before the job runs and once closed
	done     chan struct{} // nil before the job runs
}

func newFeeder(spec Spec, log *slog.Logger) (*feeder, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("prepare input: %w", err)
	}
	return &feeder{
		terminal: spec.Stdio == StdioTTY, log: log, wake: wake, size: sizeOf(spec.Env), changed: make(chan struct{}), fd: -1,
	}, nil
}

// change tells those who listen. The caller holds mu.
func (f *feeder) change() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// rouse makes the goroutine look again.
func (f *feeder) rouse() {
	_, _ = unix.Write(f.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails only when 2^64 - 2 others are waiting
}

// open lets a writer in. One with a higher number than all before takes over.
func (f *feeder) open(writer uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writer = max(f.writer, writer)
	f.change()
}

// state returns how the input stands for a writer, and what is closed when that changes.
func (f *feeder) state(writer uint64) (inputStateBody, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := inputStateBody{
		Writer: f.writer, Accepted: f.accepted, Written: f.accepted - int64(f.buf.Len()), Ended: f.ended,
	}
	s.Limit = s.Written + feederBuffer
	switch {
	case writer < f.writer:
		s.Code = inputTaken
	case f.gone:
		s.Code = inputGone
	}
	return s, f.changed
}

// take adds what of the data comes next. What was taken before is passed over, and what comes from a writer that another has replaced is dropped, which the
// state tells them. False if it leaves something out, or is more than was allowed.
func (f *feeder) take(writer uint64, offset int64, data []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	if writer < f.writer || f.gone {
		return true
	}
	if offset < 0 || offset > f.accepted {
		return false
	}
	known := f.accepted - offset
	if known >= int64(len(data)) {
		return true
	}
	data = data[known:]
	if f.ended || f.buf.Len()+len(data) > feederBuffer {
		return false
	}
	f.buf.Add(data)
	f.accepted += int64(len(data))
	f.rouse()
	return true
}

// end says that the input ends at offset. A terminal's never does: what a person types there to end it is input like any other.
func (f *feeder) end(writer uint64, offset int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if writer < f.writer || f.terminal {
		return true
	}
	if offset != f.accepted {
		return false
	}
	f.ended = true
	f.change()
	f.rouse()
	return true
}

// resize gives the terminal another size, now or from its first moment on.
func (f *feeder) resize(writer uint64, size Size) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if writer < f.writer || !f.terminal || size.Cols == 0 || size.Rows == 0 {
		return
	}
	f.size = size
	if f.fd >= 0 {
		f.applySize()
	}
}

// applySize has the terminal take the size. The caller holds mu.
func (f *feeder) applySize() {
	if err := setSize(f.fd, f.size); err != nil {
		f.log.Warn("terminal", "error", err)
	}
}

func (f *feeder) sizeNow() Size {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

// start begins to feed a job that runs, and owns fd.
func (f *feeder) start(fd int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fd, f.done = fd, make(chan struct{})
	if f.terminal {
		f.applySize() // it may have changed since the terminal was opened
	}
	go f.run(fd, f.done)
}

// stop ends the input, whatever of it was not taken, and the goroutine. To be called once.
func (f *feeder) stop() {
	f.mu.Lock()
	f.gone = true
	f.change()
	done := f.done
	f.mu.Unlock()
	f.rouse()
	if done != nil {
		<-done
	}
}

// run writes until the input has ended or nobody takes it.
func (f *feeder) run(fd int, done chan<- struct{}) {
	defer close(done)
	defer f.close()
	for {
		chunk, more := f.pending()
		if !more {
			return
		}
		fds := []unix.PollFd{{Fd: int32(f.wake), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLOUT}}
		if len(chunk) == 0 {
			fds = fds[:1]
		}
		if _, err := unix.Poll(fds, -1); err != nil {
			if !errors.Is(err, unix.EINTR) {
				time.Sleep(10 * time.Millisecond) // ENOMEM
			}
			continue
		}
		if fds[0].Revents != 0 {
			_, _ = unix.Read(f.wake, make([]byte, 8))
		}
		if len(fds) < 2 || fds[1].Revents == 0 {
			continue
		}
		n, err := unix.Write(fd, chunk)
		switch {
		case err == nil:
			f.written(n)
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			f.lose() // the process has closed it
			return
		}
	}
}

// pending returns what is to be written, false when that is over.
func (f *feeder) pending() ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.buf.From(0, feederBuffer), !f.gone && (f.buf.Len() > 0 || !f.ended)
}

func (f *feeder) written(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf.Drop(n)
	f.change()
}

func (f *feeder) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	f.change()
}

// close closes our side, which a process that reads a pipe takes for the end.
func (f *feeder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	shut(&f.fd)
}
