package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/agent/probe"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// holdOrder starts hold n under lease n.
func holdOrder(n uint64) wire.Order {
	o := order(wire.OrderStart, n, n, "none")
	o.Start.Kind = uint8(model.KindHold)
	return o
}

// insideOrder is an order for a job inside hold 1.
func insideOrder(kind wire.OrderKind, job uint64, command ...string) wire.Order {
	o := order(kind, job, 1, command...)
	o.Start.Hold = 1
	return o
}

func (a *agent) start1(t *testing.T, o wire.Order) {
	t.Helper()
	if ack := a.Order(context.Background(), o); ack.Code != "" {
		t.Fatalf("ack %+v", ack)
	}
	eventually(t, "running", func() bool { p, end := a.phase(key{o.Job, o.Lease}); return p == wire.PhaseRunning || end != nil })
}

func TestARepeatedStartInsideAHoldNeverStartsTwice(t *testing.T) {
	config := testConfig(dataDir(t), newControl(t))
	a := newTestAgent(t, config)
	runs := filepath.Join(t.TempDir(), "runs")
	a.start1(t, holdOrder(1))
	start := insideOrder(wire.OrderStart, 2, sh("echo x >> "+runs+"; exec sleep 600")...)
	a.start1(t, start)
	if ack := a.Order(context.Background(), start); ack.Code != "" || ack.Job == nil || ack.Job.Phase != wire.PhaseRunning {
		t.Errorf("ack while it runs %+v", ack)
	}
	eventually(t, "it has said that it ran", func() bool { return lines(runs) == 1 })
	a.Order(context.Background(), order(wire.OrderKill, 2, 1))
	a.awaitOutcome(t, key{2, 1})
	a.Acked(wire.OutcomeAck{Job: 2, Lease: 1})
	if ack := a.Order(context.Background(), start); ack.Job == nil || ack.Job.Phase != wire.PhaseEnded {
		t.Errorf("ack after the ack %+v", ack)
	}
	// Its record is lost, and the agent another one.
	b := newTestAgent(t, config)
	b.Acked(wire.OutcomeAck{Job: 2, Lease: 1})
	if err := os.RemoveAll(filepath.Join(config.DataDir, jobsDir, "2-1")); err != nil {
		t.Fatal(err)
	}
	if ack := b.Order(context.Background(), start); ack.Job == nil || ack.Job.Phase != wire.PhaseEnded {
		t.Errorf("ack without a record %+v", ack)
	}
	if o := b.awaitOutcome(t, key{2, 1}); o.Reason != reasonRecordLost || o.Survivors != "" {
		t.Errorf("outcome %+v", o)
	}
	if n := lines(runs); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	b.start1(t, insideOrder(wire.OrderStart, 3, "true")) // others may still come
	if o := b.awaitOutcome(t, key{3, 1}); o.ExitCode == nil || *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
}

func TestAJobInsideComesWithItsHoldAndNeverAfterIt(t *testing.T) {
	b := newHooked(t, 0, untilThere("go"), "")
	a := newTestAgent(t, b.Config)
	inside := insideOrder(wire.OrderStart, 2, "true")
	if ack := a.Order(context.Background(), inside); ack.Code != orderBusy {
		t.Errorf("before its hold: %+v", ack)
	}
	a.Order(context.Background(), holdOrder(1))
	if ack := a.Order(context.Background(), inside); ack.Code != "" || ack.Job.Phase != wire.PhaseStarting {
		t.Errorf("while the hold acquires: %+v", ack)
	}
	other := insideOrder(wire.OrderStart, 3, "true")
	other.Start.Devices = []string{"box:gpu1"}
	if ack := a.Order(context.Background(), other); ack.Code != wire.OrderFailed {
		t.Errorf("on another device: %+v", ack)
	}
	b.touch(t, "go")
	if o := a.awaitOutcome(t, key{2, 1}); o.ExitCode == nil || *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
	a.Order(context.Background(), order(wire.OrderKill, 1, 1))
	a.awaitOutcome(t, key{1, 1})
	for _, acked := range []bool{false, true} {
		job := uint64(4)
		if acked {
			job = 5
			a.Acked(wire.OutcomeAck{Job: 1, Lease: 1})
		}
		a.Order(context.Background(), insideOrder(wire.OrderStart, job, "true"))
		if o := a.awaitOutcome(t, key{job, 1}); o.End != uint8(command.EndKilled) || o.Reason != "hold j-1 ended" || o.ExitCode != nil {
			t.Errorf("after its hold, acked %v: %+v", acked, o)
		}
	}
	eventually(t, "released", func() bool { return b.ran("gpu0") == "acquire box:gpu0 j-1 ann\nrelease box:gpu0 j-1 ann\n" })
}

