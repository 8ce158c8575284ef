package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespaceName says that this process is a test's own run in a namespace.
const namespaceName = "RC_TEST_NAMESPACE"

// inNamespace returns true in a process that is the first of a PID namespace,
// with nobody else in it. In the test that calls it first it runs that test
// again in such a process, takes over what came of it, and returns false.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceName) != "" {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), mountProc("")); err != nil {
			t.Skip("cannot mount here: ", err)
		}
		return true
	}
	cmd := exec.Command(executable(t), "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceName+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM):
		t.Skip("no PID namespace can be made here: ", err)
	case err != nil:
		t.Errorf("in the namespace: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("in the namespace:\n%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("in the namespace nothing ran:\n%s", out)
	}
	return false
}

func mountProc(options string) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, options); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// bystander starts a process that stays until the test ends, and returns its
// end.
func bystander(t *testing.T, env ...string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := false
	end = func() {
		if !over {
			over = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}
