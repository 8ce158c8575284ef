package agent

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"rcd/model"
	"rcd/wire"
)

// extend lengthens a job's limit in the lease table.
func (c *control) extend(job uint64, limitS int64) {
	c.mu.Lock()
	d := c.desired[job]
	d.Start.MaxRuntimeS = limitS
	c.desired[job] = d
	c.mu.Unlock()
	c.hub.Nudge("box")
}

// limitOf returns the limit that the leader was told last.
func (c *control) limitOf(job uint64) int64 {
	for _, contact := range c.hub.Contacts() {
		for _, j := range contact.Named {
			if j.Job == job {
				return j.MaxRuntimeS
			}
		}
	}
	return 0
}

func TestAnExtensionHoldsAlsoAfterARestartOfTheAgent(t *testing.T) {
	t.Parallel()
	c := newControlOf(t, rand.Text())
	config := testConfig(dataDir(t), c)
	first := startAgent(t, config)
	c.want(1, func(s *wire.StartJob) { s.MaxRuntimeS = 7 }, "sleep", "60")
	c.want(2, func(s *wire.StartJob) {
		s.MaxRuntimeS, s.Kind, s.Devices = 7, uint8(model.KindHold), []string{"box:gpu1"}
	}, "hold")
	eventually(t, "limits told", func() bool { return c.limitOf(1) == 7 && c.limitOf(2) == 7 })
	c.extend(1, 9)
	c.extend(2, 9)
	eventually(t, "longer limits told", func() bool { return c.limitOf(1) == 9 && c.limitOf(2) == 9 })
	first.stop()
	c.lead(2)
	second := startAgent(t, config)
	eventually(t, "told by the next agent", func() bool { return c.limitOf(1) == 9 && c.limitOf(2) == 9 })
	second.stop()
	c.extend(1, 10) // while nobody is there
	startAgent(t, config)
	if o := c.outcome(t, 2); o.Reason != "max_runtime exceeded (9s)" {
		t.Errorf("hold: %+v", o)
	}
	if o := c.outcome(t, 1); o.Reason != "max_runtime exceeded (10s)" || o.Origin != uint8(model.OriginJob) {
		t.Errorf("job: %+v", o)
	}
}

func TestAnExtensionAtAnyMomentOfTheStartIsTaken(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	for n := range uint64(10) {
		k := key{n + 1, n + 1}
		start := order(wire.OrderStart, k.job, k.lease, "sleep", "60")
		start.Start.MaxRuntimeS = 100
		a.Order(context.Background(), start)
		time.Sleep(time.Duration(n) * 2 * time.Millisecond)
		extend := order(wire.OrderExtend, k.job, k.lease)
		extend.MaxRuntimeS = 200
		a.Order(context.Background(), extend)
		eventually(t, "running under the longer limit", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			j := a.jobs[k]
			return j.phase == wire.PhaseRunning && j.report().MaxRuntimeS == 200
		})
		a.Order(context.Background(), order(wire.OrderKill, k.job, k.lease))
		a.awaitOutcome(t, k)
	}
}

func TestAnExtensionMayComeTwiceLateOrForNobody(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	extend := func(job uint64, limitS int64) wire.OrderAck {
		o := order(wire.OrderExtend, job, job)
		o.MaxRuntimeS = limitS
		return a.Order(context.Background(), o)
	}
	if ack := extend(1, 60); ack.Code != wire.OrderUnknownJob {
		t.Errorf("for nobody: %+v", ack)
	}
	start := order(wire.OrderStart, 1, 1, "sleep", "60")
	start.Start.MaxRuntimeS = 100
	a.Order(context.Background(), start)
	// Before its shim is up: the shim starts with it, or is told at once.
	for _, limitS := range []int64{300, 200, 300, 0, -5} {
		if ack := extend(1, limitS); ack.Code != "" || ack.Job == nil {
			t.Errorf("%d: %+v", limitS, ack)
		}
	}
	limit := func() int64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.jobs[key{1, 1}].report().MaxRuntimeS
	}
	running := func() bool { p, _ := a.phase(key{1, 1}); return p == wire.PhaseRunning }
	eventually(t, "running under the longest", func() bool { return running() && limit() == 300 })
	extend(1, 500)
	extend(1, 400)
	eventually(t, "the longer one taken", func() bool { return limit() == 500 })
	a.Order(context.Background(), order(wire.OrderKill, 1, 1))
	a.awaitOutcome(t, key{1, 1})
	if ack := extend(1, 900); ack.Code != "" || ack.Job.Phase != wire.PhaseEnded || ack.Job.MaxRuntimeS != 0 {
		t.Errorf("after its end: %+v", ack)
	}
	unlimited := order(wire.OrderStart, 2, 2, "sleep", "60")
	a.Order(context.Background(), unlimited)
	eventually(t, "second runs", func() bool { p, _ := a.phase(key{2, 2}); return p == wire.PhaseRunning })
	extend(2, 1)
	time.Sleep(10 * time.Millisecond)
	a.mu.Lock()
	if r := a.jobs[key{2, 2}].report(); r.MaxRuntimeS != 0 {
		t.Errorf("a job without a limit was given one: %+v", r)
	}
	a.mu.Unlock()
}

func TestAJobThatEndedWithoutAnAgentIsNotTakenForOneOfAnEarlierRelease(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	first := startAgent(t, config)
	c.want(1, func(s *wire.StartJob) { s.MaxRuntimeS = 3600 }, "sleep", "600")
	eventually(t, "running", func() bool { return c.isRunning(1) })
	first.stop()
	if err := Drain(t.Context(), config.DataDir, testLog(t)); err != nil {
		t.Fatal(err)
	}
	log := &logBook{}
	startAgentWith(t, config, func(d *Deps) { d.Logger = log.logger() })
	if o := c.outcome(t, 1); o.Reason != reasonDrained {
		t.Errorf("outcome %+v", o)
	}
	if text := log.text(); !strings.Contains(text, "job adopted") || strings.Contains(text, "earlier release") {
		t.Error(text)
	}
}
