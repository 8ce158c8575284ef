package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"rcd/agent/probe"
	"rcd/model"
	"rcd/wire"
)

func TestAnErrorOfTheGPUStandsInTheReasonOfItsJob(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	bad, good, neighbour := a.hold(t, 1, 3, "gpu0"), a.hold(t, 2, 0, "gpu1"), a.hold(t, 3, 4, "sim")
	gpus.report(t, "GPU-0", 31, 31, 45, 31)
	gpus.report(t, "GPU-1", 13)
	if o := bad.finish(t); *o.ExitCode != 3 || o.Origin != uint8(model.OriginJob) || o.Survivors != "" ||
		o.Reason != "gpu0 reported XID 31 (GPU memory page fault), 3 times; gpu0 reported XID 45 (cleanup of a channel after an earlier error)" {
		t.Errorf("failed job: %+v", o)
	}
	if o := good.finish(t); *o.ExitCode != 0 || !strings.HasPrefix(o.Reason, "gpu1 reported XID 13 ") {
		t.Errorf("job that succeeds all the same: %+v", o)
	}
	if o := neighbour.finish(t); *o.ExitCode != 4 || o.Reason != "" {
		t.Errorf("job on no GPU: %+v", o)
	}
	a.wantNoFaults(t)
	// What was reported is not the next job's.
	if o := a.hold(t, 4, 5, "gpu0").finish(t); o.Reason != "" {
		t.Errorf("next job: %+v", o)
	}
}

func TestAnErrorThatMeansTheDeviceFaultsItAtOnceAndIsWhatTheJobFailedOf(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	j := a.hold(t, 1, 1, "gpu0")
	gpus.report(t, "GPU-0", 79)
	a.wantFault(t, "gpu0", "XID 79 (the GPU has fallen off the bus)", "GPU-0", "j-1")
	o := j.finish(t)
	if *o.ExitCode != 1 || o.Origin != uint8(model.OriginDevice) || !strings.Contains(o.Reason, "gpu0 reported XID 79") {
		t.Errorf("outcome %+v", o)
	}
	// No leader has taken the fault yet: the outcome must not give the device away.
	if !strings.HasPrefix(o.Survivors, "gpu0: XID 79") {
		t.Errorf("survivors %q", o.Survivors)
	}
	if b := newTestAgent(t, a.config); len(b.Faults()) != 1 {
		t.Errorf("after a restart: %v", b.Faults())
	}
	ok := a.hold(t, 2, 0, "gpu1")
	gpus.report(t, "GPU-1", 48)
	if o := ok.finish(t); o.Origin != uint8(model.OriginJob) || *o.ExitCode != 0 {
		t.Errorf("a job that succeeds failed of nothing: %+v", o)
	}
	a.wantFault(t, "gpu1", "XID 48")
}

func TestOfAJobsDevicesOnlyTheOneThatIsBrokenGoesOnceTheLeaderHasTakenIt(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	j := a.hold(t, 1, 1, "gpu0", "gpu1")
	gpus.report(t, "GPU-1", 79)
	a.wantFault(t, "gpu1", "XID 79")
	a.FaultAcked(wire.FaultAck{DeviceFault: a.Faults()[0], Index: 9})
	if o := j.finish(t); o.Survivors != "" || o.Origin != uint8(model.OriginDevice) {
		t.Errorf("outcome %+v", o)
	}
	// Without a leader both go: the broken one is among them.
	j = a.hold(t, 2, 1, "gpu0", "gpu1")
	gpus.report(t, "GPU-1", 62)
	if o := j.finish(t); !strings.HasPrefix(o.Survivors, "gpu1: XID 62") {
		t.Errorf("outcome %+v", o)
	}
}

func TestAnErrorWithoutAJobFaultsTheDeviceOrIsOnlyLogged(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	gpus.report(t, "GPU-0", 13, 31, 63, 4711)
	a.wantNoFaults(t)
	gpus.report(t, "GPU-0", 95)
	a.wantFault(t, "gpu0", "XID 95", "held by no job")
	o := a.hold(t, 1, 1, "gpu1").finish(t)
	if o.Reason != "" {
		t.Errorf("reason %q", o.Reason)
	}
	gpus.report(t, "GPU-1", 74)
	a.wantFault(t, "gpu1", "held by no job; j-1 had just ended")
	if _, o := a.phase(key{1, 1}); o.Reason != "" {
		t.Errorf("an outcome that is told changes no more: %q", o.Reason)
	}
}

