package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"rcd/agent"
	"rcd/agent/proc"
)

const (
	stopAllLimit = 40 * time.Second
	stopGrace    = 10 * time.Second // from SIGTERM to SIGKILL

	// settle is how long after a look that found nothing another is taken: a
	// process that somebody is just starting has neither argv nor pid file for
	// some milliseconds.
	settle = 300 * time.Millisecond

	// maxLooks bounds the looks for somebody who starts ours again and again.
	maxLooks = 20
)

var errStarted = errors.New("processes of the cluster are started again and again")

// stopAll ends the agent first, so that no freed device starts a queued job,
// then every job and shim, then the controllers; and then whatever somebody
// started again in place of ours meanwhile.
func stopAll(processes []*Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopAllLimit)
	defer cancel()
	var errs []error
	for _, process := range slices.Backward(processes) {
		errs = append(errs, process.stop(ctx), process.reap())
	}
	return errors.Join(append(errs, stopRestarted(ctx, processes))...)
}

// stopRestarted looks until two looks in a row, settle apart, find nothing.
func stopRestarted(ctx context.Context, processes []*Process) error {
	quiet := false
	for range maxLooks {
		found := false
		for _, process := range slices.Backward(processes) {
			if len(process.running()) == 0 {
				continue
			}
			found = true
			if err := process.stop(ctx); err != nil {
				return err
			}
		}
		if !found && quiet {
			return nil
		}
		quiet = !found
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errStarted
}

// stop ends whatever runs as p, our own child or one that a test started in
// its place, and the jobs if p is the agent.
func (p *Process) stop(ctx context.Context) error {
	var errs []error
	for _, id := range p.running() {
		errs = append(errs, end(ctx, id, stopGrace))
	}
	if p.Role == "agent" {
		errs = append(errs, agent.Drain(ctx, p.DataDir, slog.New(slog.DiscardHandler)))
	}
	return errors.Join(errs...)
}

// running lists the processes that serve p's data directory by its pid file or
// have exactly p's command line: the pid file comes some milliseconds after
// the start, and the command line may be written another way.
func (p *Process) running() []proc.ID {
	var ids []proc.ID
	if id, ok := proc.ReadPIDFile(filepath.Join(p.DataDir, proc.PIDFile)); ok {
		ids = append(ids, id)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return ids // the pid files have to do
	}
	var want []byte
	for _, arg := range p.Argv {
		want = append(append(want, arg...), 0)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// The identity first: should the pid change hands in between, the
		// signal is refused.
		id, err := proc.Identify(pid)
		if err != nil || !proc.Alive(id) || slices.Contains(ids, id) {
			continue
		}
		if line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline")); err == nil && bytes.Equal(line, want) {
			ids = append(ids, id)
		}
	}
	return ids
}

// end sends SIGTERM, then SIGKILL after grace. A stopped process is continued,
// or it would never see the signal.
func end(ctx context.Context, id proc.ID, grace time.Duration) error {
	// A signal that fails hits a process that has ended meanwhile, which is
	// what we want.
	_ = proc.Signal(id, syscall.SIGCONT)
	_ = proc.Signal(id, syscall.SIGTERM)
	if waitGone(ctx, id, grace) {
		return nil
	}
	_ = proc.Signal(id, syscall.SIGKILL)
	if waitGone(context.WithoutCancel(ctx), id, 5*time.Second) {
		return nil
	}
	return fmt.Errorf("process %d does not end", id.PID)
}

func waitGone(ctx context.Context, id proc.ID, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for proc.Alive(id) {
		select {
		case <-ctx.Done():
			return !proc.Alive(id)
		case <-tick.C:
		}
	}
	return true
}

// reap waits for our own child, which stop has ended unless it never came to
// write its pid file.
func (p *Process) reap() error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(100 * time.Millisecond):
	}
	_ = p.cmd.Process.Kill() // ended meanwhile is what we want
	select {
	case <-p.exited:
		return nil
	case <-time.After(5 * time.Second):
		return fmt.Errorf("%s (process %d) does not end", p.ID, p.PID)
	}
}
