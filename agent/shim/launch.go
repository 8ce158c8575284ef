package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// defaultPath is searched for the command if the job's environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// launched is a job that runs, and our side of its streams.
type launched struct {
	id proc.ID
	streams
}

// forker is syscall.ForkExec, or what puts the process into a cgroup as well.
type forker func(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error)

// launch starts the job's main process in a session of its own, with a terminal of that size if it is to have one. Our side of the streams is the caller's
// to close. The process is not waited for.
func launch(spec Spec, marks []string, size Size, fork forker) (launched, error) {
	if info, err := os.Stat(spec.Cwd); err != nil {
		return launched{}, fmt.Errorf("working directory: %w; submit the job with one that the host has", err)
	} else if !info.IsDir() {
		return launched{}, fmt.Errorf("working directory: %s is not a directory; submit the job with one that is", spec.Cwd)
	}
	path, err := lookUp(spec)
	if err != nil {
		return launched{}, err
	}
	s, err := openStreams(spec.Stdio, size)
	if err != nil {
		return launched{}, hostError{err}
	}
	defer s.closeJobs()
	env := append([]string(nil), spec.Env...)
	for _, mark := range marks {
		if !strings.HasPrefix(mark, proc.JobIDName+"=") {
			env = append(env, mark)
		}
	}
	pid, err := fork(path, spec.Command, &syscall.ProcAttr{
		Dir:   spec.Cwd,
		Env:   env,
		Files: s.files(),
		Sys:   s.attributes(),
	})
	if err != nil {
		s.closeOurs()
		return launched{}, runFailed(path, err)
	}
	id, err := proc.Identify(pid) // there even if it has ended: nobody waits for it yet
	if err != nil {
		s.closeOurs()
		return launched{}, hostError{errors.Join(fmt.Errorf("identify pid %d: %w", pid, err), endChild(pid))}
	}
	s.closeJobs()
	return launched{id: id, streams: s}, nil
}

// endChild ends a child that nobody has waited for yet, so that its pid is not anybody else's.
func endChild(pid int) error {
	child, err := os.FindProcess(pid)
	if err == nil {
		err = child.Kill()
	}
	if err == nil {
		_, err = child.Wait()
	}
	return err
}

// lookUp finds the command as execvp would in the job's own environment and directory.
func lookUp(spec Spec) (string, error) {
	name := spec.Command[0]
	if strings.Contains(name, "/") {
		return name, nil // relative to Cwd, for the child changes there first
	}
	path := defaultPath
	for _, entry := range spec.Env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(spec.Cwd, dir)
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: command not found in PATH %s; install it on the host, or give its path", name, path)
}

// exit is the end of the main process.
type exit struct{ status unix.WaitStatus }

// code is the process's own exit code, or 128 + the signal that ended it.
func (e exit) code() int {
	if e.status.Signaled() {
		return exitSignalled + int(e.status.Signal())
	}
	return e.status.ExitStatus()
}

// reaper waits for every child of the shim, orphans of the job included, so that no zombie is left.
type reaper struct {
	exited    chan exit     // the main process; one value
	childless chan struct{} // closed once the shim has no child, which proves that no descendant of it is left anywhere
}

func newReaper() *reaper {
	return &reaper{exited: make(chan exit, 1), childless: make(chan struct{})}
}

// run ends when there is no child left. childless is closed before the end of a main process that left nobody behind is told.
func (r *reaper) run(main int) {
	for {
		status, pid, err := wait(0)
		if err != nil {
			close(r.childless)
			return
		}
		if pid != main {
			continue
		}
		// Others that have ended too are reaped first, so that the usual job, which leaves nobody behind, is known to.
		for pid > 0 && err == nil {
			_, pid, err = wait(unix.WNOHANG)
		}
		if err != nil {
			close(r.childless)
		}
		r.exited <- exit{status}
		if err != nil {
			return
		}
	}
}

// wait reaps one child. ECHILD is the only error.
func wait(options int) (unix.WaitStatus, int, error) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, options, nil)
		if !errors.Is(err, unix.EINTR) {
			return status, pid, err
		}
	}
}
