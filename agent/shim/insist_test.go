package shim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// stoppedBound is loose: what has no way out takes for ever.
const stoppedBound = 25 * time.Second

func TestStoppedShimIsMadeToGoOnAndEndsItsJobItself(t *testing.T) {
	for _, c := range []struct {
		name   string
		midway bool // stopped when it had taken the kill
		code   int
	}{{"before the kill", false, 143}, {"in the middle of the kill", true, 137}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			part := "wait,setsid,leave,deaf"
			if c.midway {
				part = "deaf,setsid,leave,deaf"
			}
			h := start(t, acting(t, part))
			escapee := last(t, h)
			if c.midway {
				h.Kill("cancelled")
				awaitKilling(t, h)
			}
			stopShim(t, h)
			began := time.Now()
			h.Kill("cancelled")
			wantEnd(t, await(t, h), Killed, c.code, "cancelled")
			if took := time.Since(began); took > stoppedBound {
				t.Errorf("took %v", took)
			}
			if proc.Alive(escapee) {
				t.Errorf("%v still runs", escapee)
			}
			wantNobody(t, h)
		})
	}
}

func TestShimThatStaysStoppedIsEndedWithItsWholeTree(t *testing.T) {
	for _, part := range []string{"wait,setsid,leave,deaf", "naked,leave,deaf"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			cfg := acting(t, part)
			cfg.shimEnv = append(cfg.shimEnv, wedgeName+"=1", "GODEBUG=asyncpreemptoff=1")
			h := start(t, cfg)
			job, escapee := h.Status().Job, last(t, h)
			wedge(t, h)
			began := time.Now()
			h.Kill("cancelled")
			r := await(t, h)
			if r.Outcome != SupervisorDied || r.ExitCode != nil || r.Reason != reasonPutDown || !r.Clean() {
				t.Errorf("result %+v", r)
			}
			if took := time.Since(began); took > stoppedBound {
				t.Errorf("took %v", took)
			}
			if proc.Alive(job) || proc.Alive(escapee) {
				t.Error("the job still runs")
			}
			wantNobody(t, h)
		})
	}
}

// A shim whose disk is full cannot write the result down, but it has it.
func TestShimThatAnswersKeepsTheExitCodeOfAnEndedJob(t *testing.T) {
	h := start(t, job(t, "echo ready; read x < "+fifo(t)+"; exit 7"))
	status := awaitOutput(t, h, 6)
	if h.stuck(t.Context(), time.Now()) {
		t.Error("stuck as soon as it is asked")
	}
	if !h.stuck(t.Context(), time.Now().Add(-time.Hour)) {
		t.Error("not stuck with a job that is there an hour after the kill")
	}
	inTheWay := filepath.Join(h.dir, resultName)
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := proc.Signal(status.Job, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); proc.Alive(status.Job) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	h.Kill("cancelled")
	if h.stuck(t.Context(), time.Now().Add(-time.Hour)) {
		t.Error("stuck, though all that is left to do is to write the result")
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, await(t, h), Exited, 137, "")
}

func TestShimThatStopsAfterTheResultIsEndedToo(t *testing.T) {
	t.Parallel()
	h := start(t, job(t, "echo ready; exec sleep 60"))
	status := awaitOutput(t, h, 6)
	stopShim(t, h)
	if err := proc.Signal(status.Job, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := writeResult(h.dir, Result{Outcome: Exited, Reason: "as if by the shim"}); err != nil {
		t.Fatal(err)
	}
	h.reap()
	wantNobody(t, h)
	if r := await(t, h); r.Outcome != Exited {
		t.Errorf("result %+v", r)
	}
}

func TestHandleOfAStoppedShimClosesAtOnce(t *testing.T) {
	cfg := job(t, "echo ready; exec sleep 60")
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	stopShim(t, h)
	other, err := Adopt(cfg.Dir, cfg.Log) // its greeting never comes
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	other.Close()
	if took := time.Since(began); took > readTimeout/3 {
		t.Errorf("took %v", took)
	}
	if err := proc.Signal(shimOf(h), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func TestNobodyIsSignalledForAShimOfAnEarlierBoot(t *testing.T) {
	h := start(t, job(t, "exec sleep 60"))
	if h.livingShim() != shimOf(h) {
		t.Fatalf("shim %v, want %v", h.livingShim(), shimOf(h))
	}
	old := newHandle(h.dir, h.order, nil)
	old.order.Boot, old.shim = "before", shimOf(h)
	if id := old.livingShim(); !id.Zero() {
		t.Errorf("%v would be signalled", id)
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func awaitKilling(t *testing.T, h *Handle) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for status := h.Status(); status.Killing == ""; {
		var err error
		if status, err = h.Wait(ctx, status); err != nil || status.Phase == Ended {
			t.Fatalf("waiting for the kill to be taken: %+v, %v", status, err)
		}
	}
}

func stopShim(t *testing.T, h *Handle) {
	t.Helper()
	if err := proc.Signal(shimOf(h), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// wedgeName makes a shim of this test binary stop for good at a SIGWINCH.
const wedgeName = "RC_TEST_WEDGE"

// wedgeAtSignal lets nothing of this process run any more once SIGWINCH came: a SIGCONT is answered by a SIGSTOP. It needs GODEBUG=asyncpreemptoff=1.
func wedgeAtSignal() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGWINCH)
	go func() {
		<-asked
		runtime.GOMAXPROCS(1)
		for pid := uintptr(os.Getpid()); ; { // raw, and on the only processor: no other goroutine gets a turn
			_, _, _ = unix.RawSyscall(unix.SYS_KILL, pid, uintptr(unix.SIGSTOP), 0)
		}
	}()
}

// wedge returns once the shim has stopped.
func wedge(t *testing.T, h *Handle) {
	t.Helper()
	if err := proc.Signal(shimOf(h), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", shimOf(h).PID)); bytes.Contains(raw, []byte(") T ")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the shim does not stop")
		}
	}
}