func TestAJobInsideDoesNotBeginOnceItsHoldIsOver(t *testing.T) {
	dir := t.TempDir()
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	a.start1(t, holdOrder(1))
	at, goOn := make(chan struct{}), make(chan struct{})
	a.deps.reached = func(p point) {
		if p == atFenceRaised {
			at <- struct{}{}
			<-goOn
		}
	}
	a.Order(context.Background(), insideOrder(wire.OrderStart, 2, "touch", dir+"/ran"))
	<-at
	a.Order(context.Background(), order(wire.OrderKill, 1, 1))
	a.awaitOutcome(t, key{1, 1})
	close(goOn)
	if o := a.awaitOutcome(t, key{2, 1}); o.End != uint8(command.EndKilled) || o.Reason != "hold j-1 ended" || exists(dir, "ran") {
		t.Errorf("outcome %+v", o)
	}
}

// A drain that leaves the jobs alone leaves a hold what it is for.
func TestADrainIsObeyedInsideAHold(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	a.start1(t, holdOrder(1))
	a.start1(t, insideOrder(wire.OrderStart, 2, "sleep", "600"))
	if err := a.drainBegins(false, ""); err != nil {
		t.Fatal(err)
	}
	a.start1(t, insideOrder(wire.OrderStart, 3, "true"))
	if o := a.awaitOutcome(t, key{3, 1}); o.ExitCode == nil || *o.ExitCode != 0 {
		t.Errorf("one that comes to the hold: %+v", o)
	}
	if err := a.drainBegins(true, ""); err != nil {
		t.Fatal(err)
	}
	a.Order(context.Background(), insideOrder(wire.OrderStart, 4, "true"))
	for job := uint64(1); job <= 4; job++ {
		if o := a.awaitOutcome(t, key{job, 1}); job != 3 && (o.End != uint8(command.EndKilled) || job < 3 && o.Reason != reasonDrained) {
			t.Errorf("job %d with the jobs ended: %+v", job, o)
		}
	}
}

// A kill that comes before the hold does must not keep the hold out.
func TestAJobInsideThatIsKilledBeforeItsHoldComesLetsTheHoldBegin(t *testing.T) {
	config := testConfig(dataDir(t), newControl(t))
	a := newTestAgent(t, config)
	kill := insideOrder(wire.OrderKill, 2, "true")
	a.Order(context.Background(), kill)
	if o := a.awaitOutcome(t, key{2, 1}); o.End != uint8(command.EndKilled) {
		t.Errorf("outcome %+v", o)
	}
	b := newTestAgent(t, config)
	b.start1(t, holdOrder(1))
	if p, o := b.phase(key{1, 1}); p != wire.PhaseRunning {
		t.Fatalf("the hold: %v, %+v", p, o)
	}
	b.Acked(wire.OutcomeAck{Job: 2, Lease: 1})
	_ = os.RemoveAll(filepath.Join(config.DataDir, jobsDir, "2-1"))
	b.Order(context.Background(), insideOrder(wire.OrderStart, 2, "true"))
	if o := b.awaitOutcome(t, key{2, 1}); o.Reason != reasonRecordLost {
		t.Errorf("the killed one, ordered again: %+v", o)
	}
}

func TestALaterLeaseWaitsForEveryJobInsideTheEarlier(t *testing.T) {
	dir := t.TempDir()
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	a.start1(t, holdOrder(1))
	a.start1(t, insideOrder(wire.OrderStart, 2, sh("exec 2>/dev/null; trap ': > "+dir+"/asked' TERM; : > "+dir+"/up; until [ -e "+dir+"/asked ]; do sleep 0.01; done; sleep 0.1; : > "+dir+"/gone")...))
	eventually(t, "its trap", func() bool { return exists(dir, "up") })
	a.Order(context.Background(), order(wire.OrderStart, 3, 3, sh("[ -e "+dir+"/gone ]")...))
	if o := a.awaitOutcome(t, key{3, 3}); o.ExitCode == nil || *o.ExitCode != 0 {
		t.Errorf("it began beside the job of the earlier lease: %+v", o)
	}
	for _, k := range []key{{1, 1}, {2, 1}} {
		if o := a.awaitOutcome(t, k); !strings.HasPrefix(o.Reason, reasonSuperseded) && o.Reason != "hold j-1 ended" {
			t.Errorf("%v ended with %+v", k, o)
		}
	}
}

