package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// follower is an rc whose output grows in a file.
type follower struct {
	name   string
	cmd    *exec.Cmd
	out    *countingFile
	stderr interface{ String() string }
	done   chan error
}

func (c *Cluster) follower(ctx context.Context, t *testing.T, args ...string) *follower {
	t.Helper()
	f := &follower{name: "rc " + strings.Join(args[:min(len(args), 3)], " "), out: newFile(t, "out"), done: make(chan error, 1)}
	cmd, _, stderr := c.RC(ctx, args...)
	f.cmd, f.stderr, cmd.Stdout = cmd, stderr, f.out.File
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.done <- cmd.Wait() }()
	return f
}

// TestAJobSilentForMinutesEndsForRunAttachAndLogs kills the leader in the
// silence of a job. By default that lasts seconds; jepsen/bubble has the
// minutes in virtual time, and -chaos.long waits for them.
func TestAJobSilentForMinutesEndsForRunAttachAndLogs(t *testing.T) {
	silence := 10 * time.Second
	if *long {
		silence = 3 * time.Minute
	}
	c := Start(t, bin, Options{Controllers: 3, Devices: 2})
	ctx, cancel := context.WithTimeout(context.Background(), silence+3*time.Minute)
	defer cancel()
	gate := filepath.Join(t.TempDir(), "gate")
	script := func(code int) []string {
		return []string{"--", "sh", "-c", fmt.Sprintf("echo first; while [ ! -e %s ]; do sleep 0.2; done; echo last; exit %d", gate, code)}
	}
	run := c.follower(ctx, t, append([]string{"run", "-d", "box:gpu0"}, script(7)...)...)
	screen := c.sit(ctx, t, append([]string{"run", "--tty", "-d", "box:gpu1"}, script(6)...)...)
	screen.waitFor(t, c, "first")
	has := func(f *follower, text string) {
		t.Helper()
		c.Eventually(fmt.Sprintf("%q from %s", text, f.name), func() error {
			got, err := os.ReadFile(f.out.Name())
			if err != nil || string(got) != text {
				return fmt.Errorf("%q, %v, stderr %s", got, err, f.stderr)
			}
			return nil
		})
	}
	has(run, "first\n")
	plain, onTTY := "", ""
	for _, line := range strings.Split(c.MustRC("ps"), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[1] == "box:gpu0" {
			plain = words[0]
		} else if len(words) > 1 && words[1] == "box:gpu1" {
			onTTY = words[0]
		}
	}
	logs := c.follower(ctx, t, "logs", "-f", plain)
	attach := c.follower(ctx, t, "attach", onTTY)
	look := c.follower(ctx, t, "attach", plain)
	has(logs, "first\n")
	has(attach, "first\r\n")
	has(look, "first\n")

	// The silence itself is the experiment.
	time.Sleep(silence / 2)
	old := c.Leader()
	old.End(syscall.SIGKILL)
	old.Start(t)
	time.Sleep(silence / 2)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		*follower
		code int
		text string
	}{{run, 7, "first\nlast\n"}, {logs, 0, "first\nlast\n"}, {look, 0, "first\nlast\n"}, {attach, 0, "first\r\nlast\r\n"}} {
		select {
		case <-want.done:
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end, stderr %s", want.name, want.stderr)
		}
		got, err := os.ReadFile(want.out.Name())
		if code := want.cmd.ProcessState.ExitCode(); err != nil || code != want.code || string(got) != want.text {
			t.Errorf("%s: exit code %d, want %d; stdout %q, want %q; stderr %s", want.name, code, want.code, got, want.text, want.stderr)
		}
		if told := strings.Count(want.stderr.String(), "resumed"); told > 1 {
			t.Errorf("%s tells of one change in %d lines: %s", want.name, told, want.stderr)
		}
	}
	if code := screen.exit(t); code != 6 || screen.shows(t) != "first\r\nlast\r\n" {
		t.Errorf("rc run --tty: exit code %d, screen %q, stderr %s", code, screen.shows(t), screen.stderr)
	}
}
