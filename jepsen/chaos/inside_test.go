package chaos

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exitOf runs `rc args…` to its end.
func (c *Cluster) exitOf(stdin string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd, out, said := c.RC(ctx, args...)
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("rc %q: %v", args, err)
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

func TestSeveralCommandsRunInAHoldAtOnceAndAllEndWithIt(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	hold := c.submit("hold", "box:gpu0", "--ttl", "1h", "--reason", "test", "--detach")

	// Three that meet: none can end before all of them run.
	type end struct {
		n           int
		out, stderr string
		code        int
	}
	dir := t.TempDir()
	ends := make(chan end, 3)
	for n := range 3 {
		go func() {
			script := fmt.Sprintf("touch %[1]s/%[2]d; until [ -e %[1]s/0 ] && [ -e %[1]s/1 ] && [ -e %[1]s/2 ]; do sleep 0.1; done; "+
				"read line; echo out %[2]d $line $RC_HOLD_ID; echo err %[2]d >&2; exit %[2]d", dir, n)
			cmd, out, said := c.RC(ctx, "exec", hold, "--", "sh", "-c", script)
			cmd.Stdin = strings.NewReader(fmt.Sprintf("in%d\n", n))
			_ = cmd.Run()
			ends <- end{n, out.String(), said.String(), cmd.ProcessState.ExitCode()}
		}()
	}
	for range 3 {
		e := <-ends
		if out, said := fmt.Sprintf("out %d in%[1]d %s\n", e.n, hold), fmt.Sprintf("err %d\n", e.n); e.out != out || e.stderr != said || e.code != e.n {
			t.Errorf("%d: exit code %d, stdout %q, stderr %q", e.n, e.code, e.out, e.stderr)
		}
	}

	// A program that is not there, an empty stdin, and the device as the hold's name.
	if _, said, code := c.exitOf("", "exec", hold, "--", "no-such-program-here"); code != 127 {
		t.Errorf("exit code %d, stderr %q", code, said)
	}
	if out, said, code := c.exitOf("", "exec", "box:gpu0", "--", "cat"); code != 0 || out != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, said)
	}
	if out, said, code := c.exitOf("a\nb\n", "exec", "box:gpu0", "--", "cat"); code != 0 || out != "a\nb\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, said)
	}
	if _, said, code := c.exitOf("", "exec", "--as", "eve", hold, "--", "true"); code != 77 {
		t.Errorf("exit code %d of a stranger, stderr %q", code, said)
	}

	// Ctrl-C ends one and leaves the hold and the others.
	shell := c.sit(ctx, t, "exec", "--tty", hold)
	if _, err := shell.WriteString("echo two$((1+1))\r"); err != nil {
		t.Fatal(err)
	}
	shell.waitFor(t, c, "two2")
	kept := c.submit("run", "--in", hold, "--detach", "--", "sh", "-c", "echo kept; exec sleep 1000")
	one := c.start("exec", hold, "--", "sh", "-c", "echo begun; exec sleep 1000")
	one.says("begun")
	one.interrupt()
	one.exits(130, "; hold "+hold+" goes on")
	c.state(kept, "running")
	c.state(hold, "running")

	// The leader dies, and nothing in the hold does.
	dead := c.Leader()
	dead.End(syscall.SIGKILL)
	if out, said, code := c.exitOf("", "exec", hold, "--", "echo", "through"); code != 0 || out != "through\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, said)
	}
	dead.Start(t)
	c.WaitVoters()
	c.state(kept, "running")

	// The end of the hold is the end of all, and then the device is free.
	c.MustRC("release", hold)
	if code := shell.exit(t); code == 0 {
		t.Errorf("the shell ended with 0, stderr %s", shell.stderr)
	}
	c.state(kept, "killed")
	if text := c.MustRC("describe", kept); !strings.Contains(text, "hold "+hold+" ended") {
		t.Errorf("rc describe of what ran inside:\n%s", text)
	}
	if _, said, code := c.exitOf("", "exec", hold, "--", "true"); code != 3 {
		t.Errorf("exit code %d in a hold that has ended, stderr %q", code, said)
	}
	if out := c.MustRC("run", "-d", "box:gpu0", "--timeout", "1m", "--", "echo", "free"); out != "free\n" {
		t.Errorf("the device after it: %q", out)
	}
}

func TestAHoldWithASessionEndsWithItsClientAndNotBefore(t *testing.T) {
	const bound = 15 * time.Second
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	events := c.start("events")
	hold := c.start("hold", "box:gpu0", "--ttl", "1h", "--reason", "test", "--session", "--session-timeout", bound.String())
	hold.says("box:gpu0 is yours until ")
	c.submit("run", "--in", "j-1", "--detach", "--", "sleep", "1000")

	// While its client lives it outlives the bound, and the leader.
	begun := time.Now()
	dead := c.Leader()
	dead.End(syscall.SIGKILL)
	dead.Start(t)
	c.WaitVoters()
	c.Eventually("twice the bound", func() error {
		if since := time.Since(begun); since < 2*bound {
			return fmt.Errorf("%v", since)
		}
		return nil
	})
	c.state("j-1", "running")

	killed := time.Now()
	if err := hold.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = hold.cmd.Wait()
	events.says("hold.session_silent")
	c.state("j-1", "running")
	c.state("j-1", "killed")
	// Its last word was at most a third of the bound before its end.
	if lived := time.Since(killed); lived < bound*2/3-time.Second {
		t.Errorf("the hold ended %v after its client", lived)
	}
	c.state("j-2", "killed")
	if text := c.MustRC("describe", "j-1"); !strings.Contains(text, "the session of its client has ended") {
		t.Errorf("rc describe of the hold:\n%s", text)
	}
	if out := c.MustRC("run", "-d", "box:gpu0", "--timeout", "1m", "--", "echo", "free"); out != "free\n" {
		t.Errorf("the device after it: %q", out)
	}

	// The end of the terminal gives it back at once.
	next := c.start("hold", "box:gpu0", "--ttl", "1h", "--reason", "next", "--session", "--session-timeout", "1h")
	next.says("box:gpu0 is yours until ")
	_ = next.cmd.Process.Signal(syscall.SIGHUP)
	next.exits(130, " is released")
	events.interrupt()
	events.exits(130, "")

	// So does the end of the command that it was for.
	if out, said, code := c.exitOf("", "hold", "box:gpu0", "--ttl", "1h", "--reason", "command", "--session", "--", "true"); code != 0 || !strings.Contains(said, " is released") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, said)
	}
}
