package shim

import (
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

	"rcd/agent/proc"
)

// namespaceName makes the test binary the first process of a pid namespace, in which a pid can be had again at once.
const namespaceName = "RC_TEST_NAMESPACE"

// skipCode is how that binary ends if it cannot test there.
const skipCode = 77

func runInNamespace(m *testing.M) int {
	_ = os.Unsetenv(namespaceName) // what it starts are shims and jobs like any other
	inNamespace = true
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

var inNamespace bool

// again runs the calling test once more in a pid namespace of its own, outside of which it returns false.
func again(t *testing.T) bool {
	t.Helper()
	if inNamespace {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=120s")
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

// strangerWith starts a process that has nothing to do with any job and gets that pid.
func strangerWith(t *testing.T, id proc.ID) proc.ID {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			t.Fatal(err)
		}
		later := uint64(now.Nano())/uint64(10*time.Millisecond) > id.Start+1 // another start time than the one that had the pid
		if _, err := proc.Identify(id.PID); later && errors.Is(err, proc.ErrGone) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v is not reaped", id)
		}
	}
	for range 100 { // a thread of the shim may take the pid first
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(id.PID-1)), 0); err != nil {
			t.Skipf("this kernel does not let a pid be chosen: %v", err)
		}
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = endChild(pid) })
		if pid != id.PID {
			continue
		}
		stranger, err := proc.Identify(pid)
		if err != nil || stranger.Start == id.Start {
			t.Fatalf("%v, then %v: %v", id, stranger, err)
		}
		return stranger
	}
	t.Skipf("the pid of %v is not to be had again", id)
	return proc.ID{}
}

// reapAll takes the exit of every orphan, as the first process of a namespace has to, until nobody has one of the ids.
func reapAll(t *testing.T, ids ...proc.ID) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		left := false
		for _, id := range ids {
			_, _ = unix.Wait4(id.PID, nil, unix.WNOHANG, nil)
			left = left || proc.Exists(id)
		}
		if !left {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v are still there", ids)
		}
	}
}

func TestStrangersThatHaveThePidsOfADeadShimAndItsJobAreLeftAlone(t *testing.T) {
	t.Parallel()
	if !again(t) {
		return
	}
	cfg := job(t, "echo ready; exec sleep 60")
	h, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	job, shim := awaitOutput(t, h, 6).Job, shimOf(h)
	h.Close() // the agent goes down, and then the shim and the job do
	for _, id := range []proc.ID{shim, job} {
		if err := proc.Signal(id, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	reapAll(t, shim, job)
	strangers := []proc.ID{strangerWith(t, shim), strangerWith(t, job)}
	next, err := Adopt(cfg.Dir, cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	next.Kill("cancelled")
	if r := await(t, next); r.Outcome != SupervisorDied || !r.Clean() {
		t.Errorf("result %+v", r)
	}
	next.reap()
	for _, id := range strangers {
		if !proc.Alive(id) {
			t.Errorf("%v was ended in the place of one that had its pid", id)
		}
	}
}

func TestStrangerThatHasThePidOfAnEndedJobOutlivesItsSweep(t *testing.T) {
	t.Parallel()
	if !again(t) {
		return
	}
	// The job leaves somebody behind that does not obey, so that the sweep goes on when the main process has been reaped.
	cfg := acting(t, "setsid leave,deaf") // in another session: the number of one is not given out while anybody is in it
	cfg.Spec.Grace = 2 * time.Second
	h := start(t, cfg)
	main := awaitOutput(t, h, 6).Job
	stranger := strangerWith(t, main)
	wantEnd(t, await(t, h), Exited, 7, "")
	if !proc.Alive(stranger) {
		t.Errorf("%v was ended in the place of the job", stranger)
	}
}
