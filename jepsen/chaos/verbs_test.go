package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// verb is one rc under way.
type verb struct {
	c    *Cluster
	cmd  *exec.Cmd
	text string // file of what it says, on stdout and stderr
	name string
}

// start runs rc in the background.
func (c *Cluster) start(args ...string) *verb {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	c.t.Cleanup(cancel)
	cmd, _, _ := c.RC(ctx, args...)
	v := &verb{c: c, cmd: cmd, text: filepath.Join(c.t.TempDir(), "said"), name: "rc " + strings.Join(args, " ")}
	file, err := os.Create(v.text)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (v *verb) said() string {
	text, err := os.ReadFile(v.text)
	if err != nil {
		v.c.t.Fatal(err)
	}
	return string(text)
}

// says waits until the verb has said something.
func (v *verb) says(text string) {
	v.c.t.Helper()
	v.c.Eventually(text+" of "+v.name, func() error {
		if said := v.said(); !strings.Contains(said, text) {
			return fmt.Errorf("it said %q", said)
		}
		return nil
	})
}

// exits waits for the end, and checks the code and the words.
func (v *verb) exits(code int, says string) {
	v.c.t.Helper()
	err := v.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		v.c.t.Fatal(err)
	}
	if got := v.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(v.said(), says) {
		v.c.t.Errorf("%s: exit code %d, want %d; it said\n%swant in it: %s", v.name, got, code, v.said(), says)
	}
}

func (v *verb) interrupt() { _ = v.cmd.Process.Signal(syscall.SIGINT) }

// submit runs rc with --detach and returns the ID.
func (c *Cluster) submit(args ...string) string {
	c.t.Helper()
	return strings.TrimSpace(c.MustRC(args...))
}

// state waits until a job is in a state.
func (c *Cluster) state(job, want string) {
	c.t.Helper()
	c.Eventually(job+" "+want, func() error {
		_, body, err := c.Get(c.Nodes[0], "/v1/jobs/"+job)
		if err == nil && !strings.Contains(string(body), `"state":"`+want+`"`) {
			err = fmt.Errorf("%s", body)
		}
		return err
	})
}

func TestCtrlCLeavesBehindWhatRcSays(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	events := c.start("events")

	hold := c.start("hold", "box:gpu0", "--ttl", "1h", "--reason", "test")
	hold.says("box:gpu0 is yours until ")
	next := c.start("hold", "--select", "vram>=40G", "--ttl", "1h", "--reason", "next")
	next.says("queued at position 1")
	run := c.start("run", "-d", "box:gpu0", "--", "true")
	run.says("queued at position 1 for box:gpu0")
	next.interrupt()
	next.exits(130, "rc: interrupted; job j-2 was queued and is cancelled")
	run.interrupt()
	run.exits(130, "rc: interrupted; job j-3 was queued and is cancelled")
	hold.interrupt()
	hold.exits(130, "rc: interrupted; hold j-1 is released")
	for _, job := range []string{"j-1", "j-2", "j-3"} {
		c.state(job, "killed")
	}

	run = c.start("run", "-d", "box:gpu0", "--", "sh", "-c", "echo begun; exec sleep 1000")
	run.says("begun")
	run.interrupt()
	run.exits(130, "rc: detached; job j-4 goes on, on box:gpu0")
	queued := c.submit("run", "-d", "box:gpu0", "--detach", "--", "true")
	for _, watch := range []struct {
		args        []string
		seen, leave string
	}{
		{[]string{"attach", "j-4"}, "begun", "rc: detached; job j-4 is as it was"},
		{[]string{"attach", queued}, "queued at position 1", "rc: detached; job j-5 is as it was"},
		{[]string{"logs", "-f", "j-4"}, "begun", "rc: interrupted; rc only watched job j-4"},
		{[]string{"wait", queued}, "queued at position 1", "rc: interrupted; rc only watched job j-5"},
	} {
		v := c.start(watch.args...)
		v.says(watch.seen)
		v.interrupt()
		v.exits(130, watch.leave)
	}
	c.state("j-4", "running")
	c.state(queued, "queued")

	// The three outcomes of a kill.
	kill := c.start("kill", queued)
	kill.exits(0, "rc: job j-5 was queued and is cancelled")
	kill = c.start("kill", "j-4")
	kill.exits(0, "job j-4 ")
	wait := c.start("wait", "j-4")
	wait.exits(143, "rc: job j-4 has ended: killed with exit code 143, by the user: cancelled")
	kill = c.start("kill", "j-4")
	kill.exits(125, "rc: not_cancellable: ")

	events.says("job.ended  j-4 killed")
	events.interrupt()
	events.exits(130, ". Go on: rc events --after ")
}

func TestWaitsAndHoldsOutliveTheLeader(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2})
	stop := filepath.Join(t.TempDir(), "stop")
	job := c.submit("run", "-d", "box:gpu0", "--max-runtime", "1h", "--detach", "--", "sh", "-c", "while [ ! -e "+stop+" ]; do sleep 0.1; done; exit 5")
	wait, attach := c.start("wait", job), c.start("attach", job)
	attach.says("job j-1 on box:gpu0")
	hold := c.start("hold", "box:gpu1", "--ttl", "1h", "--reason", "test")
	hold.says("is yours until ")
	queued := c.start("hold", "box:gpu1", "--ttl", "1h", "--reason", "next")
	queued.says("queued at position 1")
	late := c.start("wait", job, "--timeout", "1s")
	late.exits(124, "rc: job j-1 is still running after 1s, on box:gpu0, and ends by ")

	dead := c.Leader()
	dead.End(syscall.SIGKILL)
	c.MustRC("extend", "j-2", "1h")
	dead.Start(t)
	c.WaitVoters()
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wait.exits(5, "rc: job j-1 has ended: failed with exit code 5")
	attach.exits(0, "rc: job j-1 has ended: failed with exit code 5")
	c.Eventually("the new end of the hold", func() error {
		if n := strings.Count(hold.said(), "is yours until "); n != 2 {
			return fmt.Errorf("told %d times: %s", n, hold.said())
		}
		return nil
	})
	hold.interrupt()
	hold.exits(130, "rc: interrupted; hold j-2 is released")
	queued.says("box:gpu1 is yours until ")
	c.MustRC("release", "j-3")
	queued.exits(0, "rc: hold j-3 ended: cancelled")
}

// TestTheGuideToJobsRuns runs docs/jobs.md, each block as a shell script, one
// after the other.
func TestTheGuideToJobsRuns(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	script := "set -eu\n"
	for _, block := range fence.FindAllStringSubmatch(documents(t)[jobsGuide], -1) {
		if strings.Contains(block[1], "rc run --tty") {
			continue // it needs a terminal: see terminal_test.go
		}
		script += block[1]
	}
	script = strings.ReplaceAll(script, "python train.py", "true")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Env = append(c.Env(AdminToken), "PATH="+filepath.Dir(bin.RC)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "it exited with 3") || !strings.Contains(string(out), "released j-2") {
		t.Fatalf("%v\n%s", err, out)
	}
}
