package proc

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leaderlessPart is a process whose first thread ends while others go on: the kernel shows it as a zombie that has no environment.
const leaderlessPart = "leaderless"

func init() {
	if os.Getenv(partName) != leaderlessPart {
		return
	}
	go time.Sleep(time.Minute) // somebody to go on
	// The first thread is this one until init is over.
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// startLeaderless returns such a process.
func startLeaderless(t *testing.T, env ...string) ID {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(env, partName+"="+leaderlessPart)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = Signal(id, unix.SIGKILL)
		_ = cmd.Wait()
	})
	eventually(t, func() bool {
		p, err := readStat(id.PID)
		return err == nil && p.state == 'Z' && p.running()
	})
	return id
}

func TestProcessWhoseFirstThreadHasEndedIsKnownByItsEnvironment(t *testing.T) {
	marks := []string{"RC_JOB_ID=j-proc-leaderless", "RC_JOB_MARK=x"}
	id := startLeaderless(t, marks...)
	check, err := Survivors(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(check.Found, func(p Process) bool { return p.ID == id }) {
		t.Errorf("%v is no survivor: %+v", id, check)
	}
	if left, err := KillTree(context.Background(), Target{Marks: marks}, 0); err != nil || len(left) > 0 || Alive(id) {
		t.Errorf("left %+v, %v; alive: %v", left, err, Alive(id))
	}
}

func TestStrangerWhoseFirstThreadHasEndedKeepsNoDeviceOut(t *testing.T) {
	id := startLeaderless(t)
	check, err := Survivors(nil, "")
	if err != nil || os.Getuid() == 0 && !check.Checked {
		t.Errorf("not checked because of %s, %v", check.Unreadable, err)
	}
	if !Alive(id) {
		t.Error("it has ended")
	}
}
