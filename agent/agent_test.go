package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/session"
	"rcd/wire"
)

func TestAJobRunsAndItsOutputAndOutcomeReachTheLeader(t *testing.T) {
	c := newControl(t)
	dir := dataDir(t)
	startAgent(t, testConfig(dir, c))
	c.want(1, nil, sh("echo out; echo err >&2; exit 3")...)
	o := c.outcome(t, 1)
	if o.End != uint8(command.EndExited) || o.ExitCode == nil || *o.ExitCode != 3 || !o.OutputKnown || o.OutputLength != 8 || len(o.OutputDigest) != 32 || o.Survivors != "" {
		t.Errorf("outcome %+v", o)
	}
	eventually(t, "record marked as acked", func() bool {
		_, err := os.Stat(filepath.Join(dir, jobsDir, "1-1", ackedFile))
		return err == nil
	})
	// The record is kept for its output, and a reader may begin anywhere.
	text, end := c.output(t, "j-1", 0, true)
	if len(text) != 8 || !strings.Contains(text, "out\n") || !strings.Contains(text, "err\n") || !end.Complete || end.Length != 8 || end.State != "failed" {
		t.Errorf("output %q, end %+v", text, end)
	}
	if rest, _ := c.output(t, "j-1", 5, false); rest != text[5:] {
		t.Errorf("from 5: %q", rest)
	}
}

func TestAFollowerGetsOutputAsItComesAndEndsWithTheJob(t *testing.T) {
	c := newControl(t)
	dir := dataDir(t)
	startAgent(t, testConfig(dir, c))
	eventually(t, "attached", func() bool { return c.hub.Attached("box") })
	go func() {
		time.Sleep(50 * time.Millisecond) // the reader is quicker than the order
		c.want(1, nil, sh("for i in 1 2 3 4 5; do echo $i; sleep 0.05; done")...)
	}()
	if text, end := c.output(t, "j-1", 0, true); text != "1\n2\n3\n4\n5\n" || !end.Complete || end.State != "succeeded" {
		t.Errorf("output %q, end %+v", text, end)
	}
}

func TestOutputThatIsGoneIsSaidToBe(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "attached", func() bool { return c.hub.Attached("box") })
	if text, end := c.output(t, "j-99", 40, false); text != "" || end.Complete || end.Length != 40 || end.Reason != reasonOutputGone {
		t.Errorf("output %q, end %+v", text, end)
	}
}

func TestJobsOutliveTheAgentAndKeepTheirExitCode(t *testing.T) {
	c := newControl(t)
	dir := dataDir(t)
	config := testConfig(dir, c)
	first := startAgent(t, config)
	marker, alone := filepath.Join(t.TempDir(), "go"), filepath.Join(t.TempDir(), "alone")
	c.want(1, nil, sh("echo pid $$; until [ -e "+marker+" ]; do sleep 0.02; done; echo done; exit 7")...)
	c.want(2, func(s *wire.StartJob) { s.Devices = []string{"box:gpu1"} }, sh("until [ -e "+alone+" ]; do sleep 0.02; done; exit 9")...)
	eventually(t, "both running", func() bool { return c.isRunning(1) && c.isRunning(2) })
	var before string
	eventually(t, "first line", func() bool { before, _ = c.output(t, "j-1", 0, false); return before != "" })
	first.stop()
	if first.err != nil {
		t.Fatalf("agent ended with %v", first.err)
	}
	if err := os.WriteFile(alone, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "job 2 over with nobody there", func() bool {
		_, err := os.Stat(filepath.Join(config.DataDir, jobsDir, "2-2", "result.cbor"))
		return err == nil
	})

	second := startAgent(t, config)
	eventually(t, "second hello", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 2 })
	c.mu.Lock()
	hello := c.hellos[1]
	c.mu.Unlock()
	if !reports(hello.Jobs, 1) || !reports(hello.Jobs, 2) || hello.Devices[0].Begun != 1 || hello.Devices[1].Begun != 2 {
		t.Errorf("hello %+v", hello)
	}
	if hello.Instance == c.hellos[0].Instance || hello.MachineID != c.hellos[0].MachineID || hello.BootID == "" {
		t.Errorf("identities: first %+v, then %+v", c.hellos[0], hello)
	}
	// The machine may carry other agents' jobs; ours must not be among them.
	if pid := strings.TrimSpace(strings.TrimPrefix(before, "pid ")); strings.Contains(hello.Proof.Detail, "pid "+pid+" ") {
		t.Errorf("a supervised job counts as a survivor: %+v", hello.Proof)
	}
	if o := c.outcome(t, 2); o.ExitCode == nil || *o.ExitCode != 9 {
		t.Errorf("job that ended meanwhile: %+v", o)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 7 {
		t.Errorf("job that went on: %+v", o)
	}
	if text, _ := c.output(t, "j-1", 0, true); text != before+"done\n" {
		t.Errorf("output %q, was %q before the restart: not one process", text, before)
	}
	second.stop()
}

