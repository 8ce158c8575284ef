package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// verifying is an agent's configuration with a directory for verify scripts,
// and one for what they write.
func verifying(t *testing.T) (config Config, dir, notes string) {
	config = testConfig(dataDir(t), newControl(t))
	dir, notes = filepath.Join(t.TempDir(), "verify.d"), t.TempDir()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config.Verify = Verify{Dir: dir, Timeout: time.Minute, Budget: 2 * time.Minute}
	return config, dir, notes
}

// runJob runs a job on gpu0 to its end.
func (a *agent) runJob(t *testing.T, number uint64, command ...string) wire.Outcome {
	t.Helper()
	a.Order(context.Background(), order(wire.OrderStart, number, number, command...))
	return a.awaitOutcome(t, key{number, number})
}

func TestEveryVerifyScriptRunsInOrderAndAFailureTakesTheDeviceOut(t *testing.T) {
	config, dir, notes := verifying(t)
	log := filepath.Join(notes, "log")
	executableFile(t, filepath.Join(dir, "30-last"), "echo 30 >> "+log+"; exit 7")
	executableFile(t, filepath.Join(dir, "10-first"), "echo 10 $RC_EVENT $RC_DEVICE $RC_JOB_ID $RC_SUBMITTER $CUDA_VISIBLE_DEVICES >> "+log+"; echo not this; printf '%0300d memory left' 1 >&2; exit 2")
	executableFile(t, filepath.Join(dir, "20-good"), "echo 20 >> "+log)
	a := newTestAgent(t, config)
	o := a.runJob(t, 1, sh("exit 4")...)
	want := "verify failed: 10-first: exited 2: " + strings.Repeat("0", 187) + "1 memory left; verify failed: 30-last: exited 7"
	if o.Survivors != want {
		t.Errorf("fault %q\nwant  %q", o.Survivors, want)
	}
	if o.End != uint8(command.EndExited) || o.ExitCode == nil || *o.ExitCode != 4 || o.Reason != "" || !o.OutputKnown {
		t.Errorf("the job does not keep its own result: %+v", o)
	}
	if got := read(t, log); got != "10 verify box:gpu0 j-1 ann 0\n20\n30\n" {
		t.Errorf("runs %q", got)
	}
	// What was told is told again after a restart, and nobody looks twice.
	b := newTestAgent(t, config)
	if o := b.awaitOutcome(t, key{1, 1}); o.Survivors != want || lines(log) != 3 {
		t.Errorf("after a restart %+v, %d runs", o, lines(log))
	}
}

