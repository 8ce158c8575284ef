package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// wantHold has gpu0 held as job and lease n.
func (c *control) wantHold(n uint64) {
	c.want(n, func(s *wire.StartJob) { s.Kind = uint8(model.KindHold) })
}

// inside has a job share the lease of a hold.
func inside(hold uint64) func(*wire.StartJob) {
	return func(s *wire.StartJob) { s.Lease, s.Hold = hold, hold }
}

// ended waits for the outcome of one of several jobs of a lease.
func (c *control) ended(t *testing.T, job uint64) wire.Outcome {
	t.Helper()
	var o wire.Outcome
	eventually(t, fmt.Sprintf("outcome of job %d", job), func() (ok bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		o, ok = c.ends[job]
		return ok
	})
	return o
}

func (c *control) isOver(job uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, over := c.ends[job]
	return over
}

// TestJobsInsideAHoldLiveAndEndByThemselves: one is killed, one prints and exits
// with 7, one lives until the hold ends, and the agent is killed in between.
func TestJobsInsideAHoldLiveAndEndByThemselves(t *testing.T) {
	c := newControl(t)
	data, dir := dataDir(t), t.TempDir()
	note := func(name string) string {
		return executableFile(t, filepath.Join(dir, name), `echo "$RC_EVENT $RC_JOB_ID" >> `+dir+`/use`)
	}
	verify := filepath.Join(dir, "verify.d")
	if err := os.Mkdir(verify, 0o700); err != nil {
		t.Fatal(err)
	}
	executableFile(t, filepath.Join(verify, "look"), `echo "$RC_EVENT $RC_JOB_ID" >> `+dir+`/use`)
	yaml := fmt.Sprintf("devices: [{name: gpu0, kind: simulated, on_acquire: %s, on_release: %s}]\nverify_dir: %s\nhooks: {release_linger: 10ms}\n", note("acquire"), note("release"), verify)
	first := startProcessWith(t, c, data, yaml)
	eventually(t, "the release at the start", func() bool { return lines(dir+"/use") == 1 })

	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.wantHold(1)
	c.want(2, inside(1), sh("cd "+dir+"; echo $RC_JOB_ID $RC_HOLD_ID $RC_LEASE_TOKEN $RC_DEVICE > env; echo $$ > pid2; echo up; exec sleep 600")...)
	c.want(3, inside(1), sh("cd "+dir+"; echo $$ > pid3; exec sleep 600")...)
	c.want(4, inside(1), sh("cd "+dir+"; seq 500; echo $$ > pid4; "+untilThere("go4")+"; seq 501 1000; exit 7")...)
	eventually(t, "all three run", func() bool {
		return lines(dir+"/pid2") == 1 && lines(dir+"/pid3") == 1 && lines(dir+"/pid4") == 1 && c.isRunning(1) && c.isRunning(2) && c.isRunning(3) && c.isRunning(4)
	})
	if got := read(t, dir, "env"); got != "j-2 j-1 1 box:gpu0\n" {
		t.Errorf("environment %q", got)
	}
	second, fourth := identifyScript(t, dir+"/pid2")[0], identifyScript(t, dir+"/pid4")[0]

	c.kill(3)
	if o := c.ended(t, 3); o.End != uint8(command.EndKilled) || o.Survivors != "" {
		t.Errorf("the killed one: %+v", o)
	}
	if !proc.Alive(second) || !proc.Alive(fourth) {
		t.Error("its siblings went with it")
	}
	status, err := StatusOf(context.Background(), Config{Host: "box", DataDir: data})
	if live := status.Live(); err != nil || len(live) != 3 || live[0].Hold != "" || live[1].Hold != "j-1" || !strings.HasPrefix(live[2].String(), "j-4 inside j-1 on gpu0, running") {
		t.Errorf("status %+v, %v", status.Jobs, err)
	}

	first.end(unix.SIGKILL)
	eventually(t, "the three in the status without an agent", func() bool { // a shim goes a moment after its job
		status, err := StatusOf(context.Background(), Config{Host: "box", DataDir: data})
		return err == nil && len(status.Live()) == 3 && status.Jobs[1].Hold == "j-1"
	})
	touch("go4")
	startProcessWith(t, c, data, yaml)
	if o := c.ended(t, 4); o.ExitCode == nil || *o.ExitCode != 7 || o.Survivors != "" {
		t.Errorf("the one that printed: %+v", o)
	}
	if text, err := wholeOutput(t, c, 4); err != nil || lineCount(text) != 1000 || !strings.HasSuffix(text, "\n1000\n") {
		t.Errorf("output of %d lines, %v", lineCount(text), err)
	}
	c.want(5, inside(1), "true") // under the agent that has adopted the hold
	if o := c.ended(t, 5); o.ExitCode == nil || *o.ExitCode != 0 {
		t.Errorf("one that came after the restart: %+v", o)
	}
	if !proc.Alive(second) || c.isOver(1) {
		t.Error("the hold or its job is gone")
	}
	if got, want := read(t, dir, "use"), "release \nacquire j-1\n"; got != want {
		t.Errorf("the use of the device while the hold lives: %q", got)
	}

	c.kill(1)
	if o := c.ended(t, 1); o.End != uint8(command.EndKilled) || o.Survivors != "" {
		t.Errorf("the hold: %+v", o)
	}
	if o := c.ended(t, 2); o.End != uint8(command.EndKilled) || o.Reason != "hold j-1 ended" || o.Survivors != "" || proc.Alive(second) {
		t.Errorf("what was left inside: %+v, alive %v", o, proc.Alive(second))
	}
	want := "release \nacquire j-1\nverify j-1\nrelease j-1\n"
	eventually(t, "the release after it", func() bool { return read(t, dir, "use") == want })
	c.want(6, nil, "true")
	if o := c.ended(t, 6); o.ExitCode == nil || *o.ExitCode != 0 {
		t.Errorf("the next lease: %+v", o)
	}
	if begun := begunOnce(t, data); !slices.Equal(begun, []uint64{1, 6}) {
		t.Errorf("the witness saw leases %v begin", begun)
	}
}

