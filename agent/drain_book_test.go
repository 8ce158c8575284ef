package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rcd/session"
	"rcd/wire"
)

func newTestBook(t *testing.T, devices ...string) *drainBook {
	t.Helper()
	b, err := openDrain(t.TempDir(), "box")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.begin(devices, "", true, false); err != nil {
		t.Fatal(err)
	}
	return b
}

// ack says that a device's fault is in the log at index.
func (b *drainBook) ack(device string, index uint64) {
	for _, f := range b.faults() {
		if f.Device == device {
			b.acked(wire.FaultAck{DeviceFault: f, Index: index})
		}
	}
}

func idle(string) bool { return false }

// beats lets answered heartbeats come for d.
func (b *drainBook) beats(t *testing.T, index uint64, d time.Duration, busy func(string) bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(session.HeartbeatEvery) {
		if err := b.heard(index, busy); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatWasPlacedBeforeADrainIsRefusedUntilItCannotComeAnyMore(t *testing.T) {
	gpu0 := []string{"gpu0"}
	synctest.Test(t, func(t *testing.T) {
		b := newTestBook(t, "gpu0", "gpu1")
		b.welcomed()
		b.beats(t, 99, time.Minute, idle)
		if !b.refuses(gpu0, 0) || len(b.faults()) != 2 {
			t.Errorf("refuses %v, faults %v before the leader has it", b.refuses(gpu0, 0), b.faults())
		}
		b.ack("gpu0", 100)
		b.beats(t, 100, drainSettle, idle)
		if !b.refuses(gpu0, 0) {
			t.Error("settled before two words of the leader that drainSettle lies before")
		}
		b.beats(t, 100, 2*drainSettle, idle)
		if b.refuses(gpu0, 0) || !b.refuses([]string{"gpu1"}, 0) || !b.refuses([]string{"gpu0", "gpu1"}, 0) {
			t.Error("the one that the leader has is settled, the other one is not")
		}
		if f := b.faults(); len(f) != 1 || f[0].Device != "gpu1" {
			t.Errorf("faults %v", f)
		}
		// What comes now was placed after an operator has returned the device.
		if err := b.returned([]string{"gpu0", "gpu1"}, 0); err != nil {
			t.Fatal(err)
		}
		if s := b.state.Load(); s == nil || s.station("gpu0") != "" || s.station("gpu1") != DrainUntold {
			t.Errorf("state %+v", s)
		}
	})
}

// TestALeaseAfterTheDrainIsTakenAtOnceAndAnEarlierOneNever: no time need pass
// once the leader has said which leases there were, also for the next agent.
func TestALeaseAfterTheDrainIsTakenAtOnceAndAnEarlierOneNever(t *testing.T) {
	b := newTestBook(t, "gpu0", "gpu1")
	for _, f := range b.faults() {
		if !b.acked(wire.FaultAck{DeviceFault: f, Index: 100, Lease: 7}) {
			t.Fatal("the answer was not taken")
		}
	}
	b, err := openDrain(b.dir, "box")
	if err != nil {
		t.Fatal(err)
	}
	if f := b.faults(); len(f) != 0 || b.state.Load().station("gpu0") != DrainTold {
		t.Errorf("said again, and another time once an operator has returned the devices: %+v", f)
	}
	gpu0 := []string{"gpu0"}
	if !b.refuses(gpu0, 7) || b.refuses(gpu0, 8) {
		t.Errorf("lease 7 is refused: %v; lease 8: %v", b.refuses(gpu0, 7), b.refuses(gpu0, 8))
	}
	if err := b.returned(gpu0, 7); err != nil || b.state.Load().station("gpu0") == "" {
		t.Errorf("a lease from before the drain returns its device: %v", err)
	}
	if err := b.returned(gpu0, 8); err != nil || b.state.Load().station("gpu0") != "" || b.state.Load().station("gpu1") != DrainTold {
		t.Errorf("state %+v, %v", b.state.Load(), err)
	}
	if err := b.begin([]string{"gpu0", "gpu1"}, "", true, false); err != nil {
		t.Fatal(err)
	}
	if len(b.faults()) != 2 || !b.refuses(gpu0, 8) {
		t.Error("a drain that comes after that is told and holds")
	}
}

func TestADrainIsNotSettledByAnotherSessionABehindLeaderOrWithAJobThere(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, b *drainBook){
		// The session is new each time: what the one before has written may be lost.
		"sessions end": func(t *testing.T, b *drainBook) {
			for range 20 {
				b.beats(t, 100, drainSettle, idle)
				time.Sleep(time.Minute)
				_ = b.heard(100, idle) // a welcome
				b.welcomed()
			}
		},
		"a leader that has not applied it": func(t *testing.T, b *drainBook) { b.beats(t, 99, time.Minute, idle) },
		"its last job runs": func(t *testing.T, b *drainBook) {
			b.beats(t, 100, time.Minute, func(d string) bool { return d == "gpu0" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestBook(t, "gpu0")
				b.welcomed()
				b.ack("gpu0", 100)
				disturb(t, b)
				if !b.refuses([]string{"gpu0"}, 0) {
					t.Error("settled")
				}
				b.beats(t, 100, 4*drainSettle, idle)
				if b.refuses([]string{"gpu0"}, 0) {
					t.Error("never settled")
				}
			})
		})
	}
}

