package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// namespaceName makes the test binary the first process of a pid namespace, which runs the tests that only make sense there.
const namespaceName = "RC_TEST_NAMESPACE"

// runInNamespace gives the namespace a /proc of its own, and its tests the word that they are in there.
func runInNamespace(m *testing.M) int {
	err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err != nil {
		fmt.Println("no /proc in the namespace:", err)
		return skipCode
	}
	return m.Run()
}

// skipCode is how the binary in the namespace ends if it cannot test there.
const skipCode = 77

// inNamespace runs the calling test once more, in a small pid namespace, where it returns true. Outside it returns false, after that has passed.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceName) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), namespaceName+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Setsid: true}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, os.ErrPermission), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		t.Skipf("no pid namespace to be had here: %v", err)
	case errors.As(err, &exit) && exit.ExitCode() == skipCode:
		t.Skipf("no pid namespace to test in: %s", out)
	case err != nil:
		t.Fatalf("in the namespace: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("in the namespace: %s", out)
	}
	return false
}

const lastPID = "/proc/sys/kernel/ns_last_pid"

// child starts a process that waits; nobody else reaps it. With a pid, that is the one it gets.
func child(t *testing.T, pid int, env ...string) ID {
	t.Helper()
	if pid > 0 {
		if err := os.WriteFile(lastPID, []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("this kernel does not let a pid be chosen: %v", err)
		}
	}
	got, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{Env: env, Sys: &unix.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := Identify(got)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func reap(t *testing.T, id ID) unix.WaitStatus {
	t.Helper()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(id.PID, &status, 0, nil); err == nil {
			return status
		} else if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// nextTick waits until a process that starts now cannot have the start time of id.
func nextTick(t *testing.T, id ID) {
	t.Helper()
	eventually(t, func() bool {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			t.Fatal(err)
		}
		return uint64(now.Nano())/uint64(10*time.Millisecond) > id.Start+1
	})
}

func TestSignalToAnEndedProcessNeverReachesTheOneThatHasItsPid(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	old := child(t, 0, "RC_JOB_ID=j-7", "RC_JOB_MARK=x")
	if err := Signal(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reap(t, old)
	nextTick(t, old)
	stranger := child(t, old.PID)
	if stranger.PID != old.PID || stranger.Start == old.Start {
		t.Fatalf("%v, then %v: not the same pid", old, stranger)
	}
	below := child(t, 0) // a process that looks as if it were the job's
	for name, act := range map[string]func() error{
		"signal":               func() error { return Signal(old, unix.SIGKILL) },
		"signal without pidfd": func() error { return signalChecked(old, unix.SIGKILL) },
		"group":                func() error { g := openGroup(old); defer g.close(); g.kill(); return ErrGone },
	} {
		if err := act(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v, want ErrGone", name, err)
		}
	}
	for _, target := range []Target{
		{Root: old}, {Above: old}, {Root: old, Above: old, Marks: []string{"RC_JOB_ID=j-7", "RC_JOB_MARK=x"}},
	} {
		left, err := KillTree(context.Background(), target, time.Millisecond)
		if err != nil || len(left) > 0 {
			t.Errorf("%+v: left %+v, %v", target, left, err)
		}
	}
	for _, id := range []ID{stranger, below} {
		if !Alive(id) {
			t.Errorf("%v was ended in the place of %v", id, old)
		}
	}
}

func TestSignalsInTheMomentOfReuseHitNobodyElse(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for range 100 {
		old := child(t, 0)
		nextTick(t, old)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { // from before the end of the one till after the start of the other
			defer close(done)
			for {
				_ = Signal(old, unix.SIGTERM)
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		if status := reap(t, old); status.Signal() != unix.SIGTERM {
			t.Fatalf("ended by %v", status)
		}
		stranger := child(t, old.PID)
		if stranger.PID != old.PID {
			t.Fatalf("%v, then %v: not the same pid", old, stranger)
		}
		close(stop)
		<-done
		if err := Signal(stranger, unix.SIGKILL); err != nil {
			t.Fatalf("it ended before its own signal came: %v", err)
		}
		if status := reap(t, stranger); status.Signal() != unix.SIGKILL {
			t.Fatalf("ended by %v, which was meant for the one before", status.Signal())
		}
	}
}
