package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"strings"
	"testing"
)

// inHold starts rc exec in a hold of its controller.
func inHold(t *testing.T, args ...string) *process {
	t.Helper()
	p := startable(t, append([]string{"exec", "j-1"}, args...)...)
	hold := startable(t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "test", "--detach")
	hold.Env = p.Env
	if err := hold.Run(); err != nil {
		t.Fatalf("%v, stderr %s", err, &hold.stderr)
	}
	return p
}

// wantJob checks what has become of the job in the hold, and that the hold goes
// on.
func (p *process) wantJob(t *testing.T, state string) {
	t.Helper()
	p.controller.mu.Lock()
	defer p.controller.mu.Unlock()
	if hold, job := p.controller.jobs[0], p.controller.jobs[1]; hold.State != "running" || job.State != state {
		t.Errorf("the hold is %s and the job %s, want it %s", hold.State, job.State, state)
	}
}

func TestCtrlCOfExecEndsItsCommandAndLeavesTheHold(t *testing.T) {
	t.Parallel()
	for _, pipe := range []bool{false, true} {
		p := inHold(t, "--", "out:x", "hang")
		if pipe {
			if _, err := p.StdinPipe(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		p.awaits(t, &p.controller.hanging)
		p.interrupt(t, "rc: interrupted; job j-2 has ended: killed with exit code 143, by the user: cancelled; hold j-1 goes on\n")
		p.wantJob(t, "killed")
	}
}

func TestCtrlCWhileTheHoldIsQueuedSubmitsNothing(t *testing.T) {
	t.Parallel()
	p := startable(t, "exec", "j-1", "--", "true")
	hold := startable(t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "queue:0", "--detach")
	hold.Env = p.Env
	if err := hold.Run(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaits(t, &p.controller.looks)
	p.interrupt(t, "rc: interrupted; nothing was submitted, and hold j-1 is as it was\n")
	if n := len(p.controller.jobs); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// A shell, a service or a program that starts rc often leaves it a pipe that
// nobody will ever write to or close.
func TestAStdinThatNeverEndsHoldsExecUpNoLongerThanItsCommand(t *testing.T) {
	t.Parallel()
	p := inHold(t, "--", "out:x", "exit:5")
	if _, err := p.StdinPipe(); err != nil { // closed only by Wait
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != 5 {
		t.Fatalf("exit code %d, stderr %s", code, &p.stderr)
	}
}

func TestExecCarriesEveryByteBothWays(t *testing.T) {
	t.Parallel()
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	p := inHold(t, "--", "cat", "exit:7")
	var out bytes.Buffer
	p.Stdin, p.Stdout = bytes.NewReader(data), &out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != 7 || !bytes.Equal(out.Bytes(), data) || p.stderr.Len() > 0 {
		t.Fatalf("exit code %d, %d of %d bytes, stderr %s", code, out.Len(), len(data), &p.stderr)
	}
}

func TestExecEndsItsCommandWhenNobodyReadsItsOutput(t *testing.T) {
	t.Parallel()
	p := inHold(t, "--", "flood:4194304", "hang")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = write
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if _, err := io.ReadFull(read, make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	read.Close()
	if code := p.exit(t); code != exitFailed || !strings.Contains(p.stderr.String(), "nobody reads its output here any more; job j-2 has ended: ") {
		t.Fatalf("exit code %d, stderr %s", code, &p.stderr)
	}
	p.wantJob(t, "killed")
}