func TestTheSiteSaysWhatAnErrorMeans(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	config := gpuConfig(t)
	config.XIDs = map[uint64]XIDMeaning{31: XIDDevice, 79: XIDJob, 13: XIDIgnore}
	a := newHealthAgent(t, config, gpus)
	j, k := a.hold(t, 1, 1, "gpu0"), a.hold(t, 2, 1, "gpu1")
	gpus.report(t, "GPU-0", 79, 13)
	gpus.report(t, "GPU-1", 31)
	if o := j.finish(t); o.Reason != "gpu0 reported XID 79 (the GPU has fallen off the bus)" || o.Origin != uint8(model.OriginJob) {
		t.Errorf("outcome %+v", o)
	}
	if o := k.finish(t); o.Origin != uint8(model.OriginDevice) {
		t.Errorf("outcome %+v", o)
	}
	if f := a.Faults(); len(f) != 1 || f[0].Device != "gpu1" {
		t.Errorf("faults %v", f)
	}
}

func TestAnErrorThatComesWithTheEndOfAJobIsItsOwn(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	j := a.hold(t, 1, 1, "gpu0")
	// The look at what is left comes after the job's processes are gone.
	gpus.say("GPU-0", func(context.Context) (probe.Use, error) {
		gpus.report(t, "GPU-0", 43)
		return probe.Use{Exact: true}, nil
	}, nil)
	if o := j.finish(t); !strings.Contains(o.Reason, "XID 43") {
		t.Errorf("outcome %+v", o)
	}
}

func TestWhatNoEventTellsIsFoundByTheCounters(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	var state atomic.Pointer[probe.State]
	state.Store(&probe.State{Uncorrected: 7})
	gpus.say("GPU-0", nil, func(context.Context) (probe.State, error) { return *state.Load(), nil })
	gpus.events["GPU-0"] = func(context.Context, func(probe.Event)) error { return probe.ErrNoEvents }
	a := newHealthAgent(t, gpuConfig(t), gpus)
	if o := a.hold(t, 1, 1, "gpu0").finish(t); o.Reason != "" {
		t.Errorf("errors from before the agent: %+v", o)
	}
	state.Store(&probe.State{Uncorrected: 7, RemapPending: true})
	if o := a.hold(t, 2, 1, "gpu0").finish(t); o.Reason != "" {
		t.Errorf("a row that was remapped: %+v", o)
	}
	if l := a.health.labels()["gpu0"]; l["remap_pending"] != "true" || len(l) != 1 {
		t.Errorf("labels %v", l)
	}
	a.wantNoFaults(t)
	state.Store(&probe.State{Uncorrected: 9, RemapPending: true})
	o := a.hold(t, 3, 1, "gpu0").finish(t)
	if !strings.Contains(o.Reason, "XID 48 (uncorrectable memory error): 2 more by the GPU's counter") || o.Origin != uint8(model.OriginDevice) {
		t.Errorf("outcome %+v", o)
	}
	a.wantFault(t, "gpu0", "XID 48")
	for _, f := range a.Faults() {
		a.FaultAcked(wire.FaultAck{DeviceFault: f, Index: 1})
	}
	a.Acked(wire.OutcomeAck{Job: 3, Lease: 3})
	state.Store(&probe.State{Uncorrected: 1, Recovery: "a reset of the GPU"}) // the counter began anew
	a.hold(t, 4, 0, "gpu0").finish(t)
	a.wantFault(t, "gpu0", "XID 154 (the driver asks for a reset): a reset of the GPU")
}

