package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"rcd/agent/proc"
)

// programBusy bounds the wait for whoever is just writing a program.
const programBusy = 5 * time.Second

// program is one of the operator's executables that runs: a hook, a verify script
// or a probe. It has a session of its own.
type program struct {
	root   proc.ID // zero if it is not known
	exited chan struct{}
	// What came of it, good once exited is closed: err is as of exec.Cmd.Wait.
	state *os.ProcessState
	err   error
}

// launch starts a program in the root directory, with nothing to read and env as
// its whole environment. The files stay the caller's to close; nil is nobody.
func launch(ctx context.Context, path string, env []string, stdout, stderr *os.File) (*program, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if stdout == nil {
		stdout = null
	}
	for deadline := time.Now().Add(programBusy); ; pause(ctx, programBusy/100) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("not run: %w", context.Cause(ctx))
		}
		cmd := &exec.Cmd{
			Path: path, Args: []string{path}, Dir: "/", Env: env,
			Stdin: null, Stdout: stdout, Stderr: stderr, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		}
		err := cmd.Start()
		if errors.Is(err, syscall.ETXTBSY) && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p := &program{exited: make(chan struct{})}
		p.root, _ = proc.Identify(cmd.Process.Pid) // there, for nobody has waited for it
		// One that hangs in the kernel is never reaped: then this goroutine is left
		// behind, as there is nothing to wait for.
		go func() {
			p.err = cmd.Wait()
			p.state = cmd.ProcessState
			close(p.exited)
		}()
		return p, nil
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// failure says how an exited program has failed, "" if it has not: with its exit
// code, or 128 + the signal that ended it.
func (p *program) failure() string {
	switch {
	case p.err == nil:
		return ""
	case p.state == nil:
		return p.err.Error()
	}
	code := p.state.ExitCode()
	if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return fmt.Sprintf("exited %d", code)
}
