package shim

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/internal/codec"
)

// Errors of Start and Adopt, besides ErrSpec, ErrForbiddenEnv and ErrCorrupt.
var (
	// ErrOtherJob says that the directory belongs to a job with another spec.
	ErrOtherJob = errors.New("the directory holds another job")
	// ErrNotBegun says that the spec is there and no shim has taken it up: the agent went down in between. Start takes it up.
	ErrNotBegun = errors.New("the job has not begun")
	// ErrNoJob says that the directory holds no spec. It is what an interrupted Start or Remove left; nothing ran that it knows of. Remove it.
	ErrNoJob = errors.New("the directory holds no job")
)

// startPatience is how long Start waits for the shim's word. A loaded host takes a second to run a program; the job is not given up after that, Start
// then returns with the phase Starting.
const startPatience = 10 * time.Second

// reportFD is where a shim finds its end of the report pipe: behind stdin, stdout and stderr.
const reportFD = 3

// Config says what to start, and where.
type Config struct {
	Dir  string // the job's own directory; made if it is missing
	Exec string // the rcd executable: run as `Exec shim --dir Dir --report-fd 3`
	Spec Spec
	Log  *slog.Logger

	// Step, unless nil, is told how far Start has come, on its own goroutine.
	Step func(Step)

	shimEnv []string // what a test adds to the shim's environment
}

// Step is how far a start has come.
type Step int

// The steps, in order.
const (
	SpecWritten Step = iota + 1 // the spec is on disk
	Forked                      // a shim runs, and has said nothing yet
	Reported                    // it has said how the start went, or will be late
)

func (c *Config) step(s Step) {
	if c.Step != nil {
		c.Step(s)
	}
}

// Start puts the spec down, starts a shim in a session of its own, and returns once the job runs or has failed to start: then the handle has ended with
// the outcome StartFailed. A job that Start was called for before, with the same spec, is not started again: the handle is that of the one job, as
// Adopt would return it. An error means that nothing was started; only after an operating error may the spec be on disk, for a later Start or Adopt.
// Several calls may run at a time, for the same directory too.
func Start(cfg Config) (*Handle, error) {
	spec := cfg.Spec.withDefaults()
	if err := spec.check(); err != nil {
		return nil, err
	}
	o, err := place(cfg.Dir, spec)
	if err != nil {
		return nil, err
	}
	cfg.step(SpecWritten)
	if h, err := Adopt(cfg.Dir, cfg.Log); !errors.Is(err, ErrNotBegun) {
		return h, err
	}
	status, id, err := spawn(cfg)
	if err != nil {
		// Another shim was faster, or this one died at its work; if none has begun, the first error is the one to tell.
		h, adoptErr := Adopt(cfg.Dir, cfg.Log)
		if errors.Is(adoptErr, ErrNotBegun) {
			return nil, err
		}
		return h, adoptErr
	}
	h := newHandle(cfg.Dir, o, cfg.Log)
	h.shim = id
	if status.Phase == Ended && h.settle(context.Background()) {
		h.reap()
		return h, h.failure()
	}
	h.status = status
	h.begin()
	return h, nil
}

// Load returns the spec that lies in a job's directory. ErrNoJob, or a CorruptError.
func Load(dir string) (Spec, error) {
	o, err := readOrder(dir)
	return o.Spec, err
}

func readOrder(dir string) (order, error) {
	var o order
	err := readRecord(dir, specName, kindSpec, &o)
	if errors.Is(err, os.ErrNotExist) {
		return order{}, fmt.Errorf("%s: %w", dir, ErrNoJob)
	}
	return o, err
}

