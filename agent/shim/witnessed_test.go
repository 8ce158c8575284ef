package shim

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/witness"
)

// onDevice has a job witnessed as a lease on gpu0.
func onDevice(cfg Config, dir string, lease uint64) Config {
	cfg.Spec.Lease, cfg.Spec.Witness = lease, &witness.Place{Dir: dir, Devices: []string{"gpu0"}}
	return cfg
}

func wantWitness(t *testing.T, dir string, breaches int, leases ...uint64) {
	t.Helper()
	r, err := witness.Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Breaches) != breaches || !slices.Equal(r.Leases("gpu0"), leases) {
		t.Errorf("the witness saw leases %v and %q; want %v and %d breaches", r.Leases("gpu0"), r.Breaches, leases, breaches)
	}
}

func TestEachLeaseOfASimulatedDeviceIsWitnessed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "witness")
	wantEnd(t, await(t, start(t, onDevice(job(t, "exit 3"), dir, 1))), Exited, 3, "")
	missing := onDevice(config(t, []string{"no-such-program"}), dir, 2)
	if r := await(t, start(t, missing)); r.Outcome != StartFailed || !strings.Contains(r.Reason, "command not found") || !r.Clean() {
		t.Errorf("a missing program: %+v", r)
	}
	hold := onDevice(config(t, nil), dir, 3)
	hold.Spec.Kind = KindHold
	h := start(t, hold)
	wantWitness(t, dir, 0, 1, 2, 3)
	second := await(t, start(t, onDevice(job(t, "exit 0"), dir, 4)))
	if second.Outcome != StartFailed || second.Clean() || !strings.Contains(second.Reason, "gpu0 is in use by lease=3 job=j-7") {
		t.Errorf("beside a hold: %+v", second)
	}
	if second.Cause != CauseHost {
		t.Errorf("the blame for a device that is not free is on %q", second.Cause)
	}
	h.Kill("")
	wantEnd(t, await(t, h), Killed, 143, "cancelled")
	wantEnd(t, await(t, start(t, onDevice(job(t, "exit 0"), dir, 5))), Exited, 0, "")
	wantWitness(t, dir, 1, 1, 2, 3, 5)
}

// After the death of its shim nobody can tell such a process from a stranger:
// the device looks free, and only the witness knows better.
func TestAnEscapeeThatNobodyKnowsKeepsTheDevice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "witness")
	h := start(t, onDevice(acting(t, "wait,naked leave,wait"), dir, 1))
	escapee := last(t, h)
	t.Cleanup(func() { _ = proc.Signal(escapee, unix.SIGKILL) })
	for deadline := time.Now().Add(30 * time.Second); !child(t, escapee, shimOf(h)); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process between the job and the escapee does not end")
		}
	}
	if err := proc.Signal(shimOf(h), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := await(t, h); r.Outcome != SupervisorDied || !r.Clean() {
		t.Fatalf("result %+v", r)
	}
	if !proc.Alive(escapee) {
		t.Skip("the host has other means to find it")
	}
	if r := await(t, start(t, onDevice(job(t, "exit 0"), dir, 2))); r.Outcome != StartFailed || r.Clean() {
		t.Errorf("a second lease beside it: %+v", r)
	}
	wantWitness(t, dir, 1, 1)
}

func child(t *testing.T, id, parent proc.ID) bool {
	list, err := proc.List()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(p proc.Process) bool { return p.ID == id && p.Parent == parent.PID })
}
