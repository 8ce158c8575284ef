package shim

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcd/agent/proc"
)

// The executable may have been replaced by a later release under a running agent, and its shim may say what this one does not understand.
func TestAShimThatIsNotUnderstoodDoesNotHoldTheStart(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"begun": true, "not begun": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := job(t, "true")
			pid := filepath.Join(t.TempDir(), "pid")
			script := "#!/bin/sh\necho $$ > " + pid + "\n"
			if begins {
				script += "echo > " + filepath.Join(cfg.Dir, processName) + "\n"
			}
			cfg.Exec = filepath.Join(t.TempDir(), "rcd")
			if err := os.WriteFile(cfg.Exec, []byte(script+"echo 'a word of tomorrow' >&3\nexec sleep 60\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			over := make(chan error, 1)
			go func() { _, err := Start(cfg); over <- err }()
			select {
			case err := <-over:
				if err == nil {
					t.Error("no error")
				}
			case <-time.After(30 * time.Second):
				t.Error("the start waits for the end of the shim")
			}
			shim := childIn(t, pid)
			if alive := proc.Alive(shim); alive != begins {
				t.Errorf("begun %v, and it lives %v: what has not begun must not begin after the start has failed", begins, alive)
			}
			if proc.Alive(shim) {
				_ = endChild(shim.PID)
			}
		})
	}
}

// childIn returns the process that a file names, zero if it is gone.
func childIn(t *testing.T, path string) proc.ID {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := proc.Identify(pid)
	if err != nil {
		return proc.ID{}
	}
	return id
}
