package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// A job inside a hold that the box has ended did not end by anybody's wish.
func TestAJobThatEndsWithItsHoldSaysWhoseDoingThatIs(t *testing.T) {
	killShim := func(t *testing.T, a *agent) {
		t.Helper()
		all, err := shims()
		if err == nil {
			err = proc.Signal(all[a.dirOf(key{1, 1})], unix.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(t *testing.T, a *agent, job uint64, origin model.Origin) {
		t.Helper()
		o := a.awaitOutcome(t, key{job, 1})
		if o.End != uint8(command.EndKilled) || o.Reason != "hold j-1 ended" || model.Origin(o.Origin) != origin {
			t.Errorf("job %d: end %d, %q, origin %s, want origin %s", job, o.End, o.Reason, model.Origin(o.Origin), origin)
		}
	}
	t.Run("killed", func(t *testing.T) {
		a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
		a.start1(t, holdOrder(1))
		a.start1(t, insideOrder(wire.OrderStart, 2, "sleep", "600"))
		a.Order(context.Background(), order(wire.OrderKill, 1, 1))
		check(t, a, 2, model.OriginUser)
	})
	t.Run("its shim died", func(t *testing.T) {
		a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
		a.start1(t, holdOrder(1))
		a.start1(t, insideOrder(wire.OrderStart, 2, "sleep", "600"))
		killShim(t, a)
		check(t, a, 2, model.OriginAgent)
		a.Order(context.Background(), insideOrder(wire.OrderStart, 3, "true")) // it comes too late
		check(t, a, 3, model.OriginAgent)
		a.Order(context.Background(), insideOrder(wire.OrderKill, 4, "true"))
		if o := a.awaitOutcome(t, key{4, 1}); model.Origin(o.Origin) != model.OriginUser {
			t.Errorf("one that somebody killed: %+v", o)
		}
	})
	t.Run("its shim died and that was told", func(t *testing.T) {
		config := testConfig(dataDir(t), newControl(t))
		a := newTestAgent(t, config)
		a.start1(t, holdOrder(1))
		a.start1(t, insideOrder(wire.OrderStart, 2, sh("exec 2>/dev/null; trap '' TERM; echo up; while :; do sleep 0.05; done")...))
		killShim(t, a)
		a.awaitOutcome(t, key{1, 1})
		a.Acked(wire.OutcomeAck{Job: 1, Lease: 1})
		check(t, a, 2, model.OriginAgent)
	})
	t.Run("its record was lost and that was told", func(t *testing.T) {
		config := testConfig(dataDir(t), newControl(t))
		a := newTestAgent(t, config)
		a.start1(t, holdOrder(1))
		a.start1(t, insideOrder(wire.OrderStart, 2, sh("exec 2>/dev/null; trap '' TERM; echo up; while :; do sleep 0.05; done")...))
		killShim(t, a)
		a.awaitOutcome(t, key{1, 1})
		spec := filepath.Join(a.dirOf(key{1, 1}), "spec.cbor")
		if err := os.WriteFile(spec, []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
		b := newTestAgent(t, config)
		if o := b.awaitOutcome(t, key{1, 1}); o.Survivors == "" {
			t.Errorf("the hold: %+v", o)
		}
		b.Acked(wire.OutcomeAck{Job: 1, Lease: 1})
		check(t, b, 2, model.OriginHost)
	})
	t.Run("its device was not acquired", func(t *testing.T) {
		b := newHooked(t, 0, untilThere("go")+"; exit 1", "")
		a := newTestAgent(t, b.Config)
		a.Order(context.Background(), holdOrder(1))
		a.Order(context.Background(), insideOrder(wire.OrderStart, 2, "true"))
		b.touch(t, "go")
		check(t, a, 2, model.OriginDevice)
	})
}
