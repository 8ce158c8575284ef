package agent

import (
	"context"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// occupy makes a job one that is on devices.
func (a *agent) occupy(k key, devices ...string) *job {
	j := a.newJob(k, devices)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs[k] = j
	return j
}

func onBoth(o wire.Order) wire.Order {
	o.Start.Devices = []string{"box:gpu0", "box:gpu1"}
	return o
}

// What the first of two jobs has left counts also when it ended before the other
// one, whichever of them was waited for.
func TestWhatAnyJobBeforeHasLeftKeepsTheNextOneOff(t *testing.T) {
	const left = "processes of the job are left: pid 7 (x)"
	for _, dirty := range []int{0, 1} {
		a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
		before := []*job{a.occupy(key{1, 10}, "gpu0"), a.occupy(key{2, 11}, "gpu1")}
		a.Order(context.Background(), onBoth(order(wire.OrderStart, 3, 12, "true")))
		eventually(t, "it waits", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return before[0].killing != "" && before[1].killing != ""
		})
		a.finish(before[dirty], wire.Outcome{End: uint8(command.EndKilled), Survivors: left})
		a.finish(before[1-dirty], wire.Outcome{End: uint8(command.EndKilled)})
		o := a.awaitOutcome(t, key{3, 12})
		ending{command.EndStartFailed, model.OriginDevice, []string{"pid 7 (x)", "rc clear"}}.check(t, o)
		if o.Survivors != left {
			t.Errorf("the devices stay in the pool: %q", o.Survivors)
		}
	}
}

// The order may have been on its way before the leader knew.
func TestWhatAnEndedJobHasLeftCountsUntilItsOutcomeIsTaken(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	left := "verify failed: 10-memory: exited 1: 3 GiB"
	a.settle(a.occupy(key{1, 10}, "gpu0"), wire.Outcome{End: uint8(command.EndExited), Survivors: left})
	a.Order(context.Background(), order(wire.OrderStart, 2, 11, "true"))
	o := a.awaitOutcome(t, key{2, 11})
	ending{command.EndStartFailed, model.OriginDevice, []string{"start: the device is not free: " + left, "rc clear"}}.check(t, o)
	if strings.Contains(o.Reason, "end them") {
		t.Errorf("nothing is there to be ended: %q", o.Reason)
	}
	// However long the one is, the lease table has room for the advice.
	a.settle(a.occupy(key{3, 12}, "gpu1"), wire.Outcome{End: uint8(command.EndExited), Survivors: strings.Repeat("pid 7 (x), ", 200)})
	a.Order(context.Background(), onBoth(order(wire.OrderStart, 4, 13, "true")))
	if o := a.awaitOutcome(t, key{4, 13}); len(o.Reason) > 1024 || !strings.HasSuffix(o.Reason, "rc clear") {
		t.Errorf("%d bytes: %q", len(o.Reason), o.Reason)
	}
	for n := range uint64(2) {
		a.Acked(wire.OutcomeAck{Job: n + 3, Lease: n + 12})
	}
	// Neither counts once the leader has both, which takes the device out itself.
	a.Acked(wire.OutcomeAck{Job: 1, Lease: 10})
	a.Acked(wire.OutcomeAck{Job: 2, Lease: 11})
	if o := a.runJob(t, 20, "true"); o.End != uint8(command.EndExited) || o.Survivors != "" {
		t.Errorf("after an operator has returned the device: %+v", o)
	}
}

// A kill of a job that never came raises the fence; what waited for the device
// under a lease between the two is dropped, and nobody waits for that.
func TestAJobThatIsDroppedHoldsNobodyUp(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	at, goOn := make(chan struct{}), make(chan struct{})
	a.deps.reached = func(p point) {
		select {
		case <-goOn: // the others pass
		default:
			if p == atDirMade {
				at <- struct{}{}
				<-goOn
			}
		}
	}
	a.Order(context.Background(), order(wire.OrderStart, 1, 10, "true"))
	<-at
	if v, err := a.state.begin([]string{"gpu0"}, claim{lease: 11}); v != fenceOpen || err != nil { // as the kill of lease 11 does
		t.Fatal(v, err)
	}
	a.Order(context.Background(), order(wire.OrderStart, 3, 12, "true"))
	eventually(t, "the third waits for the first", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.jobs[key{1, 10}].killing != ""
	})
	close(goOn)
	if o := a.awaitOutcome(t, key{3, 12}); o.End != uint8(command.EndExited) {
		t.Errorf("outcome %+v", o)
	}
	if _, o := a.phase(key{1, 10}); o != nil {
		t.Error("the dropped one is still answered for")
	}
}
