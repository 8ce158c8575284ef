package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var bin Binaries

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rc-chaos-")
	if err == nil {
		bin, err = Build(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// leastLines is how many numbered lines a job prints at the least, as fast as
// it can; it goes on until it is told to stop, so that every fault and what
// follows it falls into the middle of the output.
const leastLines = 200_000

// printer runs a job that prints numbered lines until file stop exists, then
// exits with 7. Odd hundreds go to stderr, which makes the order across
// streams part of what a merged reader must see.
type printer struct {
	c    *Cluster
	stop string
	run  *exec.Cmd
	out  *countingFile
	err  *bytes.Buffer
	done chan error
	job  string
	term uint64 // when the job began

	follow     *exec.Cmd
	followOut  *countingFile
	followErr  *bytes.Buffer
	followDone chan error
}

// countingFile collects output on disk: it may be hundreds of megabytes.
type countingFile struct {
	*os.File
}

func newFile(t testing.TB, name string) *countingFile {
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &countingFile{f}
}

func (f *countingFile) size() int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// startPrinter returns once rc run has shown the first lines and rc logs -f
// runs beside it.
func startPrinter(t *testing.T, c *Cluster) *printer {
	t.Helper()
	p := &printer{c: c, stop: filepath.Join(t.TempDir(), "stop"), done: make(chan error, 1), followDone: make(chan error, 1)}
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ] || [ ! -e %s ]; do i=$((i+1)); echo "line $i"; done; echo "last $i"; exit 7`, leastLines, p.stop)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd, _, stderr := c.RC(ctx, "run", "-d", "box:gpu0", "--", "sh", "-c", script)
	p.run, p.err, p.out = cmd, stderr, newFile(t, "run.out")
	cmd.Stdout = p.out.File
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- cmd.Wait() }()
	c.Eventually("output of the job", func() error {
		if p.out.size() == 0 {
			return fmt.Errorf("nothing yet")
		}
		return nil
	})
	p.term = c.Term()
	p.job = strings.Fields(strings.Split(c.MustRC("ps"), "\n")[1])[0]
	follow, _, followErr := c.RC(ctx, "logs", "-f", p.job)
	p.follow, p.followErr, p.followOut = follow, followErr, newFile(t, "follow.out")
	follow.Stdout = p.followOut.File
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.followDone <- follow.Wait() }()
	c.Eventually("output of rc logs -f", func() error {
		if p.followOut.size() == 0 {
			return fmt.Errorf("nothing yet")
		}
		return nil
	})
	return p
}

// flows waits until both readers have received something new.
func (p *printer) flows() {
	p.c.t.Helper()
	run, follow := p.out.size(), p.followOut.size()
	p.c.Eventually("further output", func() error {
		if p.out.size() <= run || p.followOut.size() <= follow {
			return fmt.Errorf("run at %d bytes, logs -f at %d, as before", p.out.size(), p.followOut.size())
		}
		return nil
	})
}

// finish tells the job to end and checks everything a user was promised.
// notices is how many changes rc may have told of: at least one when there was
// a fault on the path it reads by. A leader that a busy machine lost besides
// may have a line too.
func (p *printer) finish(t *testing.T, notices int) {
	t.Helper()
	if err := os.WriteFile(p.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wait := func(name string, done chan error, stderr *bytes.Buffer) error {
		select {
		case err := <-done:
			return err
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s does not end\n%s", name, stderr)
			return nil
		}
	}
	err := wait("rc run", p.done, p.err)
	if code := p.run.ProcessState.ExitCode(); code != 7 {
		t.Errorf("rc run exits with %d (%v), want the job's own 7\n%s", code, err, p.err)
	}
	if err := wait("rc logs -f", p.followDone, p.followErr); err != nil {
		t.Errorf("rc logs -f: %v\n%s", err, p.followErr)
	}
	checkLines(t, "rc run", p.out)
	checkLines(t, "rc logs -f", p.followOut)
	stored := newFile(t, "stored.out")
	logs, _, stderr := p.c.RC(context.Background(), "logs", p.job)
	logs.Stdout = stored.File
	if err := logs.Run(); err != nil {
		t.Errorf("rc logs: %v\n%s", err, stderr)
	}
	checkLines(t, "rc logs", stored)
	told := 0
	for _, line := range strings.Split(p.err.String(), "\n") {
		if strings.Contains(line, "resumed") {
			told++
		}
	}
	changes := max(notices, int(p.c.Term()-p.term))
	if told < min(notices, 1) || told > changes {
		t.Errorf("rc run told of %d changes, want one line for each of %d:\n%s", told, changes, p.err)
	}
}

// checkLines demands "line 1" to "line N" and then "last N", N ≥ leastLines.
func checkLines(t *testing.T, who string, f *countingFile) {
	t.Helper()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for len(text) > 0 {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		if !found {
			t.Errorf("%s: the output ends inside a line after %d lines", who, n)
			return
		}
		text = rest
		if string(line) == fmt.Sprintf("last %d", n) && len(text) == 0 {
			if n < leastLines {
				t.Errorf("%s: only %d lines: the load was too small to count", who, n)
			}
			t.Logf("%s: %d lines, each once and in order", who, n)
			return
		}
		n++
		if string(line) != fmt.Sprintf("line %d", n) {
			t.Errorf("%s: after %d lines comes %.60q", who, n-1, line)
			return
		}
	}
	t.Errorf("%s: the output ends after %d lines without the last one", who, n)
}

func TestOutputAndExitCodeSurviveKillOfTheLeader(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2})
	p := startPrinter(t, c)
	c.Leader().End(syscall.SIGKILL)
	p.flows()
	p.finish(t, 1)
}

func TestOutputAndExitCodeSurviveAStoppedLeader(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2})
	p := startPrinter(t, c)
	old := c.Leader()
	old.Signal(syscall.SIGSTOP)
	// What was on its way to the readers still comes, and must not pass for what
	// the next leader sends.
	c.Leader()
	p.flows()
	old.Signal(syscall.SIGCONT)
	p.flows()
	p.finish(t, 2) // the waking node may have been the one rc read from
	if out := c.MustRC("devices"); strings.Contains(out, "unhealthy") {
		t.Errorf("a leader that woke up judged somebody:\n%s", out)
	}
}

func TestOutputAndExitCodeSurviveCutPortsOfTheLeader(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2, Proxied: true})
	p := startPrinter(t, c)
	old := c.Leader()
	old.Peers.Cut(nil)
	old.HTTP.Cut(nil)
	// What the leader itself dials goes through the others' proxies: they
	// keep passing its bytes, so cutting its own ports is a one-way cut.
	p.flows()
	old.Peers.Heal()
	old.HTTP.Heal()
	p.flows()
	p.finish(t, 2)
}

func TestOutputAndExitCodeSurviveACutAgentLink(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2, Proxied: true})
	p := startPrinter(t, c)
	agents := func(kind byte) bool { return kind == 'A' || kind == 'B' }
	for _, n := range c.Nodes {
		n.Peers.Cut(agents)
	}
	// The cut itself is the experiment: the issue says twenty seconds.
	time.Sleep(20 * time.Second)
	for _, n := range c.Nodes {
		n.Peers.Heal()
	}
	p.flows()
	p.finish(t, 0)
	if out := c.MustRC("devices"); strings.Contains(out, "unhealthy") {
		t.Errorf("a cut of 20 s put a device into quarantine:\n%s", out)
	}
}

// TestSubmitInFlightAtTheKillHappensOnce kills the leader while many submits
// are on their way; the client repeats each under its request ID.
func TestSubmitInFlightAtTheKillHappensOnce(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2})
	const rounds, each = 3, 20
	for round := range rounds {
		var wg sync.WaitGroup
		for i := range each {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				mark := fmt.Sprintf("mark-%d-%d", round, i)
				cmd, stdout, stderr := c.RC(ctx, "run", "--select", "vram>=40G", "--", "echo", mark)
				if err := cmd.Run(); err != nil || stdout.String() != mark+"\n" {
					t.Errorf("rc run of %s: %v, stdout %q\n%s", mark, err, stdout, stderr)
				}
			}()
		}
		// Somewhere inside the burst: each round kills at another moment.
		time.Sleep(time.Duration(20+60*round) * time.Millisecond)
		leader := c.Leader()
		leader.End(syscall.SIGKILL)
		wg.Wait()
		leader.Start(t)
		c.Leader()
	}
	jobs := c.MustRC("jobs", "-n", "200", "-o", "json")
	for round := range rounds {
		for i := range each {
			mark := fmt.Sprintf("%q", fmt.Sprintf("mark-%d-%d", round, i))
			if n := strings.Count(jobs, mark); n != 1 {
				t.Errorf("%s was submitted %d times", mark, n)
			}
		}
	}
}