func TestAGPUThatIsLostIsAFaultOfItAlone(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	lost := func(context.Context) (probe.Use, error) { return probe.Use{}, probe.ErrLost }
	for n := uint64(1); n <= 2; n++ { // also when it is returned without being mended
		j := a.hold(t, n, 1, "gpu0", "gpu1")
		gpus.say("GPU-1", lost, func(context.Context) (probe.State, error) { return probe.State{}, probe.ErrLost })
		var wait sync.WaitGroup
		wait.Go(func() {
			eventually(t, "a fault", func() bool { return len(a.Faults()) > 0 })
			a.wantFault(t, "gpu1", "XID 79", "the GPU is lost")
			for _, f := range a.Faults() {
				a.FaultAcked(wire.FaultAck{DeviceFault: f, Index: 1})
			}
		})
		if o := j.finish(t); o.Survivors != "" || o.Origin != uint8(model.OriginDevice) {
			t.Errorf("outcome %+v", o)
		}
		wait.Wait()
	}
}

func TestAStormOfErrorsIsOneLineAndOneFault(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log bytes.Buffer
	g := &gpuHealth{
		site: func() map[uint64]probe.Meaning { return nil }, log: slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return log.Write(p) }), nil)),
		uuid: func(string) string { return "GPU-0" }, holders: func(string) []key { return []key{{1, 1}} }, seen: map[string]*gpuSeen{},
	}
	faults := 0
	g.fault = func(string, string) { faults++ }
	for range 1000 {
		g.heard("gpu0", probe.Event{XID: 79})
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || faults != 1 {
		t.Errorf("%d lines, %d faults", lines, faults)
	}
	for x := range uint64(1000) {
		g.heard("gpu0", probe.Event{XID: 1000 + x})
	}
	if s := g.seen["gpu0"]; len(s.errors[key{1, 1}].list) != maxGPUErrors || len(s.heard) > maxHeard || s.errors[key{1, 1}].list[0].times != 1000 {
		t.Errorf("%d errors, %d heard", len(s.errors[key{1, 1}].list), len(s.heard))
	}
}

func TestAnErrorAfterTheOutcomeIsMadeIsNotLostInIt(t *testing.T) {
	t.Parallel()
	var faults []string
	g := &gpuHealth{
		site: func() map[uint64]probe.Meaning { return nil }, log: testLog(t), uuid: func(string) string { return "GPU-0" }, holders: func(string) []key { return []key{{1, 1}} },
		fault: func(_, detail string) { faults = append(faults, detail) }, seen: map[string]*gpuSeen{},
	}
	j := &job{key: key{1, 1}, devices: []string{"gpu0"}}
	g.heard("gpu0", probe.Event{XID: 48})
	if all := g.errorsOf(j, true); len(all["gpu0"]) != 1 {
		t.Errorf("errors %v", all)
	}
	g.heard("gpu0", probe.Event{XID: 79}) // the job has its outcome, and has not been told to be over
	if all := g.errorsOf(j, true); len(all) != 0 {
		t.Errorf("errors %v", all)
	}
	if len(faults) != 2 || !strings.HasSuffix(faults[0], "held by j-1") || !strings.HasSuffix(faults[1], "held by no job; j-1 had just ended") {
		t.Errorf("faults %q", faults)
	}
}

func TestAWatchThatEndsBeginsAgain(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	var begun atomic.Int32
	gpus.events["GPU-0"] = func(ctx context.Context, _ func(probe.Event)) error {
		if begun.Add(1) == 1 {
			return errors.New("the driver is being reloaded")
		}
		<-ctx.Done()
		return nil
	}
	newHealthAgent(t, gpuConfig(t), gpus)
	eventually(t, "a second watch", func() bool { return begun.Load() == 2 })
}

func TestOfTwoJobsOnADeviceTheEarlierHasTheError(t *testing.T) {
	t.Parallel()
	a := newTestAgent(t, gpuConfig(t))
	a.mu.Lock()
	for _, n := range []uint64{12, 11, 13} {
		a.jobs[key{n, n}] = a.newJob(key{n, n}, []string{"gpu0"})
	}
	a.jobs[key{11, 11}].ended(wire.Outcome{})
	a.mu.Unlock()
	if all := a.holders("gpu0"); len(all) != 1 || all[0].job != 12 {
		t.Errorf("holders %v", all)
	}
	if all := a.holders("gpu1"); all != nil {
		t.Errorf("holders of an idle device: %v", all)
	}
}