func lineCount(text string) int { return strings.Count(text, "\n") }

// TestAnAgentKilledAtAnyPointLosesNothingInsideAHold is the other torture with
// the jobs inside a hold, which the agent that dies has adopted.
func TestAnAgentKilledAtAnyPointLosesNothingInsideAHold(t *testing.T) {
	for _, p := range points {
		if p == atTermSeen || p == atRemoving || p == atRecalled {
			continue // nothing of a job inside
		}
		t.Run(string(p), func(t *testing.T) {
			c := newControl(t)
			dir, notes := dataDir(t), t.TempDir()
			up, go7 := filepath.Join(notes, "up"), filepath.Join(notes, "go")
			first := startProcess(t, c, dir, "")
			c.wantHold(1)
			c.want(2, inside(1), sh("until [ -e "+go7+" ]; do sleep 0.01; done")...)
			eventually(t, "running", func() bool { return c.isRunning(1) && c.isRunning(2) })
			first.end(unix.SIGKILL)
			c.want(3, inside(1), sh("echo x >> "+notes+"/runs3; exit 7")...)
			c.want(4, inside(1), sh("echo x >> "+notes+"/runs4; exec 2>/dev/null; trap 'exit 9' TERM; : > "+up+"; while :; do sleep 0.02; done")...)
			c.want(5, inside(1), "true")
			c.kill(5)
			killWhen(t, c, 4, up)
			sequence := deaths[p]
			if sequence == nil {
				sequence = []point{p}
			}
			for _, last := range sequence {
				startProcess(t, c, dir, last).killedItself(t)
			}
			startProcess(t, c, dir, "")
			if o := c.ended(t, 3); o.End != uint8(command.EndExited) || o.ExitCode == nil || *o.ExitCode != 7 || o.Survivors != "" {
				t.Errorf("the job that ended with 7: %+v", o)
			}
			if o := c.ended(t, 4); o.End != uint8(command.EndKilled) || o.ExitCode == nil || *o.ExitCode != 9 || o.Survivors != "" {
				t.Errorf("the job that was killed and ended with 9: %+v", o)
			}
			if o := c.ended(t, 5); o.End != uint8(command.EndKilled) || o.OutputLength != 0 {
				t.Errorf("the job that was killed before it began: %+v", o)
			}
			c.mu.Lock()
			hello := c.hellos[len(c.hellos)-1]
			c.mu.Unlock()
			if hello.Devices[0].Begun != 1 {
				t.Errorf("the fence of the running hold is at %d", hello.Devices[0].Begun)
			}
			if c.isOver(1) || c.isOver(2) {
				t.Error("the hold, or the job that was in it before, is over")
			}
			for _, job := range []string{"3", "4"} {
				if n := lines(filepath.Join(notes, "runs"+job)); n != 1 {
					t.Errorf("job %s ran %d times", job, n)
				}
			}
			if err := os.WriteFile(go7, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if o := c.ended(t, 2); o.ExitCode == nil || *o.ExitCode != 0 {
				t.Errorf("the job that was in it before: %+v", o)
			}
			c.kill(1)
			c.want(9, nil, "true")
			if o := c.ended(t, 9); o.ExitCode == nil || *o.ExitCode != 0 {
				t.Errorf("the next lease: %+v", o)
			}
			if begun := begunOnce(t, dir); !slices.Equal(begun, []uint64{1, 9}) {
				t.Errorf("the witness saw leases %v begin", begun)
			}
		})
	}
}
