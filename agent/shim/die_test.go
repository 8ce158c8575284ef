package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

func TestShimKilledAtAnyPointLeavesNobodyAndStartsNothingTwice(t *testing.T) {
	for _, c := range []struct {
		name  string
		point string // see dieAt
		kill  bool   // the job is being killed meanwhile
	}{
		{"as soon as it has the lock", lockName, false},
		{"when it listens", socketName, false},
		{"when it has put down that the job begins", processName, false},
		{"when it has made the spool", outputName, false},
		{"when the cgroup is there", cgroupFile, false},
		{"when the job runs", "job", false},
		{"when the job has done something", "ran", false},
		{"when the job has been told to go", "told", true},
		{"when the result is about to be written", resultName + ".*", true},
		{"when the result is there", resultName, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.point == cgroupFile {
				needsCgroup(t)
			}
			cfg := job(t, `cd "$DIR"; echo x >> runs; setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
trap 'mkdir told; exit 5' TERM; mkdir ran; while :; do sleep 0.01; done`)
			cfg.Spec.Env = append(cfg.Spec.Env, "DIR="+cfg.Dir)
			cfg.shimEnv = append(cfg.shimEnv, misbehaviourName+"=die "+c.point)
			h, err := Start(cfg)
			if err != nil {
				// Nothing has begun, and it is the next shim's to begin.
				if _, adoptErr := Adopt(cfg.Dir, cfg.Log); !errors.Is(adoptErr, ErrNotBegun) {
					t.Fatalf("Start: %v; then Adopt: %v", err, adoptErr)
				}
				cfg.shimEnv = nil
				h = start(t, cfg)
				awaitRuns(t, cfg.Dir)
				h.Kill("cancelled")
				wantEnd(t, await(t, h), Killed, 5, "cancelled")
			} else {
				t.Cleanup(func() { finish(t, h) })
				if c.kill {
					awaitRuns(t, cfg.Dir)
					h.Kill("cancelled")
				}
				r := await(t, h)
				died := r.Outcome == SupervisorDied && r.ExitCode == nil && r.Reason == reasonShimDied
				kept := c.kill && r.Outcome == Killed && r.ExitCode != nil && *r.ExitCode == 5
				if !died && !kept || !r.Clean() {
					t.Errorf("result %+v", r)
				}
			}
			raw, _ := os.ReadFile(filepath.Join(cfg.Dir, "runs"))
			if n := strings.Count(string(raw), "x"); n > 1 {
				t.Errorf("the job ran %d times", n)
			}
			wantNobody(t, h)
			if path, err := cgroupOf(h.dir); err != nil {
				t.Error(err)
			} else if _, err := os.Stat(path); path != "" && !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", path, err)
			}
		})
	}
}

func awaitRuns(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the job does not run")
		}
	}
}

// A shim that cannot get memory ends itself, whatever it is doing: that is what a Go program does. This one runs into a bound on its own address space.
func TestShimThatRunsOutOfMemoryIsADeadShim(t *testing.T) {
	t.Parallel()
	cfg := acting(t, "wait,setsid,leave,deaf")
	cfg.shimEnv = append(cfg.shimEnv, misbehaviourName+"=eat address-space")
	h := start(t, cfg)
	escapee := last(t, h)
	starve(t, h)
	wantStarved(t, h, escapee)
	raw, _ := os.ReadFile(filepath.Join(h.dir, logName))
	if text := string(raw); !strings.Contains(text, "fatal error: ") && !strings.Contains(text, "failed to allocate") { // the latter with -race
		t.Errorf("it ended for another reason: %s", raw)
	}
}

// The kernel ends a process of a memory cgroup that is full: the largest, corrected by the scores, which a test cannot lower everywhere.
func TestKernelOutOfMemoryEndsAHungryJobAndItsShimTells(t *testing.T) {
	group := memoryCgroup(t)
	cfg := acting(t, "hungry")
	h := start(t, cfg)
	status := awaitOutput(t, h, 6)
	group.take(t, shimOf(h), status.Job)
	if err := proc.Signal(status.Job, unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, await(t, h), Exited, 137, "")
}

func TestKernelOutOfMemoryThatTakesTheShimEndsTheJob(t *testing.T) {
	group := memoryCgroup(t)
	cfg := acting(t, "wait,setsid,leave,deaf")
	cfg.shimEnv = append(cfg.shimEnv, misbehaviourName+"=eat")
	h := start(t, cfg)
	escapee := last(t, h)
	group.take(t, shimOf(h))
	starve(t, h)
	wantStarved(t, h, escapee)
}

func starve(t *testing.T, h *Handle) {
	t.Helper()
	if err := proc.Signal(shimOf(h), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
}

func wantStarved(t *testing.T, h *Handle, escapee proc.ID) {
	t.Helper()
	job := h.Status().Job
	if r := await(t, h); r.Outcome != SupervisorDied || r.ExitCode != nil || !r.Clean() {
		t.Errorf("result %+v", r)
	}
	if proc.Alive(job) || proc.Alive(escapee) {
		t.Error("the job still runs")
	}
	wantNobody(t, h)
}

// memory is a cgroup with a bound on its memory, of version 1 or 2.
type memory string

// memoryBound is more than a shim takes and less than a second's allocations.
const memoryBound = "100000000"

// memoryCgroup makes one below the test's own, or skips the test.
func memoryCgroup(t *testing.T) memory {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	var problems []error
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, try := range []struct{ controller, mount, bound string }{
			{"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"", "/sys/fs/cgroup", "memory.max"}, {"", "/sys/fs/cgroup/unified", "memory.max"},
		} {
			if len(fields) != 3 || fields[1] != try.controller {
				continue
			}
			path := filepath.Join(try.mount, fields[2], "rc-test-"+strconv.Itoa(os.Getpid())+"-"+strings.ToLower(t.Name()))
			if err := os.Mkdir(path, 0o755); err != nil {
				problems = append(problems, err)
				continue
			}
			t.Cleanup(func() {
				for deadline := time.Now().Add(10 * time.Second); unix.Rmdir(path) != nil; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Errorf("%s does not go", path)
						return
					}
				}
			})
			if err := os.WriteFile(filepath.Join(path, try.bound), []byte(memoryBound), 0); err != nil {
				problems = append(problems, err)
				continue
			}
			return memory(path)
		}
	}
	t.Skipf("no memory cgroup can be made here: %v", errors.Join(problems...))
	return ""
}

func (m memory) take(t *testing.T, processes ...proc.ID) {
	t.Helper()
	for _, id := range processes {
		if err := os.WriteFile(filepath.Join(string(m), "cgroup.procs"), []byte(strconv.Itoa(id.PID)), 0); err != nil {
			t.Skipf("nobody can be moved to another memory cgroup here: %v", err)
		}
	}
}