func TestWhatVerifyCannotLookAtCountsAsNotFit(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		prepare    func(v *Verify)
	}{
		{"a script that does not end", "verify failed: a: timed out after 400ms; verify failed: b: timed out after 400ms", func(v *Verify) {
			v.Timeout = 400 * time.Millisecond
			executableFile(t, filepath.Join(v.Dir, "a"), "exec sleep 600")
			executableFile(t, filepath.Join(v.Dir, "b"), "exec sleep 600")
		}},
		{"the time for all scripts", "verify failed: a: the 400ms for all scripts are over; verify failed: b: not run: the 400ms for all scripts are over", func(v *Verify) {
			v.Budget = 400 * time.Millisecond
			executableFile(t, filepath.Join(v.Dir, "a"), "exec sleep 600")
			executableFile(t, filepath.Join(v.Dir, "b"), "exit 0")
		}},
		{"a link to nothing", "verify failed: a: stat: no such file or directory", func(v *Verify) {
			if err := os.Symlink("/no/such/file", filepath.Join(v.Dir, "a")); err != nil {
				t.Fatal(err)
			}
		}},
		{"no directory", "verify failed: DIR: open: not a directory", func(v *Verify) {
			v.Dir = filepath.Join(executableFile(t, filepath.Join(v.Dir, "a"), "exit 0"), "verify.d")
		}},
		{"no program", "verify failed: a: fork/exec DIR/a: exec format error", func(v *Verify) {
			if err := os.WriteFile(filepath.Join(v.Dir, "a"), []byte("rubbish\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config, _, _ := verifying(t)
			tt.prepare(&config.Verify)
			a := newTestAgent(t, config)
			o := a.runJob(t, 1, "true")
			if got := strings.ReplaceAll(o.Survivors, config.Verify.Dir, "DIR"); got != tt.want {
				t.Errorf("fault %q\nwant  %q", got, tt.want)
			}
			if o.ExitCode == nil || *o.ExitCode != 0 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

func TestNoVerifyDirectoryIsOffUntilThereIsOne(t *testing.T) {
	config, dir, _ := verifying(t)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	a := newTestAgent(t, config)
	record := func(name string) bool { return exists(config.DataDir, jobsDir, name, outcomeFile) }
	if o := a.runJob(t, 1, "true"); o.Survivors != "" || record("1-1") {
		t.Errorf("without a directory: %+v, record %v", o, record("1-1"))
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if o := a.runJob(t, 2, "true"); o.Survivors != "" || record("2-2") {
		t.Errorf("with an empty one: %+v, record %v", o, record("2-2"))
	}
	executableFile(t, filepath.Join(dir, "a"), "exit 1")
	if o := a.runJob(t, 3, "true"); o.Survivors != "verify failed: a: exited 1" || !record("3-3") {
		t.Errorf("with a script: %+v, record %v", o, record("3-3"))
	}
}

func TestWhatIsNotExecutableIsSkippedAndNamedOnce(t *testing.T) {
	config, dir, notes := verifying(t)
	if err := os.WriteFile(filepath.Join(dir, "a.bak"), []byte("#!/bin/sh\nexit 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	executableFile(t, filepath.Join(dir, "c"), "echo x >> "+notes+"/runs")
	a := newTestAgent(t, config)
	var mu sync.Mutex
	var said strings.Builder
	a.log = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return said.Write(p)
	}), nil))
	for n := range uint64(3) {
		if o := a.runJob(t, n+1, "true"); o.Survivors != "" {
			t.Errorf("outcome %+v", o)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"a.bak", "b"} {
		if n := strings.Count(said.String(), "path="+filepath.Join(dir, name)+"\n"); n != 1 {
			t.Errorf("%s named %d times in\n%s", name, n, said.String())
		}
	}
	if n := lines(filepath.Join(notes, "runs")); n != 3 {
		t.Errorf("%d runs", n)
	}
}

func TestVerifyComesAfterTheWholeTreeAndBeforeTheOutcome(t *testing.T) {
	config, dir, notes := verifying(t)
	executableFile(t, filepath.Join(dir, "a"), `kill -0 $(cat `+notes+`/pid) 2>/dev/null && echo still there >&2 && exit 1
touch `+notes+`/looking; until [ -e `+notes+`/go ]; do sleep 0.01; done`)
	a := newTestAgent(t, config)
	a.Order(context.Background(), order(wire.OrderStart, 1, 1, sh("setsid sleep 600 & echo $! > "+notes+"/pid; exit 3")...))
	eventually(t, "looking", func() bool {
		if _, o := a.phase(key{1, 1}); o != nil {
			t.Fatalf("told before the look was over: %+v", o)
		}
		return exists(notes, "looking")
	})
	// A later lease waits for the look.
	a.Order(context.Background(), order(wire.OrderStart, 2, 2, "true"))
	if phase, o := a.phase(key{2, 2}); phase != wire.PhaseStarting || o != nil {
		t.Errorf("next job: phase %v, outcome %+v", phase, o)
	}
	if exists(config.DataDir, jobsDir, "2-2", "spec.cbor") {
		t.Error("the next job has begun")
	}
	if err := os.WriteFile(filepath.Join(notes, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := a.awaitOutcome(t, key{1, 1}); o.Survivors != "" || *o.ExitCode != 3 {
		t.Errorf("outcome %+v", o)
	}
	if o := a.awaitOutcome(t, key{2, 2}); o.Survivors != "" || *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
}

func TestVerifyRunsAfterKilledJobsAndHolds(t *testing.T) {
	config, dir, notes := verifying(t)
	executableFile(t, filepath.Join(dir, "a"), "echo $RC_JOB_ID >> "+notes+"/runs")
	a := newTestAgent(t, config)
	hold := order(wire.OrderStart, 2, 2, "hold")
	hold.Start.Kind = uint8(model.KindHold)
	for i, o := range []wire.Order{order(wire.OrderStart, 1, 1, "sleep", "600"), hold} {
		a.Order(context.Background(), o)
		k := key{uint64(i) + 1, uint64(i) + 1}
		eventually(t, "running", func() bool { p, _ := a.phase(k); return p == wire.PhaseRunning })
		a.Order(context.Background(), order(wire.OrderKill, k.job, k.lease))
		if o := a.awaitOutcome(t, k); o.End != uint8(command.EndKilled) || o.Survivors != "" {
			t.Errorf("outcome %+v", o)
		}
	}
	if o := a.runJob(t, 3, "no-such-program"); o.End != uint8(command.EndStartFailed) {
		t.Errorf("outcome %+v", o)
	}
	if got := read(t, notes, "runs"); got != "j-1\nj-2\nj-3\n" {
		t.Errorf("runs %q", got)
	}
}

func TestAFaultOfOneOfSeveralDevicesSaysWhichOne(t *testing.T) {
	config, dir, _ := verifying(t)
	executableFile(t, filepath.Join(dir, "a"), `[ "$RC_DEVICE/$CUDA_VISIBLE_DEVICES" != box:gpu1/1 ] || exit 5`)
	a := newTestAgent(t, config)
	o := order(wire.OrderStart, 1, 1, "true")
	o.Start.Devices = []string{"box:gpu0", "box:gpu1"}
	a.Order(context.Background(), o)
	if o := a.awaitOutcome(t, key{1, 1}); o.Survivors != "verify failed: gpu1: a: exited 5" {
		t.Errorf("outcome %+v", o)
	}
}

func TestVerifyRunsForJobsThatEndedWhileTheAgentWasAway(t *testing.T) {
	config, dir, notes := verifying(t)
	executableFile(t, filepath.Join(dir, "a"), "echo $RC_DEVICE $RC_JOB_ID $RC_SUBMITTER >> "+notes+"/runs; echo left >&2; exit 1")
	c := controlOf(t, &config)
	first := startAgent(t, config)
	c.want(1, nil, sh("until [ -e "+notes+"/go ]; do sleep 0.02; done; exit 6")...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	first.stop()
	if err := os.WriteFile(filepath.Join(notes, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "over", func() bool { return exists(config.DataDir, jobsDir, "1-1", "result.cbor") })
	startAgent(t, config)
	if o := c.outcome(t, 1); *o.ExitCode != 6 || o.Survivors != "verify failed: a: exited 1: left" {
		t.Errorf("outcome %+v", o)
	}
	if got := read(t, notes, "runs"); got != "box:gpu0 j-1 ann\n" {
		t.Errorf("runs %q", got)
	}
}

// controlOf gives a configuration a controller of the test's own.
func controlOf(t *testing.T, config *Config) *control {
	c := newControl(t)
	config.Controllers = []string{c.addr}
	return c
}

func TestALookThatTheAgentsStopInterruptsIsMadeAgain(t *testing.T) {
	config, dir, notes := verifying(t)
	c := controlOf(t, &config)
	executableFile(t, filepath.Join(dir, "a"), "echo $$ >> "+notes+"/runs; [ -e "+notes+"/go ] || exec sleep 600")
	first := startAgent(t, config)
	c.want(1, nil, sh("exit 8")...)
	eventually(t, "looking", func() bool { return lines(filepath.Join(notes, "runs")) == 1 })
	id := identifyScript(t, filepath.Join(notes, "runs"))[0]
	first.stop()
	if proc.Alive(id) || exists(config.DataDir, jobsDir, "1-1", outcomeFile) {
		t.Errorf("script alive: %v, outcome there: %v", proc.Alive(id), exists(config.DataDir, jobsDir, "1-1", outcomeFile))
	}
	if err := os.WriteFile(filepath.Join(notes, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startAgent(t, config)
	if o := c.outcome(t, 1); *o.ExitCode != 8 || o.Survivors != "" {
		t.Errorf("outcome %+v", o)
	}
	if n := lines(filepath.Join(notes, "runs")); n != 2 {
		t.Errorf("%d runs", n)
	}
}

// TestAJobWhoseDeviceIsALaterLeasesIsNotLookedAt: its end was told, and lost on
// the way back, before the directory was made.
func TestAJobWhoseDeviceIsALaterLeasesIsNotLookedAt(t *testing.T) {
	config, dir, _ := verifying(t)
	a := newTestAgent(t, config)
	a.runJob(t, 1, "true")
	a.Order(context.Background(), order(wire.OrderStart, 2, 2, "sleep", "600"))
	eventually(t, "running", func() bool { p, _ := a.phase(key{2, 2}); return p == wire.PhaseRunning })
	executableFile(t, filepath.Join(dir, "a"), "exit 1")
	b := newTestAgent(t, config)
	if o := b.awaitOutcome(t, key{1, 1}); o.Survivors != "" || *o.ExitCode != 0 {
		t.Errorf("looked at: %+v", o)
	}
	b.Order(context.Background(), order(wire.OrderKill, 2, 2))
	if o := b.awaitOutcome(t, key{2, 2}); o.Survivors != "verify failed: a: exited 1" {
		t.Errorf("not looked at: %+v", o)
	}
}

func TestAnAgentKilledWhileItLooksIsFollowedByOneThatLooksAlone(t *testing.T) {
	config, dir, notes := verifying(t)
	c := controlOf(t, &config)
	executableFile(t, filepath.Join(dir, "a"), `echo $$ >> `+notes+`/runs
[ -e `+notes+`/first ] || { touch `+notes+`/first; sleep 600; }
for pid in $(cat `+notes+`/runs); do [ $pid = $$ ] || ! grep -qs "^State:.[^ZX]" /proc/$pid/status || { echo not alone >&2; exit 1; }; done`)
	cmd := startProcessWith(t, c, config.DataDir, "devices: [gpu0]\nverify_dir: "+dir+"\n")
	c.want(1, nil, sh("exit 5")...)
	eventually(t, "looking", func() bool { return lines(filepath.Join(notes, "runs")) == 1 && exists(notes, "first") })
	identifyScript(t, filepath.Join(notes, "runs"))
	cmd.end(unix.SIGKILL)
	startProcessWith(t, c, config.DataDir, "devices: [gpu0]\nverify_dir: "+dir+"\n")
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 5 || o.Survivors != "" {
		t.Errorf("outcome %+v", o)
	}
	if n := lines(filepath.Join(notes, "runs")); n != 2 {
		t.Errorf("%d runs", n)
	}
}
