package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/spool"
)

// ErrNotEnded says that the job has no result yet.
var ErrNotEnded = errors.New("the job has not ended")

const (
	firstRedial = 5 * time.Millisecond
	lastRedial  = time.Second
	// shimExit is how long a shim may take to exit once the result is known; it has nothing left to do.
	shimExit = 5 * time.Second
)

// Handle is the agent's hold on one job. Safe for concurrent use. It must be closed or removed; neither ends the job.
type Handle struct {
	dir   string
	order order
	log   *slog.Logger

	mu      sync.Mutex
	status  Status        // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced at each change
	kill    string        // guarded by mu; the reason wished for, empty if none
	result  Result        // guarded by mu; good once ended
	err     error         // guarded by mu; why there is no result, though the job has ended
	shim    proc.ID       // guarded by mu; zero if not known
	longer  time.Duration // guarded by mu; the limit wished for, 0 if none
	limit   time.Duration // guarded by mu; good if limited
	limited bool          // guarded by mu; the shim has written its limit down

	consumed     int64 // guarded by mu; how far the readers of the output have got
	consumedTold int64 // guarded by mu; what of it the sender was woken for

	putDownSweep *swept // guarded by mu; set if this handle has killed the shim, after a sweep that came to this

	nudge  chan struct{} // holds one wake-up for the sender of kills
	wished chan struct{} // closed by the first Kill
	ended  chan struct{}

	cancel context.CancelFunc
	work   sync.WaitGroup
}

func newHandle(dir string, o order, log *slog.Logger) *Handle {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Handle{
		dir: dir, order: o, log: log, status: Status{Phase: Starting},
		changed: make(chan struct{}), nudge: make(chan struct{}, 1), wished: make(chan struct{}), ended: make(chan struct{}),
		cancel: func() {},
	}
}

// Dir returns the job's directory.
func (h *Handle) Dir() string { return h.dir }

// Spec returns what was ordered, with defaults filled in. The caller must not change its slices.
func (h *Handle) Spec() Spec { return h.order.Spec }

// Status returns what is known now.
func (h *Handle) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// Tree returns what belongs to the job as far as is known now, its shim as Above: what a look for survivors must leave out.
func (h *Handle) Tree() proc.Target {
	cgroup, err := cgroupOf(h.dir)
	if err != nil {
		h.log.Error("read the job's cgroup", "dir", h.dir, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return proc.Target{Root: h.status.Job, Above: h.shim, Marks: h.order.marks(), Since: h.shim.Start, Cgroup: cgroup}
}

// Wait returns the status as soon as it differs from since, which may be at once. While output runs it changes at most every 5 ms. An ended job does
// not change any more: then Wait returns its status at once. The only error is ctx's.
func (h *Handle) Wait(ctx context.Context, since Status) (Status, error) {
	for {
		h.mu.Lock()
		status, changed := h.status, h.changed
		h.mu.Unlock()
		if status != since || status.Phase == Ended {
			return status, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status, ctx.Err()
		}
	}
}

// Done is closed when the job has ended, its processes are gone or named as survivors, its output is whole in the spool and the result is on disk.
func (h *Handle) Done() <-chan struct{} { return h.ended }

// Kill has the whole tree of the job ended: SIGTERM, the grace, SIGKILL. It returns at once and is repeated to the shim until that has taken it. The
// first reason given counts, at most 1 KiB of it; empty means "cancelled". A job that has ended by itself keeps its own result. A shim that stays silent
// is killed with its job within seconds and the grace, once: the outcome is SupervisorDied then, without an exit code.
func (h *Handle) Kill(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kill == "" {
		h.kill = killReason(strings.ToValidUTF8(reason, "?"))
		close(h.wished)
	}
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// Result returns the result. ErrNotEnded while the job runs; a CorruptError if the result is on disk and cannot be read.
func (h *Handle) Result() (Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.status.Phase != Ended {
		return Result{}, ErrNotEnded
	}
	return h.result, h.err
}

// OpenOutput puts a cursor at an offset of the job's output; 0 may be asked for as soon as there is a handle. For a job that has ended the end is known
// to the reader; while it runs, the caller tells it by Finish when Done is closed.
func (h *Handle) OpenOutput(offset int64) (*spool.Reader, error) {
	dir := filepath.Join(h.dir, outputName)
	// A shim that never came that far has made none. The job's own directory is not made again: it was deleted, and a job must not look unbegun in a new one.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("open output: %w", err)
	}
	r, err := spool.Open(dir, offset)
	if err != nil {
		return nil, err
	}
	if result, err := h.Result(); err == nil {
		r.Finish(result.OutputLength)
	}
	return r, nil
}

// Close lets go of the job, which goes on, and waits for the handle's goroutines. Adopt takes it up again.
func (h *Handle) Close() {
	h.cancel()
	h.work.Wait()
}

// Remove deletes the job's directory, with its output and its result. ErrNotEnded while the job runs. The handle is closed by it.
func (h *Handle) Remove() error {
	h.mu.Lock()
	phase := h.status.Phase
	h.mu.Unlock()
	if phase != Ended {
		return ErrNotEnded
	}
	h.work.Wait()
	return RemoveDir(h.dir)
}

// RemoveDir deletes a directory that holds no job any more: one that ended, or what Adopt calls ErrNoJob. The caller knows that nothing runs. It fails, and
// the directory stays, while something is left in the job's cgroup after all.
func RemoveDir(dir string) error {
	// As long as the directory is there, the cgroup is known.
	if err := removeCgroupOf(dir); err != nil {
		return fmt.Errorf("remove job: %w", err)
	}
	// The spec goes first and for good: what an interrupted removal leaves must not look like a job whose shim has died.
	err := os.Remove(filepath.Join(dir, specName))
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove job: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove job: %w", err)
	}
	return nil
}

// begin starts the handle's goroutines.
func (h *Handle) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	h.takeLimit()
	h.work.Go(func() {
		defer cancel()
		h.run(ctx)
	})
	h.work.Go(func() { h.insist(ctx) })
}