// TestOfThoseThatEndTogetherOneLooksAtTheDevices has a hold and its jobs end at
// the same moment, many times.
func TestOfThoseThatEndTogetherOneLooksAtTheDevices(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	var mu sync.Mutex
	looks := map[uint64]int{}
	a.checks = []check{{name: "count", lease: true, look: func(_ context.Context, j *job, _ wire.Outcome) finding {
		a.mu.Lock()
		for _, other := range a.jobs {
			if other.lease == j.lease && other.use == useNow {
				t.Errorf("job %d is looked after while job %d is there", j.job, other.job)
			}
		}
		a.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		looks[j.lease]++
		return finding{}
	}}}
	for lease := uint64(1); lease <= 50; lease++ {
		var jobs []*job
		for n := range uint64(4) {
			j := a.occupy(key{lease*10 + n, lease}, "gpu0")
			j.use = useNow
			if n > 0 {
				j.hold = lease * 10
			}
			jobs = append(jobs, j)
		}
		var wait sync.WaitGroup
		for _, j := range jobs {
			wait.Go(func() { a.conclude(j, wire.Outcome{End: uint8(command.EndKilled)}, false) })
		}
		wait.Wait()
		mu.Lock()
		if looks[lease] != 1 {
			t.Errorf("lease %d was looked after %d times", lease, looks[lease])
		}
		mu.Unlock()
	}
}

func TestTheFenceTellsJobsOfOneLeaseApart(t *testing.T) {
	dir := t.TempDir()
	s, _, _, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	must := func(want fenceVerdict, lease, inside uint64) {
		t.Helper()
		if v, err := s.begin([]string{"a", "b"}, claim{lease, inside}); v != want || err != nil {
			t.Fatalf("lease %d, job %d: %v, %v", lease, inside, v, err)
		}
	}
	must(fenceOpen, 5, 0)
	must(fenceOpen, 5, 11)
	must(fenceOpen, 5, 10) // one that was ordered before and comes after
	if s, _, _, err = openState(dir); err != nil {
		t.Fatal(err)
	}
	must(fenceBegun, 5, 10)
	must(fenceBegun, 5, 11)
	must(fenceBegun, 5, 0)
	must(fenceStale, 4, 12)
	for job := uint64(12); job < 12+maxInside; job++ {
		must(fenceOpen, 5, job)
	}
	if jobs := s.fence.Inside["a"].Jobs; len(jobs) != maxInside || !slices.IsSorted(jobs) {
		t.Errorf("%d jobs", len(jobs))
	}
	must(fenceBegun, 5, 11) // below the floor now
	must(fenceBegun, 5, 12)
	if err := s.unbegin(key{20, 5}, false); err != nil || s.begun("a") != 5 {
		t.Errorf("fence at %d, %v", s.begun("a"), err)
	}
	must(fenceOpen, 5, 20)
	must(fenceOpen, 6, 0)
	must(fenceStale, 5, 1000)
	if len(s.fence.Inside) != 0 {
		t.Errorf("left of the earlier lease: %v", s.fence.Inside)
	}
}

// TestAnErrorOfAGPUIsOfEveryJobInside: the driver does not say whose it is.
func TestAnErrorOfAGPUIsOfEveryJobInside(t *testing.T) {
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	var mu sync.Mutex
	use := probe.Use{TotalBytes: 80 << 30, Exact: true}
	gpus.say("GPU-0", func(context.Context) (probe.Use, error) {
		mu.Lock()
		defer mu.Unlock()
		return use, nil
	}, nil)
	go7 := filepath.Join(t.TempDir(), "go")
	script := sh("while [ ! -e " + go7 + " ]; do sleep 0.02; done; exit 1")
	a.start1(t, holdOrder(1))
	gpus.report(t, "GPU-0", 31) // to the hold: somebody uses its device by hand
	a.start1(t, insideOrder(wire.OrderStart, 2, script...))
	mu.Lock()
	use.UsedBytes, use.Processes = 9<<30, []probe.Process{{PID: 1 << 30, Command: "left", UsedBytes: 9 << 30}}
	mu.Unlock()
	a.start1(t, insideOrder(wire.OrderStart, 3, script...)) // what the one before has left is not from before the lease
	gpus.report(t, "GPU-0", 13)
	if err := os.WriteFile(go7, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for job, other := range map[uint64]string{2: "j-3", 3: "j-2"} {
		o := a.awaitOutcome(t, key{job, 1})
		if !strings.Contains(o.Reason, "gpu0 reported") || !strings.Contains(o.Reason, "("+other+" had it as well)") || strings.Contains(o.Reason, "31") {
			t.Errorf("job %d: %q", job, o.Reason)
		}
		if o.Survivors != "" {
			t.Errorf("job %d was looked after while the hold lives: %q", job, o.Survivors)
		}
	}
	a.health.within = 100 * time.Millisecond
	a.Order(context.Background(), order(wire.OrderKill, 1, 1))
	if o := a.awaitOutcome(t, key{1, 1}); !strings.Contains(o.Reason, "31") || strings.Contains(o.Reason, "13") || !strings.Contains(o.Survivors, "9216 MiB in use by pid 1073741824 (left)") {
		t.Errorf("the hold: %q, %q", o.Reason, o.Survivors)
	}
}
