package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcd/agent/shim"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// newTestAgent is an agent without a link, to give orders to by hand.
func newTestAgent(t *testing.T, config Config) *agent {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(config.DataDir, jobsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := newAgent(ctx, config, Deps{Logger: testLog(t), Exec: executable(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.adopt(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close(cancel) })
	return a
}

func order(kind wire.OrderKind, job, lease uint64, command ...string) wire.Order {
	o := wire.Order{Kind: kind, Job: job, Lease: lease}
	if len(command) > 0 {
		o.Start = &wire.StartJob{Job: job, Lease: lease, Devices: []string{"box:gpu0"}, Command: command, Submitter: "ann"}
	}
	return o
}

func (a *agent) phase(k key) (wire.JobPhase, *wire.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs[k]; j != nil {
		return j.phase, j.outcome
	}
	return 0, nil
}

func (a *agent) awaitOutcome(t *testing.T, k key) wire.Outcome {
	t.Helper()
	var o *wire.Outcome
	eventually(t, "outcome of "+k.name(), func() bool { _, o = a.phase(k); return o != nil })
	return *o
}

func TestARepeatedStartAnswersWithThePresentState(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	runs := filepath.Join(t.TempDir(), "runs")
	start := order(wire.OrderStart, 1, 10, sh("echo x >> "+runs+"; sleep 0.2; exit 4")...)
	if ack := a.Order(context.Background(), start); ack.Code != "" || ack.Job == nil || ack.Job.Phase != wire.PhaseStarting {
		t.Fatalf("first ack %+v", ack)
	}
	eventually(t, "running", func() bool { p, _ := a.phase(key{1, 10}); return p == wire.PhaseRunning })
	if ack := a.Order(context.Background(), start); ack.Code != "" || ack.Job.Phase != wire.PhaseRunning {
		t.Errorf("ack while it runs %+v", ack)
	}
	a.awaitOutcome(t, key{1, 10})
	if ack := a.Order(context.Background(), start); ack.Code != "" || ack.Job.Phase != wire.PhaseEnded {
		t.Errorf("ack after its end %+v", ack)
	}
	a.Acked(wire.OutcomeAck{Job: 1, Lease: 10})
	if ack := a.Order(context.Background(), start); ack.Code != "" || ack.Job == nil || ack.Job.Phase != wire.PhaseEnded {
		t.Errorf("ack after the ack %+v", ack)
	}
	if o := a.awaitOutcome(t, key{1, 10}); *o.ExitCode != 4 {
		t.Errorf("told again: %+v", o)
	}
	if got := read(t, runs); got != "x\n" {
		t.Errorf("it ran %d times", strings.Count(got, "x"))
	}
}

func TestTheFenceOutlivesTheRecords(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	a := newTestAgent(t, config)
	a.Order(context.Background(), order(wire.OrderStart, 1, 10, "true"))
	a.awaitOutcome(t, key{1, 10})
	a.Acked(wire.OutcomeAck{Job: 1, Lease: 10})
	if err := os.RemoveAll(filepath.Join(config.DataDir, jobsDir)); err != nil {
		t.Fatal(err)
	}

	b := newTestAgent(t, config)
	if ack := b.Order(context.Background(), order(wire.OrderStart, 2, 9, "true")); ack.Code != wire.OrderStaleLease {
		t.Errorf("an earlier lease: %+v", ack)
	}
	if ack := b.Order(context.Background(), order(wire.OrderStart, 1, 10, "true")); ack.Job == nil || ack.Job.Phase != wire.PhaseEnded {
		t.Errorf("the same lease: %+v", ack)
	}
	if o := b.awaitOutcome(t, key{1, 10}); o.End != uint8(command.EndSupervisorDied) || o.ExitCode != nil || o.Reason != reasonRecordLost || o.Survivors != "" {
		t.Errorf("outcome %+v", o)
	}
	if ack := b.Order(context.Background(), order(wire.OrderStart, 3, 11, "true")); ack.Code != "" {
		t.Errorf("a later lease: %+v", ack)
	}
	if o := b.awaitOutcome(t, key{3, 11}); *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
}

func TestALaterLeaseEndsWhatIsOnTheDeviceFirst(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	device := filepath.Join(t.TempDir(), "gpu0")
	hold := []string{executable(t), "hold-device", device}
	a.Order(context.Background(), order(wire.OrderStart, 1, 10, hold...))
	eventually(t, "first holds", func() bool { return os.Remove(device+".held") == nil })
	a.Order(context.Background(), order(wire.OrderStart, 2, 11, hold...))
	if o := a.awaitOutcome(t, key{1, 10}); o.End != uint8(command.EndKilled) || o.Reason != reasonSuperseded+"l-11" || o.Origin != uint8(model.OriginAgent) {
		t.Errorf("first ended with %+v", o)
	}
	eventually(t, "second holds", func() bool { return os.Remove(device+".held") == nil })
	a.Order(context.Background(), order(wire.OrderKill, 2, 11))
	if o := a.awaitOutcome(t, key{2, 11}); o.Reason != reasonCancelled || o.Origin != uint8(model.OriginUser) {
		t.Errorf("second ended with %+v", o)
	}
	if _, err := os.Stat(device + ".twice"); err == nil {
		t.Error("two jobs were on the device")
	}
}

func TestAKillAtAnyMomentOfTheStartIsObeyed(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	for n := range uint64(20) {
		k := key{n + 1, n + 1}
		a.Order(context.Background(), order(wire.OrderStart, k.job, k.lease, "sleep", "60"))
		time.Sleep(time.Duration(n) * 2 * time.Millisecond)
		a.Order(context.Background(), order(wire.OrderKill, k.job, k.lease))
		if o := a.awaitOutcome(t, k); o.End != uint8(command.EndKilled) || o.Reason != reasonCancelled {
			t.Errorf("job %d: %+v", k.job, o)
		}
	}
}

func TestAKillBeforeTheStartIsFinal(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	kill := order(wire.OrderKill, 1, 10, "true")
	kill.Reason = "cancelled"
	if ack := a.Order(context.Background(), kill); ack.Job == nil || ack.Job.Phase != wire.PhaseEnded {
		t.Fatalf("ack %+v", ack)
	}
	if o := a.awaitOutcome(t, key{1, 10}); o.End != uint8(command.EndKilled) || o.ExitCode != nil {
		t.Errorf("outcome %+v", o)
	}
	a.Acked(wire.OutcomeAck{Job: 1, Lease: 10})
	if ack := a.Order(context.Background(), order(wire.OrderStart, 1, 10, "true")); ack.Job == nil || ack.Job.Phase != wire.PhaseEnded {
		t.Errorf("a start after it: %+v", ack)
	}
	if ack := a.Order(context.Background(), order(wire.OrderKill, 9, 9)); ack.Code != wire.OrderUnknownJob {
		t.Errorf("a kill of nothing: %+v", ack)
	}
}

func TestAJobThatHadNotBegunIsStartedByTheNextOrder(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	a := newTestAgent(t, config)
	// What an agent leaves that dies between fence and spec, and between spec
	// and shim.
	if err := os.MkdirAll(filepath.Join(config.DataDir, jobsDir, "1-10"), 0o700); err != nil {
		t.Fatal(err)
	}
	if v, err := a.state.begin([]string{"gpu0"}, claim{lease: 10}); v != fenceOpen || err != nil {
		t.Fatal(v, err)
	}
	spec := a.spec(a.newJob(key{2, 11}, []string{"gpu1"}), wire.StartJob{Job: 2, Lease: 11, Command: []string{"true"}}, []string{"RC_JOB_ID=j-2", "RC_DEVICE=box:gpu1"})
	if _, err := shim.Start(shim.Config{Dir: filepath.Join(config.DataDir, jobsDir, "2-11"), Exec: "/no/such/rcd", Spec: spec}); err == nil {
		t.Fatal("started without an executable")
	}
	if v, err := a.state.begin([]string{"gpu1"}, claim{lease: 11}); v != fenceOpen || err != nil {
		t.Fatal(v, err)
	}

	b := newTestAgent(t, config)
	hello := b.Hello()
	if len(hello.Jobs) != 0 || hello.Devices[0].Begun != 9 || hello.Devices[1].Begun != 10 {
		t.Errorf("hello %+v: neither has begun", hello)
	}
	second := order(wire.OrderStart, 2, 11, sh("exit 6")...)
	second.Start.Devices = []string{"box:gpu1"}
	b.Order(context.Background(), order(wire.OrderStart, 1, 10, sh("exit 5")...))
	b.Order(context.Background(), second)
	if o := b.awaitOutcome(t, key{1, 10}); *o.ExitCode != 5 {
		t.Errorf("outcome %+v", o)
	}
	if o := b.awaitOutcome(t, key{2, 11}); *o.ExitCode != 6 {
		t.Errorf("outcome %+v", o)
	}
}

func TestARecordThatIsBeingReadIsKept(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.KeepJobs = 1
	a := newTestAgent(t, config)
	for n := range uint64(3) {
		a.Order(context.Background(), order(wire.OrderStart, n+1, n+1, "true"))
		a.awaitOutcome(t, key{n + 1, n + 1})
		a.Acked(wire.OutcomeAck{Job: n + 1, Lease: n + 1})
	}
	k, release := a.janitor.holdLatest(1)
	if release == nil || k != (key{1, 1}) {
		t.Fatalf("held %v", k)
	}
	a.janitor.sweep(context.Background())
	left := func() (names []string) {
		entries, _ := os.ReadDir(filepath.Join(config.DataDir, jobsDir))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := left(); len(got) != 1 || got[0] != "1-1" {
		t.Errorf("left %q, want the one that is read and nothing else", got)
	}
	release()
	config.KeepJobs = 0
	a.live.Store(&config)
	a.janitor.sweep(context.Background())
	if got := left(); len(got) != 0 {
		t.Errorf("left %q after its reader has gone", got)
	}
}
