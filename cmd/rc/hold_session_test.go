package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheEndOfTheTerminalReleasesAHoldWithASession(t *testing.T) {
	t.Parallel()
	p := startable(t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "test", "--session")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaits(t, &p.controller.beats)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != exitInterrupted || !strings.Contains(p.stderr.String(), "rc: interrupted; hold j-1 is released\n") {
		t.Fatalf("exit code %d, stderr %s", code, &p.stderr)
	}
}

func TestUnderNohupAHoldWithASessionOutlivesTheTerminal(t *testing.T) {
	t.Parallel()
	p := startable(t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "test", "--session")
	rc, err := exec.LookPath("rc")
	if err != nil {
		t.Fatal(err)
	}
	p.Path, p.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, rc}, p.Args[1:]...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaits(t, &p.controller.beats)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.controller.mu.Lock()
	p.controller.views = 0
	p.controller.mu.Unlock()
	p.awaits(t, &p.controller.views) // it looks at the hold again
	p.interrupt(t, "rc: interrupted; hold j-1 is released\n")
}

// A hold that cannot be released needs nobody to end it.
func TestAHoldWithASessionThatCannotBeReleasedEndsByItself(t *testing.T) {
	t.Parallel()
	p := startable(t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "test", "--session")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaits(t, &p.controller.beats)
	p.awaits(t, &p.controller.views)
	p.controller.CloseClientConnections()
	p.controller.Close()
	p.interrupt(t, "rc: it ends without rc, within 1m0s. End it: rc release j-1\n")
}

func TestAHoldWithASessionWarnsOnceAfterHalfOfItsTime(t *testing.T) {
	t.Parallel()
	p := startable(t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "test", "--session", "--session-timeout", "15s")
	said := p.watch(t)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaits(t, &p.controller.beats)
	p.controller.CloseClientConnections()
	p.controller.Close()
	for deadline := time.Now().Add(awaitWithin); !strings.Contains(said(), "unless one does"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("rc says %s", said())
		}
	}
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.exit(t)
	if n := strings.Count(said(), "; hold j-1 ends in "); n != 1 {
		t.Fatalf("rc says %s", said())
	}
}

func TestSilenceIsToldInOneLineWithTheTimeLeft(t *testing.T) {
	for _, tt := range []struct {
		silent, left time.Duration
		want         string
	}{
		{30 * time.Second, 30 * time.Second, "no controller has answered for 30s; hold j-5 ends in 30s unless one does"},
		{60 * time.Second, 0, "no controller has answered for 1m0s; hold j-5 may have ended"},
	} {
		if got := silence("j-5", tt.silent, tt.left); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
