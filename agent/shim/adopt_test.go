package shim

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/spool"
)

func adopt(t *testing.T, cfg Config) *Handle {
	t.Helper()
	h, err := Adopt(cfg.Dir, cfg.Log)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	t.Cleanup(func() { finish(t, h) })
	return h
}

func TestAdoptFindsTheRunningJob(t *testing.T) {
	cfg := job(t, "echo ready; exec sleep 60")
	h := start(t, cfg)
	before := awaitOutput(t, h, 6)
	letGo(h)
	again := adopt(t, cfg)
	after := awaitOutput(t, again, 6)
	if before.Job != after.Job || after.Phase != Running || !proc.Alive(after.Job) || after.StartedAt.UnixNano() != before.StartedAt.UnixNano() {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	if s := again.Spec(); s.Lease != 9 || s.Command[2] != cfg.Spec.Command[2] {
		t.Errorf("spec %+v", s)
	}
	if session, err := unix.Getsid(after.Job.PID); err != nil || session != after.Job.PID {
		t.Errorf("the job is in session %d, %v; want its own", session, err)
	}
	again.Kill("cancelled")
	wantEnd(t, await(t, again), Killed, 143, "cancelled")
}

func TestJobOutlivesAKilledAgentAndItsExitCodeIsKept(t *testing.T) {
	for _, endsBefore := range []bool{false, true} {
		dir := t.TempDir()
		cfg := Config{Dir: filepath.Join(dir, "job")}
		release := filepath.Join(dir, "release")
		if err := unix.Mkfifo(release, 0o600); err != nil {
			t.Fatal(err)
		}
		agent := exec.Command(executable(t))
		agent.Env = append(os.Environ(), partName+"=agent "+cfg.Dir)
		agent.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		out, err := agent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "started ") {
			t.Fatalf("agent said %q", lines.Text())
		}
		// The whole process group, as a terminal or an init system would.
		if err := unix.Kill(-agent.Process.Pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = agent.Wait()
		goOn := func() {
			if err := os.WriteFile(release, []byte("go\n"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if endsBefore {
			goOn()
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				if _, err := readResult(cfg.Dir); err == nil {
					break
				} else if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
		}
		h := adopt(t, cfg)
		if !endsBefore {
			if s := awaitOutput(t, h, 6); s.Phase != Running {
				t.Fatalf("status %+v", s)
			}
			goOn()
		}
		wantEnd(t, await(t, h), Exited, 7, "")
		if all, _, _ := output(t, h); all != "ready\n" {
			t.Errorf("output %q", all)
		}
	}
}

func TestShimKilledMeansTreeKilledAndCodeUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		adopted bool // the agent was away when it happened
	}{{"while followed", false}, {"while the agent was away", true}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := acting(t, "wait,setsid,leave,deaf")
			h := start(t, cfg)
			status, escapee := awaitOutput(t, h, 6), last(t, h)
			if c.adopted {
				letGo(h)
			}
			if err := proc.Signal(shimOf(h), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if c.adopted {
				for deadline := time.Now().Add(5 * time.Second); proc.Alive(shimOf(h)) && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				h.reap()
				h = adopt(t, cfg)
			}
			r := await(t, h)
			all, _, _ := output(t, h)
			if r.Outcome != SupervisorDied || r.ExitCode != nil || r.Reason != reasonShimDied || !r.Clean() || r.OutputLength != int64(len(all)) || r.OutputDigest == "" {
				t.Fatalf("result %+v", r)
			}
			if proc.Alive(status.Job) || proc.Alive(escapee) {
				t.Error("the job still runs")
			}
			wantNobody(t, h)
			if !strings.HasPrefix(all, "ready\n") {
				t.Errorf("output %q", all)
			}
			// The verdict stands for whoever comes later.
			again := adopt(t, cfg)
			if r, err := again.Result(); err != nil || r.Outcome != SupervisorDied {
				t.Errorf("later: %+v, %v", r, err)
			}
		})
	}
}

func TestHostRestartIsADeadSupervisorWithNothingToKill(t *testing.T) {
	t.Parallel()
	for _, withProcess := range []bool{true, false} {
		cfg := job(t, "true")
		o, err := place(cfg.Dir, cfg.Spec.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		o.Boot = "before"
		if err := writeRecord(cfg.Dir, specName, kindSpec, o, durable); err != nil {
			t.Fatal(err)
		}
		if withProcess {
			self, _ := proc.Self() // must not be taken for the job
			rec := processRecord{Boot: "before", Shim: identityOf(self), Job: identityOf(self), StartedAt: 5}
			if err := writeRecord(cfg.Dir, processName, kindProcess, rec, replace); err != nil {
				t.Fatal(err)
			}
		}
		for _, again := range []func() (*Handle, error){
			func() (*Handle, error) { return Start(cfg) }, // never runs it: it may have run before
			func() (*Handle, error) { return Adopt(cfg.Dir, cfg.Log) },
		} {
			h, err := again()
			if err != nil {
				t.Fatal(err)
			}
			r := await(t, h)
			if r.Outcome != SupervisorDied || r.ExitCode != nil || r.Reason != reasonRestart {
				t.Fatalf("result %+v", r)
			}
			h.Close()
		}
	}
}

func TestStartTakesUpWhatAnAgentLeftBeforeItBegan(t *testing.T) {
	cfg := job(t, "exit 3")
	if _, err := Adopt(cfg.Dir, nil); !errors.Is(err, ErrNoJob) {
		t.Fatalf("empty directory: %v", err)
	}
	if _, err := place(cfg.Dir, cfg.Spec.withDefaults()); err != nil {
		t.Fatal(err)
	}
	if _, err := Adopt(cfg.Dir, cfg.Log); !errors.Is(err, ErrNotBegun) {
		t.Fatalf("error %v, want ErrNotBegun", err)
	}
	spec, err := Load(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Spec = spec
	wantEnd(t, await(t, start(t, cfg)), Exited, 3, "")
}

func TestManyStartsMakeOneProcess(t *testing.T) {
	cfg := job(t, "echo $$ >> pids; echo ready; exec sleep 60")
	cfg.Spec.Cwd = t.TempDir()
	var starts sync.WaitGroup
	handles := make([]*Handle, 8)
	for i := range handles {
		starts.Go(func() {
			h, err := Start(cfg)
			if err != nil {
				t.Errorf("Start: %v", err)
				return
			}
			handles[i] = h
		})
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	var ran proc.ID
	for _, h := range handles {
		status := awaitOutput(t, h, 6)
		for status.Job.Zero() { // its first output may be known before it is announced
			status, _ = h.Wait(t.Context(), status)
		}
		if ran.Zero() {
			ran = status.Job
		}
		if status.Job != ran {
			t.Errorf("jobs %v and %v", status.Job, ran)
		}
	}
	other := cfg
	other.Spec.Command = []string{"true"}
	if _, err := Start(other); !errors.Is(err, ErrOtherJob) {
		t.Errorf("another job in the directory: %v", err)
	}
	handles[0].Kill("cancelled")
	for _, h := range handles {
		wantEnd(t, await(t, h), Killed, 143, "cancelled")
	}
	for range 2 { // nor does it run again once it has ended
		h := start(t, cfg)
		wantEnd(t, await(t, h), Killed, 143, "cancelled")
	}
	for _, h := range handles {
		h.Close()
	}
	raw, err := os.ReadFile(filepath.Join(cfg.Spec.Cwd, "pids"))
	if err != nil || strings.Count(string(raw), "\n") != 1 {
		t.Fatalf("processes started: %q, %v", raw, err)
	}
	wantNobody(t, handles[0])
}

func TestDamagedRecordsAreNamedAndNothingIsTouched(t *testing.T) {
	t.Parallel()
	for _, name := range []string{specName, processName, resultName} {
		cfg := job(t, "exit 0")
		h := start(t, cfg)
		await(t, h)
		h.Close()
		if name == processName { // looked at only without a result
			if err := os.Remove(filepath.Join(cfg.Dir, resultName)); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(cfg.Dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for size := range len(whole) + 1 {
			damaged := append([]byte(nil), whole[:size]...)
			if size == len(whole) {
				damaged[size/2] ^= 4
			}
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Adopt(cfg.Dir, cfg.Log)
			var corrupt *CorruptError
			if !errors.Is(err, ErrCorrupt) || !errors.As(err, &corrupt) || corrupt.File != path {
				t.Fatalf("%s of %d bytes: %v", name, size, err)
			}
		}
		_ = os.WriteFile(path, whole, 0o600)
	}
}

func TestResultThatRotsIsAnErrorAndNotAGuess(t *testing.T) {
	cfg := job(t, "echo ready; exec sleep 60")
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	if err := os.WriteFile(filepath.Join(cfg.Dir, resultName), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = proc.Signal(shimOf(h), unix.SIGKILL)
	<-h.Done()
	if _, err := h.Result(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("error %v, want ErrCorrupt", err)
	}
	// The handle does not touch the tree then; the test does.
	if left, err := proc.KillTree(context.Background(), proc.Target{Marks: h.order.marks()}, 0); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

func TestFollowerNeedsNoPolling(t *testing.T) {
	cfg := acting(t, "lines 50000")
	h := start(t, cfg)
	r, err := h.OpenOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var status Status
	wakeups := 0
	for {
		status, err = h.Wait(ctx, status)
		if err != nil {
			t.Fatal(err)
		}
		wakeups++
		if status.Phase == Ended {
			r.Finish(status.Output)
		}
		for err == nil {
			_, err = r.Next()
		}
		if errors.Is(err, spool.ErrNothingYet) {
			if r.Offset() < status.Output {
				t.Fatalf("told of %d bytes, can read %d", status.Output, r.Offset())
			}
			continue
		}
		break
	}
	if r.Offset() != 288894 || wakeups > 500 {
		t.Errorf("read %d bytes in %d wake-ups", r.Offset(), wakeups)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	h := start(t, job(t, "exec sleep 60"))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	now := h.Status()
	if _, err := h.Wait(ctx, now); !errors.Is(err, context.DeadlineExceeded) {
		// Adopting the connection may tell once more what Start told.
		if _, err = h.Wait(ctx, h.Status()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if _, err := h.Result(); !errors.Is(err, ErrNotEnded) {
		t.Errorf("Result: %v", err)
	}
	if err := h.Remove(); !errors.Is(err, ErrNotEnded) {
		t.Errorf("Remove: %v", err)
	}
}

func TestShimIsNotEndedByTheUsualSignals(t *testing.T) {
	h := start(t, job(t, "echo ready; exec sleep 60"))
	awaitOutput(t, h, 6)
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGUSR1, unix.SIGPIPE} {
		if err := proc.Signal(shimOf(h), sig); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if s := h.Status(); s.Phase != Running || !proc.Alive(s.Job) || !proc.Alive(shimOf(h)) {
		t.Fatalf("status %+v", s)
	}
	session, err := unix.Getsid(shimOf(h).PID)
	if own, _ := unix.Getsid(0); err != nil || session == own || session != shimOf(h).PID {
		t.Errorf("the shim's session is %d, ours %d", session, own)
	}
	h.Kill("cancelled")
	wantEnd(t, await(t, h), Killed, 143, "cancelled")
}
