package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"rcd/agent/proc"
	"rcd/agent/shim"
)

// scriptsDir is where the data directory says which scripts run: one file for
// each, with the run's mark as its name, and in it the boot ID and the device.
const scriptsDir = "scripts"

// scripts knows which of the operator's executables run now: they are no
// survivors of a job, though they carry its ID, and none may run beside the
// next one when the agent was killed under it.
type scripts struct {
	host, dir, boot string
	log             *slog.Logger
	cuda            func(devices []string) map[string]string // what shows a program the GPUs of devices

	mu      sync.Mutex             // guards what follows
	running map[string]proc.Target // by mark
}

func newScripts(host, dataDir, boot string, cuda func([]string) map[string]string, log *slog.Logger) *scripts {
	return &scripts{host: host, dir: filepath.Join(dataDir, scriptsDir), boot: boot, cuda: cuda, log: log, running: map[string]proc.Target{}}
}

// record puts a run on disk before it begins, so that the next agent knows of it
// however this one ends. It is not synced: nothing is left to end after a power
// cut. The returned function takes the run off again.
func (s *scripts) record(x script, mark string) (forget func()) {
	path := filepath.Join(s.dir, mark)
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(s.boot+" "+x.device+"\n"), 0o600)
	}
	if err != nil {
		s.log.Warn("a script runs and is not on record: should the agent be killed, it may run on beside the next one", "script", x.path, "error", err)
	}
	return func() {
		s.mu.Lock()
		delete(s.running, mark)
		s.mu.Unlock()
		_ = os.Remove(path) // what stays names nobody: harmless
	}
}

// target is what belongs to a run. root is zero if it is not known.
func target(root proc.ID, mark string) proc.Target {
	return proc.Target{Root: root, Marks: []string{scriptMark + "=" + mark}}
}

// runs makes the processes of a run known.
func (s *scripts) runs(mark string, t proc.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[mark] = t
}

// trees returns the processes of all scripts.
func (s *scripts) trees() (trees []proc.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.running {
		trees = append(trees, t)
	}
	return trees
}

// endLeft ends the scripts that an agent which was killed has left running, and
// returns what could not be ended, by device. It takes a few seconds at most.
func (s *scripts) endLeft() map[string]string {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil // none has run yet
	}
	var wait sync.WaitGroup
	var mu sync.Mutex // guards stuck
	stuck := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		text, err := os.ReadFile(path)
		fields := strings.Fields(string(text))
		if err != nil || len(fields) != 2 || fields[0] != s.boot {
			_ = os.Remove(path)
			continue
		}
		wait.Go(func() {
			left := ended(context.Background(), target(proc.ID{}, e.Name()))
			if left == "" {
				_ = os.Remove(path)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			stuck[fields[1]] = joined(stuck[fields[1]], left)
		})
	}
	wait.Wait()
	return stuck
}

// tenantOf returns whose use of its devices a job belongs to: the hold's, if it
// runs inside one that is known.
func (a *agent) tenantOf(j *job) tenant {
	for _, k := range []key{{j.hold, j.lease}, j.key} {
		if spec, err := shim.Load(a.dirOf(k)); err == nil {
			return tenantIn(spec.Env)
		}
	}
	return tenant{}
}

// ended ends the processes of a run and names those that could not be ended, ""
// if it was seen to be gone.
func ended(ctx context.Context, t proc.Target) string {
	left, err := proc.KillTree(ctx, t, scriptGrace)
	var parts []string
	for _, p := range left {
		parts = append(parts, fmt.Sprintf("pid %d (%s)", p.PID, p.Command))
	}
	if err != nil {
		parts = append(parts, "not verified: "+err.Error())
	}
	return strings.Join(parts, ", ")
}

// endScripts ends what an agent that was killed has left running.
func (a *agent) endScripts() {
	for device, left := range a.scripts.endLeft() {
		a.unendable(device, "a script of the agent before this one", left)
	}
}

// unendable takes a device out of the pool because of a script's processes that
// nothing could end: they may be at the device.
func (a *agent) unendable(device, what, left string) {
	if err := a.fault([]string{device}, what+": processes could not be ended: "+left); err != nil {
		a.log.Error("fault of a device not on disk; it is said for as long as this agent runs", "device", device, "error", err)
	}
}
