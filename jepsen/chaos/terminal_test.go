package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sitting is an rc on a terminal of its own.
type sitting struct {
	*Keyboard
	cmd    *exec.Cmd
	out    *countingFile
	stderr interface{ String() string }
	done   chan error
}

func (c *Cluster) sit(ctx context.Context, t *testing.T, args ...string) *sitting {
	t.Helper()
	s := &sitting{Keyboard: NewKeyboard(t, 80, 24), out: newFile(t, "screen"), done: make(chan error, 1)}
	cmd, _, stderr := c.RC(ctx, args...)
	s.cmd, s.stderr, cmd.Stdout = cmd, stderr, s.out.File
	s.Join(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- cmd.Wait() }()
	return s
}

func (s *sitting) shows(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (s *sitting) waitFor(t *testing.T, c *Cluster, text string) {
	t.Helper()
	c.Eventually(fmt.Sprintf("%q on the screen", text), func() error {
		if got := s.shows(t); !strings.Contains(got, text) {
			return fmt.Errorf("it shows %d bytes, the last %q", len(got), got[max(0, len(got)-200):])
		}
		return nil
	})
}

// exit waits for rc to end, and returns its exit code.
func (s *sitting) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		t.Fatal("rc does not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

func TestATerminalLosesAndDoublesNoKeyThroughThreeKillsOfTheLeader(t *testing.T) {
	const keys, kills = 10_000, 3
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	s := c.sit(ctx, t, "run", "--tty", "-d", "box:gpu0", "--",
		"sh", "-c", fmt.Sprintf("stty size; stty raw -echo; echo ready; dd bs=1 count=%d 2>/dev/null; stty size; exit 6", keys))
	s.waitFor(t, c, "ready")
	before := s.shows(t)
	var typed strings.Builder
	for i := 0; typed.Len() < keys; i++ {
		fmt.Fprintf(&typed, "%04d,", i)
	}
	// Somebody types on through each kill; every key is a write of its own. For
	// each kill there are keys enough, so that none comes after the last key.
	typing, mended := make(chan error, 1), make(chan struct{}, kills)
	go func() {
		for i := range keys {
			if i > 0 && i%(keys/(kills+1)) == 0 {
				<-mended
			}
			if _, err := s.WriteString(typed.String()[i : i+1]); err != nil {
				typing <- err
				return
			}
			time.Sleep(time.Millisecond) // a pace, not a wait
		}
		typing <- nil
	}()
	for n := range kills {
		from := len(before) + n*keys/(kills+1)
		c.Eventually("keys that come back", func() error {
			if now := len(s.shows(t)); now < from+keys/10 {
				return fmt.Errorf("%d bytes", now)
			}
			return nil
		})
		if n == 1 {
			s.Resize(t, 100, 30)
		}
		old := c.Leader()
		old.End(syscall.SIGKILL)
		old.Start(t)
		c.WaitVoters()
		mended <- struct{}{}
	}
	if err := <-typing; err != nil {
		t.Fatal(err)
	}
	if code := s.exit(t); code != 6 {
		t.Errorf("exit code %d, stderr %s", code, s.stderr)
	}
	got := strings.TrimPrefix(s.shows(t), before)
	if want := typed.String() + "30 100\n"; before != "24 80\r\nready\n" || got != want {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("%q, then %d bytes of %d that were typed; the first other one is at %d: %.60q", before, len(got), len(want), at, got[at:])
	}
	if said := strings.Count(s.stderr.String(), "\n"); said > 2+2*kills {
		t.Errorf("rc says %s", s.stderr)
	}
}

func TestATerminalIsLeftTakenOverAndEndedByTheRule(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 2})
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	first := c.sit(ctx, t, "run", "--tty", "-d", "box:gpu0", "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo got $x; done")
	asFound := first.Settings(t)
	first.waitFor(t, c, "ready")
	fmt.Fprint(first, "one\r")
	first.waitFor(t, c, "got one")
	id := strings.Fields(strings.Split(c.MustRC("ps"), "\n")[1])[0]
	watcher, _, _ := c.RC(ctx, "attach", id)
	seen := newFile(t, "watcher")
	watcher.Stdout = seen.File
	if err := watcher.Start(); err != nil {
		t.Fatal(err)
	}
	second := c.sit(ctx, t, "attach", "--take-over", id)
	second.waitFor(t, c, "got one")
	c.Eventually("word of the take-over", func() error {
		if said := first.stderr.String(); !strings.Contains(said, "has taken the input over") {
			return fmt.Errorf("%q", said)
		}
		return nil
	})
	fmt.Fprint(first, "lost\r")
	fmt.Fprint(second, "two\r")
	first.waitFor(t, c, "got two")
	fmt.Fprint(first, "~.")
	if code := first.exit(t); code != 130 || first.Settings(t) != asFound || !strings.Contains(first.stderr.String(), "rc attach --take-over "+id) {
		t.Errorf("left with %d, the terminal %s, stderr %s", code, first.Settings(t), first.stderr)
	}
	fmt.Fprint(second, "three\r\x04")
	if code := second.exit(t); code != 0 || !strings.HasSuffix(second.shows(t), "got one\r\ngot two\r\ngot three\r\n") {
		t.Errorf("exit code %d, screen %q, stderr %s", code, second.shows(t), second.stderr)
	}
	if err := watcher.Wait(); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(seen.Name()); string(text) != second.shows(t) {
		t.Errorf("who looks on sees %q", text)
	}

	alone := c.sit(ctx, t, "run", "--tty", "--detach-timeout", "2s", "-d", "box:gpu1", "--", "sh", "-c", "echo ready; sleep 600")
	alone.waitFor(t, c, "ready")
	fmt.Fprint(alone, "~.")
	if code := alone.exit(t); code != 130 || !strings.Contains(alone.stderr.String(), "nobody has been attached for 2s") {
		t.Errorf("left with %d, stderr %s", code, alone.stderr)
	}
	c.Eventually("the end of a terminal that nobody attends", func() error {
		if jobs := c.MustRC("jobs", "-n", "1"); !strings.Contains(jobs, "killed (terminal unattended for 2s)") {
			return fmt.Errorf("%s", jobs)
		}
		return nil
	})
	cmd, _, stderr := c.RC(ctx, "run", "--tty", "-d", "box:gpu1")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(stderr.String(), "needs a terminal") {
		t.Errorf("without a terminal: %v, %s", err, stderr)
	}
}