// run follows the shim until the job has ended or the handle is closed.
func (h *Handle) run(ctx context.Context) {
	for pause := firstRedial; ctx.Err() == nil; pause = min(pause*2, lastRedial) {
		if conn, err := dial(h.dir); err == nil {
			err := h.follow(ctx, conn)
			if errors.Is(err, errVersion) {
				h.log.Error("follow job", "dir", h.dir, "error", err)
			}
			if err == nil {
				pause = firstRedial
			}
		}
		if ctx.Err() == nil && h.settle(ctx) {
			h.reap()
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// failure returns why there is no result, though the job has ended.
func (h *Handle) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// follow takes the shim's statuses until the connection ends. nil if the shim had said hello.
func (h *Handle) follow(ctx context.Context, conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	// A stopped shim never greets, and whoever closes the handle must not wait for that.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	m, err := receive(conn)
	if err != nil {
		return err
	}
	if m.Type != typeHello || m.Hello == nil || m.Hello.JobID != h.order.Spec.JobID {
		return fmt.Errorf("message of type %d instead of a hello for job %s", m.Type, h.order.Spec.JobID)
	}
	if m.Hello.Version > protocolVersion {
		return fmt.Errorf("%w: %d, this agent knows %d; run the newer agent again", errVersion, m.Hello.Version, protocolVersion)
	}
	h.mu.Lock()
	h.shim = m.Hello.Shim.id()
	h.mu.Unlock()
	h.takeLimit()
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	sending.Go(func() {
		h.sendOrders(ctx, conn)
		_ = conn.Close()
	})
	for {
		m, err := receive(conn)
		if err != nil {
			return nil
		}
		if m.Type != typeStatus || m.Status == nil {
			return fmt.Errorf("message of type %d instead of a status", m.Type)
		}
		if m.Status.Phase == Ended {
			return nil // the result on disk says it, and more
		}
		h.mu.Lock()
		extending := h.extension() != nil
		h.mu.Unlock()
		if extending {
			h.takeLimit()
		}
		h.change(func() { h.status = m.Status.status() })
	}
}

// sendOrders sends pings, and the kill or the extension until the shim says that it was taken, and how far the readers are whenever that is further. It
// returns when ctx ends or the connection fails.
func (h *Handle) sendOrders(ctx context.Context, conn net.Conn) {
	ping := time.NewTicker(keepalive)
	defer ping.Stop()
	var told int64 // on this connection
	for {
		h.mu.Lock()
		reason := h.kill
		if h.status.Killing != "" {
			reason = ""
		}
		extend, consumed := h.extension(), h.consumed
		h.mu.Unlock()
		if consumed > told {
			told = consumed
			if send(conn, message{Type: typeConsumed, Consumed: &consumedBody{Offset: told}}) != nil {
				return
			}
		}
		m := message{Type: typePing}
		if reason != "" {
			m = message{Type: typeKill, Kill: &killBody{Reason: reason}}
		} else if extend != nil {
			m = message{Type: typeExtend, Extend: extend}
		}
		if send(conn, m) != nil {
			return
		}
		select {
		case <-h.nudge:
		case <-ping.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *Handle) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Handle) end(result Result) {
	h.change(func() {
		h.result = result
		h.status.Phase, h.status.Output, h.status.StartedAt = Ended, result.OutputLength, result.StartedAt
		close(h.ended)
	})
}

// fail ends the handle of a job whose record cannot be read.
func (h *Handle) fail(err error) {
	h.change(func() {
		h.err = err
		h.status.Phase = Ended
		close(h.ended)
	})
}

// reap waits until the shim is gone, ends it if it does not go, and takes its exit status if it is a child of this process, so that it does not stay as a zombie.
func (h *Handle) reap() {
	h.mu.Lock()
	shim := h.shim
	h.mu.Unlock()
	for deadline := time.Now().Add(shimExit); proc.Exists(shim) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pid, err := unix.Wait4(shim.PID, nil, unix.WNOHANG, nil)
		if pid == shim.PID {
			return
		}
		if errors.Is(err, unix.ECHILD) && !proc.Alive(shim) {
			return // somebody else's child, and a zombie: theirs to reap
		}
	}
	// The result is on disk, so nothing is lost with it; stopped, it would stay for good.
	if shim = h.livingShim(); !shim.Zero() {
		h.log.Warn("the shim of an ended job does not exit; ending it", "job", h.order.Spec.JobID, "shim", shim.PID)
		_ = proc.Signal(shim, unix.SIGKILL)
		_, _ = unix.Wait4(shim.PID, nil, unix.WNOHANG, nil) // if it is too early, it stays as a zombie until this process ends
	}
}