// place writes the spec, or finds the same one there.
func place(dir string, spec Spec) (order, error) {
	boot, err := proc.BootID()
	if err != nil {
		return order{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return order{}, fmt.Errorf("start job: %w", err)
	}
	o := order{Spec: spec, Mark: rand.Text(), Boot: boot}
	if _, err := os.Stat(filepath.Join(dir, specName)); errors.Is(err, os.ErrNotExist) {
		if err := takeRoom(dir); err != nil {
			return order{}, err
		}
	}
	err = writeRecord(dir, specName, kindSpec, o, once)
	if err == nil {
		// The entry of the directory itself, too, must survive a power cut.
		return o, syncDir(filepath.Dir(dir))
	}
	if !errors.Is(err, os.ErrExist) {
		return order{}, err
	}
	there, err := readOrder(dir)
	if err != nil {
		return order{}, err
	}
	if !sameSpec(there.Spec, spec) {
		return order{}, fmt.Errorf("%s: %w", dir, ErrOtherJob)
	}
	return there, nil
}

// sameSpec compares as the record does: nothing and an empty list are the same.
func sameSpec(a, b Spec) bool {
	x, errX := codec.Marshal(a)
	y, errY := codec.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// spawn runs a shim and waits for its word. errTaken if another shim was faster.
func spawn(cfg Config) (Status, proc.ID, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return Status{}, proc.ID{}, fmt.Errorf("start shim: %w", err)
	}
	defer func() { _ = null.Close() }()
	logFile, err := os.OpenFile(filepath.Join(cfg.Dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return Status{}, proc.ID{}, fmt.Errorf("start shim: %w", err)
	}
	defer func() { _ = logFile.Close() }()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return Status{}, proc.ID{}, fmt.Errorf("start shim: %w", err)
	}
	defer func() { _ = ours.Close() }()
	process, err := os.StartProcess(cfg.Exec, []string{cfg.Exec, "shim", "--dir", cfg.Dir, "--report-fd", strconv.Itoa(reportFD)}, &os.ProcAttr{
		Dir:   "/",
		Env:   append([]string{"GOMAXPROCS=2"}, cfg.shimEnv...), // a shim has few goroutines; the agent's environment is none of its business
		Files: []*os.File{null, logFile, logFile, theirs},
		Sys:   &unix.SysProcAttr{Setsid: true},
	})
	_ = theirs.Close()
	if err != nil && Advice(err) == "" {
		err = fmt.Errorf("%w; install rcd on the host again and restart the agent", err)
	}
	if err != nil {
		return Status{}, proc.ID{}, fmt.Errorf("start shim: %w", err)
	}
	id, _ := proc.Identify(process.Pid) // there, for nobody has waited for it
	cfg.step(Forked)
	status, err := awaitReport(ours, cfg.Dir)
	cfg.step(Reported)
	if err != nil {
		dismiss(process, id, cfg.Dir)
		return Status{}, proc.ID{}, err
	}
	_ = process.Release() // the handle reaps it, if this agent is still there
	return status, id, nil
}

// awaitReport returns how the start went. No word in time is no error: the phase is Starting then.
func awaitReport(pipe *os.File, dir string) (Status, error) {
	if err := pipe.SetReadDeadline(time.Now().Add(startPatience)); err != nil {
		return Status{}, fmt.Errorf("start shim: %w", err)
	}
	var m message
	err := codec.ReadMessage(pipe, &m, messageLimit)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Status{Phase: Starting}, nil
	case err != nil:
		return Status{}, fmt.Errorf("start shim: it ended without a word, see %s: %w", filepath.Join(dir, logName), err)
	case m.Type == typeRefused:
		return Status{}, errTaken
	case m.Type == typeHello && m.Status != nil:
		return m.Status.status(), nil
	case m.Problem != nil:
		return Status{}, &problem{text: m.Problem.Text, cause: cmp.Or(m.Problem.Cause, CauseAgent)}
	}
	return Status{}, fmt.Errorf("start shim: message of type %d", m.Type)
}

// dismiss takes the exit of a shim that has said its last word, or closed the pipe by its end. One that goes on has said what this release does not
// understand: the executable has been replaced by a later one. If it has begun it is left to those who adopt the job; otherwise it must not begin after all.
func dismiss(process *os.Process, id proc.ID, dir string) {
	for deadline := time.Now().Add(shimExit); proc.Alive(id) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	if proc.Alive(id) {
		if begun, err := hasBegun(dir); begun || err != nil {
			_ = process.Release()
			return
		}
		_ = proc.Signal(id, unix.SIGKILL)
	}
	_, _ = process.Wait()
}
