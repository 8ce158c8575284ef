package chaos

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestAJobThatAsksIsWarnedBeforeItsLimit(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	script := `trap 'echo saving; exit 5' USR1; echo ready; while :; do sleep 0.05; done`
	cmd, stdout, stderr := c.RC(ctx, "run", "-d", "box:gpu0", "--max-runtime", "1h", "--grace-signal=SIGUSR1@59m56s", "--", "sh", "-c", script)
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 5 || stdout.String() != "ready\nsaving\n" {
		t.Errorf("exit code %d, stdout %q, stderr %s", code, stdout, stderr)
	}
	cmd, _, stderr = c.RC(ctx, "run", "-d", "box:gpu0", "--env", "RC_GRACE_SIGNAL=KILL", "--", "true")
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code == 0 || !strings.Contains(stderr.String(), "use TERM or USR1") {
		t.Errorf("a signal that warns nobody: exit code %d, stderr %s", code, stderr)
	}
}
