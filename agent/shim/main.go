package shim

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/spool"
	"rcd/internal/codec"
)

const (
	// oomScore keeps the kernel from choosing a shim when a job has used up the memory.
	oomScore = -999
	// lockPatience covers the moment for which an agent that looks after a shim that does not answer holds the lock.
	lockPatience = 2 * time.Second
)

// Main is `rcd shim`: it runs the job of one directory to its end and returns the exit status of the process, 0 if the job has a result. args are
// `--dir DIR`, and `--report-fd N` to tell the starting agent how it went. Nobody but Start calls it.
func Main(args []string) int {
	flags := flag.NewFlagSet("shim", flag.ContinueOnError)
	dir := flags.String("dir", "", "the job's directory")
	reportFD := flags.Int("report-fd", -1, "descriptor on which to report the start")
	if flags.Parse(args) != nil {
		return 2
	}
	if *dir == "" || flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "rcd shim is started by the agent, with --dir DIR")
		return 2
	}
	report := &reporter{}
	if *reportFD > 2 {
		unix.CloseOnExec(*reportFD)
		closeInherited()
		report.pipe = os.NewFile(uintptr(*reportFD), "report")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := runShim(*dir, report, log)
	if err != nil {
		log.Error("shim ends", "error", err)
		report.problem(err)
		return 1
	}
	return 0
}

// reporter tells the starting agent, once, how the start went.
type reporter struct{ pipe io.WriteCloser }

func (r *reporter) say(m message) {
	if r.pipe == nil {
		return
	}
	_ = codec.WriteMessage(r.pipe, m, messageLimit) // an agent that died meanwhile finds out from the directory
	_ = r.pipe.Close()
	r.pipe = nil
}

func (r *reporter) problem(err error) {
	m := message{Type: typeFailed, Problem: &problemBody{Text: clip(strings.ToValidUTF8(advised(err), "?"))}}
	if cause := CauseOf(err); cause != CauseAgent {
		m.Problem.Cause = cause
	}
	if errors.Is(err, errTaken) {
		m.Type = typeRefused
	}
	r.say(m)
}

// runShim returns nil once the job's result is on disk. An error means that the job has not begun.
func runShim(dir string, report *reporter, log *slog.Logger) error {
	defer catchSignals()()
	lock, err := claim(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	s, err := prepare(dir, log)
	if err != nil {
		return err
	}
	defer func() { _, _ = s.listener.Close(), s.home.Close() }()
	if err := s.limit.keep(dir); err != nil {
		return err
	}
	if err := writeRecord(dir, processName, kindProcess, s.process, replace); err != nil {
		return err
	}
	// The job has begun: from here on there is a result whatever happens.
	s.run(report)
	return nil
}

// claim returns the lock of a job that has not begun. errTaken if it has, or if somebody else keeps the lock.
func claim(dir string) (*os.File, error) {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		if begun, err := hasBegun(dir); begun || err != nil {
			return nil, errors.Join(err, errTaken)
		}
		lock, err := takeLock(dir)
		if errors.Is(err, errTaken) && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// Again, for what was begun and even ended between the look and the lock.
		if begun, err := hasBegun(dir); begun || err != nil {
			_ = lock.Close()
			return nil, errors.Join(err, errTaken)
		}
		return lock, nil
	}
}

// hasBegun tells whether any shim has come as far as to put down that the job begins, or any agent that it never will.
func hasBegun(dir string) (bool, error) {
	for _, name := range []string{resultName, processName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("look at job: %w", err)
		}
	}
	return false, nil
}

// prepare does everything that can fail without the job having begun.
func prepare(dir string, log *slog.Logger) (*supervisor, error) {
	var o order
	if err := readRecord(dir, specName, kindSpec, &o); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	self, err := proc.Self()
	if err != nil {
		return nil, err
	}
	home, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open job: %w", err)
	}
	listener, err := listen(dir)
	if err != nil {
		_ = home.Close()
		return nil, err
	}
	attached, err := newAttachment(o.Spec, log)
	if err != nil {
		_, _ = home.Close(), listener.Close()
		return nil, err
	}
	return &supervisor{
		dir: dir, order: o, self: self, log: log, listener: listener, home: home, board: newBoard(), attached: attached,
		kills:   make(chan string),
		limits:  make(chan time.Duration),
		limit:   limit{max: o.Spec.MaxRuntime},
		process: processRecord{Boot: o.Boot, Shim: identityOf(self)},
	}, nil
}

// catchSignals keeps the signals that end a process by default from ending the shim. They are caught, not ignored, because an ignored signal would stay
// ignored in the job.
func catchSignals() (stop func()) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	return func() { signal.Stop(caught) }
}

// closeInherited closes what the agent's own parents left open without meaning to: a shim and its job would keep, for weeks, the pipe of some script
// that started the agent and waits for its end. What this process has opened itself is marked close-on-exec.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// output opens the spool.
func (s *supervisor) output() (*spool.Writer, error) {
	return spool.Create(filepath.Join(s.dir, outputName), s.order.Spec.OutputBound)
}
