package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// interrupt sends Ctrl-C and checks what rc says it leaves behind.
func (p *process) interrupt(t *testing.T, says string) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != exitInterrupted || !strings.Contains(p.stderr.String(), says) {
		t.Fatalf("exit code %d, stderr %swant in it: %s", code, &p.stderr, says)
	}
}

// Nobody knows the ID of a job whose submit was cut off, so rc must find out
// and end it.
func TestCtrlCInASubmitTakesTheJobBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"run, queued":   {[]string{"run", "-d", "box:gpu0", "--", "mute", "queue:0"}, "rc: interrupted; job j-1 was queued and is cancelled"},
		"run, placed":   {[]string{"run", "-d", "box:gpu0", "--", "mute", "hang"}, "rc: interrupted; job j-1 has ended: killed with exit code 143"},
		"run, detached": {[]string{"run", "-d", "box:gpu0", "--detach", "--", "mute", "hang"}, "rc: interrupted; job j-1 has ended: killed"},
		"run, slow":     {[]string{"run", "-d", "box:gpu0", "--", "mute", "slow:1000", "hang"}, "rc: interrupted; job j-1 is being ended; wait for that: rc wait j-1"},
		"run, ended":    {[]string{"run", "-d", "box:gpu0", "--", "mute", "never:killed:cancelled"}, "rc: interrupted; job j-1 was queued and is cancelled"},
		"hold, queued":  {[]string{"hold", "box:gpu0", "--ttl", "1h", "--reason", "mute queue:0"}, "rc: interrupted; job j-1 was queued and is cancelled"},
		"hold, placed":  {[]string{"hold", "box:gpu0", "--ttl", "1h", "--reason", "mute"}, "rc: interrupted; job j-1 has ended: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startable(t, tc.args...)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			p.awaits(t, &p.controller.muted)
			p.interrupt(t, tc.says)
			p.controller.mu.Lock()
			defer p.controller.mu.Unlock()
			if n := len(p.controller.jobs); n != 1 {
				t.Fatalf("%d jobs", n)
			}
		})
	}
}

// noticed waits until rc has said that nobody answers, which is 3 s after its
// start.
func (p *process) noticed(t *testing.T, said func() string) {
	t.Helper()
	for deadline := time.Now().Add(awaitWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if strings.Contains(said(), "no controller answers yet") {
			return
		}
	}
	t.Fatalf("rc says %s", said())
}

func TestCtrlCBeforeAnyControllerAnswersLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "-d", "box:gpu0", "--", "true"},
		{"hold", "box:gpu0", "--ttl", "1h", "--reason", "test"},
	} {
		p := startable(t, args...)
		said := p.watch(t)
		p.controller.Close()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		p.noticed(t, said)
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := p.exit(t); code != exitInterrupted || !strings.Contains(said(), "rc: interrupted; nothing was submitted\n") {
			t.Fatalf("rc %s: exit code %d, stderr %s", args[0], code, said())
		}
	}
}

// A hold that cannot be released goes on, and that must not be kept from its
// holder.
func TestCtrlCOfAHoldWithoutControllersSaysThatItGoesOn(t *testing.T) {
	t.Parallel()
	p := startable(t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "test")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaits(t, &p.controller.views)
	p.controller.CloseClientConnections()
	p.controller.Close()
	p.interrupt(t, "rc: it lasts until its time is up. End it: rc release j-1\n")
	if !strings.Contains(p.stderr.String(), "rc: interrupted; hold j-1 could not be released: ") {
		t.Fatalf("stderr %s", &p.stderr)
	}
}