func TestADrainOutlivesTheAgentAndIsSaidAgainUntilItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		open := func() *drainBook {
			t.Helper()
			b, err := openDrain(dir, "box")
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		b := open()
		if err := b.begin([]string{"gpu0"}, " new \n fans\x00 ", false, true); err != nil {
			t.Fatal(err)
		}
		b = open()
		if err := b.found([]string{"gpu0", "gpu1"}); err != nil {
			t.Fatal(err)
		}
		b.ack("gpu0", 100)
		b = open()
		if f := b.faults(); len(f) != 2 || f[0].Detail != "drained on the host: new fans; return it with: rc clear box:gpu0" || b.refuses([]string{"gpu0"}, 0) {
			t.Errorf("faults %q, refuses %v", f, b.refuses([]string{"gpu0"}, 0))
		}
		b.welcomed()
		b.ack("gpu0", 100)
		b.ack("gpu1", 101)
		b.beats(t, 101, time.Minute, idle)
		b = open()
		if f := b.faults(); len(f) != 0 || !b.state.Load().settled() {
			t.Errorf("faults %v, state %+v", f, b.state.Load())
		}
		// Another drain may be of devices that are back: they are said again.
		if err := b.begin([]string{"gpu0", "gpu1"}, "", false, false); err != nil {
			t.Fatal(err)
		}
		if f := b.faults(); len(f) != 2 || strings.Contains(f[0].Detail, "fans") {
			t.Errorf("faults %v", f)
		}
		if _, err := b.cancel(); err != nil {
			t.Fatal(err)
		}
		if b = open(); b.state.Load() != nil {
			t.Errorf("a drain that was cancelled is back: %+v", b.state.Load())
		}
	})
}

func TestAClosedDrainIsNotOpenedByASecondThatWaits(t *testing.T) {
	b := newTestBook(t, "gpu0")
	if err := b.begin([]string{"gpu0"}, "", false, false); err != nil {
		t.Fatal(err)
	}
	if !b.refuses([]string{"gpu0"}, 0) {
		t.Error("what was to begin no more begins")
	}
}

func TestADrainThatIsRepeatedWithoutAReasonKeepsIts(t *testing.T) {
	b := newTestBook(t)
	for _, reason := range []string{"swap the power supply", ""} {
		if err := b.begin([]string{"gpu0"}, reason, false, false); err != nil {
			t.Fatal(err)
		}
		if f := b.faults(); len(f) != 1 || f[0].Detail != "drained on the host: swap the power supply; return it with: rc clear box:gpu0" {
			t.Errorf("with reason %q the cluster is told %+v", reason, f)
		}
	}
	if err := b.begin([]string{"gpu0"}, "the disk, too", false, false); err != nil {
		t.Fatal(err)
	}
	if s := b.state.Load(); s.Reason != "the disk, too" {
		t.Errorf("a new reason is not taken: %q", s.Reason)
	}
}

func TestADamagedDrainStopsNobody(t *testing.T) {
	b := newTestBook(t, "gpu0")
	path := filepath.Join(b.dir, drainFile)
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := openDrain(b.dir, "box")
	if again == nil || err == nil || !strings.Contains(err.Error(), path) || again.refuses([]string{"gpu0"}, 0) {
		t.Errorf("%v, %v", again, err)
	}
	if _, err := os.Stat(path + ".corrupt"); err != nil {
		t.Errorf("it was not set aside: %v", err)
	}
}

func TestALeadersRefusalOfADrainIsKnown(t *testing.T) {
	b := newTestBook(t, "gpu0")
	f := b.faults()[0]
	if b.acked(wire.FaultAck{DeviceFault: wire.DeviceFault{Device: "gpu0", Detail: "another one"}}) {
		t.Error("the answer to another fault was taken")
	}
	if !b.acked(wire.FaultAck{DeviceFault: f, Code: "device_not_found", Message: "There is no device."}) {
		t.Error("the refusal was not taken")
	}
	if s := b.state.Load(); s.refused["gpu0"] != "There is no device." || s.station("gpu0") != DrainUntold || len(b.faults()) != 1 {
		t.Errorf("state %+v", s)
	}
	b.ack("gpu0", 3)
	if s := b.state.Load(); s.refused["gpu0"] != "" || s.station("gpu0") != DrainTold {
		t.Errorf("state %+v", s)
	}
}