func TestAnOutcomeWaitsOnDiskForItsAck(t *testing.T) {
	c := newControl(t)
	c.deaf = true
	config := testConfig(dataDir(t), c)
	first := startAgent(t, config)
	c.want(1, nil, sh("exit 5")...)
	eventually(t, "job over", func() bool {
		_, err := os.Stat(filepath.Join(config.DataDir, jobsDir, "1-1", "result.cbor"))
		return err == nil
	})
	first.stop()
	c.mu.Lock()
	c.deaf = false
	c.mu.Unlock()
	startAgent(t, config)
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 5 {
		t.Errorf("outcome %+v", o)
	}
}

func TestTheEnvironmentOfAJobIsFixed(t *testing.T) {
	t.Setenv("RC_TOKEN", "secret")
	t.Setenv("RCD_CLUSTER_KEY", "secret")
	t.Setenv("SOMETHING_OF_THE_AGENT", "secret")
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	c.want(41, func(s *wire.StartJob) { s.Env = map[string]string{"MINE": "yes", "LANG": "de"} }, "env")
	c.outcome(t, 41)
	text, _ := c.output(t, "j-41", 0, true)
	if strings.Contains(text, "secret") {
		t.Errorf("the agent's environment leaks:\n%s", text)
	}
	for _, want := range []string{"MINE=yes", "LANG=de", "RC_JOB_ID=j-41", "RC_DEVICE=box:gpu0", "RC_LEASE_TOKEN=41", "RC_SUBMITTER=ann", "CUDA_VISIBLE_DEVICES=0", "PATH=", "HOME="} {
		if !strings.Contains("\n"+text, "\n"+want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for i, name := range []string{"RC_TOKEN", "RC_TOKENS", "RCD_CLUSTER_KEY", "", "A=B"} {
		n := uint64(50 + i)
		c.want(n, func(s *wire.StartJob) { s.Env = map[string]string{name: "x"} }, "env")
		if o := c.outcome(t, n); o.End != uint8(command.EndStartFailed) || o.ExitCode == nil || *o.ExitCode != -1 || !strings.HasPrefix(o.Reason, "start: ") {
			t.Errorf("%q: outcome %+v", name, o)
		}
	}
	c.want(60, func(s *wire.StartJob) { s.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-uuid"} }, sh("echo $CUDA_VISIBLE_DEVICES")...)
	c.outcome(t, 60)
	if text, _ := c.output(t, "j-60", 0, true); text != "GPU-uuid\n" {
		t.Errorf("the job's own choice: %q", text)
	}
}

func TestAHoldRunsUntilItIsKilled(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	c.want(1, func(s *wire.StartJob) { s.Kind = uint8(model.KindHold) }, "hold")
	eventually(t, "held", func() bool { return c.isRunning(1) })
	c.kill(1)
	if o := c.outcome(t, 1); o.End != uint8(command.EndKilled) || o.ExitCode == nil || *o.ExitCode != 143 || o.Reason != reasonCancelled {
		t.Errorf("outcome %+v", o)
	}
}

// TestAHoldThatIsGivenBackEndsAtOnce: somebody waits for the device. Nothing on
// the way may wait for a heartbeat, a redial or a grace.
func TestAHoldThatIsGivenBackEndsAtOnce(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.KillGrace = time.Minute
	first := startAgent(t, config)
	hold := func(s *wire.StartJob) { s.Kind, s.MaxRuntimeS = uint8(model.KindHold), 3600 }
	other := func(s *wire.StartJob) { hold(s); s.Devices = []string{"box:gpu1"} }
	c.want(1, hold, "hold")
	c.want(2, other, "hold")
	eventually(t, "held", func() bool { return c.isRunning(1) && c.isRunning(2) })
	release := func(job uint64) {
		t.Helper()
		began := time.Now()
		c.kill(job)
		o := c.outcome(t, job)
		if took := time.Since(began); took > 1500*time.Millisecond || o.End != uint8(command.EndKilled) || o.Survivors != "" {
			t.Errorf("job %d: %+v after %v", job, o, took)
		} else {
			t.Logf("job %d ended after %v", job, took)
		}
	}
	release(1)
	first.stop()
	startAgent(t, config)
	eventually(t, "adopted", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 2 })
	release(2)
}

func TestFailuresToStartAreOutcomes(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	c.want(1, nil, "no-such-program")
	c.want(2, func(s *wire.StartJob) { s.Devices = []string{"box:gpu7"} }, "true")
	c.want(3, func(s *wire.StartJob) { s.Devices, s.Cwd = []string{"box:gpu1"}, "/no/such/dir" }, "true")
	for n, origin := range map[uint64]model.Origin{1: model.OriginJob, 2: model.OriginDevice, 3: model.OriginJob} {
		if o := c.outcome(t, n); o.End != uint8(command.EndStartFailed) || *o.ExitCode != -1 || !strings.HasPrefix(o.Reason, "start: ") || o.Origin != uint8(origin) {
			t.Errorf("job %d: %+v", n, o)
		}
	}
}

func TestASecondAgentIsRefusedAndSaysWhoIsThere(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	startAgent(t, config)
	pid := fmt.Sprintf("process %d", os.Getpid())
	other := config
	other.DataDir = t.TempDir()
	for name, config := range map[string]Config{"same directory": config, "same host": other} {
		err := Run(context.Background(), config, Deps{Exec: executable(t)})
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), pid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other.Host = "box2"
	startAgent(t, other).stop()
}

func TestAnAgentDoesNotStartWithoutAToken(t *testing.T) {
	t.Setenv("RC_TOKEN", "")
	if err := Run(context.Background(), Config{DataDir: t.TempDir(), Host: "box"}, Deps{}); !errors.Is(err, ErrNoToken) {
		t.Errorf("got %v", err)
	}
}

func TestACorruptRecordQuarantinesAndNamesTheFile(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	first := startAgent(t, config)
	c.want(1, nil, sh("exit 0")...)
	c.outcome(t, 1)
	c.deaf = true
	c.want(2, nil, sh("exit 0")...)
	c.want(3, func(s *wire.StartJob) { s.Devices = []string{"box:gpu1"} }, "sleep", "60")
	eventually(t, "job 2 over", func() bool {
		_, err := os.Stat(filepath.Join(config.DataDir, jobsDir, "2-2", "result.cbor"))
		return err == nil
	})
	eventually(t, "job 3 running", func() bool { return c.isRunning(3) })
	first.stop()
	file := filepath.Join(config.DataDir, jobsDir, "2-2", "result.cbor")
	if err := os.WriteFile(file, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.deaf = false
	startAgent(t, config)
	if o := c.outcome(t, 2); o.End != uint8(command.EndSupervisorDied) || o.ExitCode != nil || !strings.Contains(o.Survivors, file) {
		t.Errorf("outcome %+v", o)
	}
	c.kill(3) // the rest of the host works
	if o := c.outcome(t, 3); o.Reason != reasonCancelled {
		t.Errorf("outcome %+v", o)
	}
}

func TestDrainLeavesNothingWithOrWithoutAnAgent(t *testing.T) {
	for _, with := range []bool{true, false} {
		t.Run(fmt.Sprintf("agent=%v", with), func(t *testing.T) {
			c := newControl(t)
			config := testConfig(dataDir(t), c)
			r := startAgent(t, config)
			c.want(1, nil, sh("trap '' TERM; sleep 60 & setsid sleep 60 & wait; sleep 60")...)
			c.want(2, func(s *wire.StartJob) { s.Devices, s.Kind = []string{"box:gpu1"}, uint8(model.KindHold) }, "hold")
			eventually(t, "both running", func() bool { return c.isRunning(1) && c.isRunning(2) })
			if !with {
				r.stop()
			}
			if err := Drain(context.Background(), config.DataDir, testLog(t)); err != nil {
				t.Fatal(err)
			}
			left, err := shims()
			if err != nil {
				t.Fatal(err)
			}
			for dir := range left {
				if strings.HasPrefix(dir, config.DataDir) {
					t.Errorf("a shim is left for %s", dir)
				}
			}
			if !with {
				startAgent(t, config)
			}
			if o := c.outcome(t, 1); o.Reason != reasonDrained {
				t.Errorf("outcome %+v", o)
			}
		})
	}
	if err := Drain(context.Background(), filepath.Join(t.TempDir(), "none"), nil); err != nil {
		t.Error(err)
	}
}

func TestKeptRecordsAreBounded(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.KeepJobs = 2
	startAgent(t, config)
	for n := uint64(1); n <= 5; n++ {
		c.want(n, nil, "true")
		c.outcome(t, n)
	}
	eventually(t, "two records left", func() bool {
		entries, err := os.ReadDir(filepath.Join(config.DataDir, jobsDir))
		return err == nil && len(entries) == 2 && entries[0].Name() == "4-4" && entries[1].Name() == "5-5"
	})
}

var _ session.Backend = (*control)(nil)