func TestAShellOnTheScreenGoesOnWithOneLineAtTheTop(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	k := NewKeyboard(t, 120, 40)
	cmd, _, stderr := c.RC(ctx, "run", "--tty", "-d", "box:gpu0")
	cmd.Env = append(cmd.Env, "TERM=vt220")
	k.Join(cmd)
	cmd.Stdout = k.far
	asFound := k.Settings(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	screen := newFile(t, "screen")
	go func() { _, _ = screen.ReadFrom(k) }()
	s := &sitting{Keyboard: k, cmd: cmd, out: screen, stderr: stderr, done: done}
	fmt.Fprint(s, "echo $TERM-$((6*7)); stty size\r")
	s.waitFor(t, c, "vt220-42")
	s.waitFor(t, c, "40 120")
	c.Nodes[0].End(syscall.SIGKILL)
	fmt.Fprint(s, "echo and-$((7*7))\r") // while nobody is there
	c.Nodes[0].Start(t)
	s.waitFor(t, c, "and-49")
	s.waitFor(t, c, "\x1b7\x1b[1;1H\x1b[2K\x1b[7mrc: lost contact with c1, resumed after ")
	fmt.Fprint(s, "exit 3\r")
	if code := s.exit(t); code != 3 || k.Settings(t) != asFound {
		t.Errorf("exit code %d, the terminal %s, was %s, stderr %s", code, k.Settings(t), asFound, stderr)
	}
	if said := stderr.String(); !strings.HasPrefix(said, "rc: job j-1 on box:gpu0\n") || strings.Contains(said, "lost contact") {
		t.Errorf("stderr %q", said)
	}
}
