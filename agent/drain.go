package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rcd/agent/proc"
)

const (
	// reasonDrained is why a drained job ended.
	reasonDrained = "host drained"
	// drainAtOnce bounds the jobs that are ended at the same time.
	drainAtOnce = 64
	// shimExit is how long a shim may take to go after its job has ended.
	shimExit = 5 * time.Second
)

// ErrSurvivors says that processes of a drained job could not be ended.
var ErrSurvivors = errors.New("processes are left")

// Drain ends every job under a data directory with its whole process tree, and
// returns once they and their shims are gone. It works whether or not an agent
// runs there; outcomes stay on disk, for the agent to tell. The error joins
// what went wrong for each job: ErrSurvivors with pids, unreadable records, the
// end of ctx. A directory that does not exist holds no jobs.
func Drain(ctx context.Context, dataDir string, logger *slog.Logger) error {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return fmt.Errorf("find data directory: %w", err)
	}
	entries, err := os.ReadDir(filepath.Join(dataDir, jobsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex // guards errs
	var errs []error
	slots := make(chan struct{}, drainAtOnce)
	for _, e := range entries {
		if _, ok := parseKey(e.Name()); !ok {
			continue
		}
		dir := filepath.Join(dataDir, jobsDir, e.Name())
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if err := drainJob(ctx, dir, logger); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("drain job %s: %w", filepath.Base(dir), err))
			}
		})
	}
	wait.Wait()
	return errors.Join(append(errs, awaitShims(ctx, filepath.Join(dataDir, jobsDir)))...)
}

func drainJob(ctx context.Context, dir string, logger *slog.Logger) error {
	if _, err := os.Stat(filepath.Join(dir, ackedFile)); err == nil {
		return nil
	}
	h, err := adoptShim(dir, logger)
	if errors.Is(err, errNotBegun) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	h.Kill(reasonDrained)
	select {
	case <-h.Done():
	case <-ctx.Done():
		return fmt.Errorf("%w: shim %d with its job: %w", ErrSurvivors, h.Tree().Above.PID, ctx.Err())
	}
	if result, err := h.Result(); err != nil {
		return err
	} else if left := survivors(result); left != "" {
		return fmt.Errorf("%w: %s", ErrSurvivors, left)
	}
	return nil
}

// awaitShims waits until no shim of a directory below parent is left: one whose
// job has ended is gone a moment later.
func awaitShims(ctx context.Context, parent string) error {
	for deadline := time.Now().Add(shimExit); ; {
		all, err := shims()
		if err != nil {
			return err
		}
		left := proc.ID{}
		for dir, id := range all {
			if filepath.Dir(dir) == parent {
				left = id
			}
		}
		if left.Zero() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: shim %d", ErrSurvivors, left.PID)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
