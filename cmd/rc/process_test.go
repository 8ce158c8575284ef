package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is one rc under test, with a controller of its own.
type process struct {
	*exec.Cmd
	controller *controller
	stderr     bytes.Buffer
}

func startable(t *testing.T, args ...string) *process {
	t.Helper()
	c := newController()
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), awaitWithin)
	t.Cleanup(cancel)
	p := &process{Cmd: exec.CommandContext(ctx, "rc", args...), controller: c}
	p.Env = append(os.Environ(), "RC_CONTROLLER="+c.URL, "RC_TOKEN=secret", "RC_SUBMITTER=ann@box", "RC_CONFIG="+t.TempDir()+"/none")
	p.Stderr = &p.stderr
	return p
}

// watch lets a test read what rc says while it runs. Call it before Start.
func (p *process) watch(t *testing.T) func() string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	p.Stderr = file
	return func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// exit waits for the end and returns the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

func (p *process) awaits(t *testing.T, counter *int) {
	t.Helper()
	p.until(t, func() bool { return *counter > 0 })
}

// until waits for what holds is true of the controller, whose lock it has.
func (p *process) until(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(awaitWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		p.controller.mu.Lock()
		done := holds()
		p.controller.mu.Unlock()
		if done {
			return
		}
	}
	t.Fatalf("rc did not get that far; it says %s", &p.stderr)
}

func TestSignalsEndRcWith130(t *testing.T) {
	for name, tc := range map[string]struct {
		step   string
		signal syscall.Signal
		says   string
	}{
		"SIGINT in the queue":   {"queue:0", syscall.SIGINT, "was queued and is cancelled"},
		"SIGTERM in the queue":  {"queue:0", syscall.SIGTERM, "was queued and is cancelled"},
		"SIGINT while running":  {"hang", syscall.SIGINT, "detached; job j-1 goes on"},
		"SIGTERM while running": {"hang", syscall.SIGTERM, "detached; job j-1 goes on"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startable(t, "run", "-d", "box:gpu0", "--", tc.step)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			counter := &p.controller.looks
			if tc.step == "hang" {
				counter = &p.controller.hanging
			}
			p.awaits(t, counter)
			if err := p.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if code := p.exit(t); code != exitInterrupted || !strings.Contains(p.stderr.String(), tc.says) {
				t.Fatalf("exit code %d, stderr %s", code, &p.stderr)
			}
		})
	}
}

func TestReaderThatGoesAwayLeavesTheJobRunningAndIsTold(t *testing.T) {
	p := startable(t, "run", "-d", "box:gpu0", "--", "out:one", "hang", "out:two", "hang")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = write
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if line, err := bufio.NewReader(read).ReadString('\n'); err != nil || line != "one\n" {
		t.Fatalf("read %q, error %v", line, err)
	}
	read.Close()
	p.awaits(t, &p.controller.hanging)
	close(p.controller.jobs[0].killed) // lets the script go on
	if code := p.exit(t); code != exitFailed || !strings.Contains(p.stderr.String(), "job j-1 goes on without rc") {
		t.Fatalf("exit code %d, stderr %s", code, &p.stderr)
	}
}

// TestOutputIsNotSlowedByItsLines pushes 64 MiB of short lines through rc and
// logs the time (0.12 s on two cores), which it does not judge.
func TestOutputIsNotSlowedByItsLines(t *testing.T) {
	const lines = 4 << 20 // of 16 bytes
	p := startable(t, "run", "-d", "box:gpu0", "--", "flood:4194304")
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, out)
	if code := p.exit(t); code != 0 || err != nil || n != lines*16 {
		t.Fatalf("exit code %d, %d bytes, error %v, stderr %s", code, n, err, &p.stderr)
	}
	t.Logf("%d MiB in %v", n>>20, time.Since(begun))
}
