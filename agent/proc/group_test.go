package proc

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSignalGroupReachesTheWholeGroupAndNobodyElse(t *testing.T) {
	id, pids := start(t, "wait,wait,newsession,wait")
	if err := SignalGroup(ID{PID: id.PID, Start: id.Start + 1}, unix.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("another start time: %v", err)
	}
	for _, none := range []ID{{}, {PID: 1}, {PID: -1}} {
		if err := SignalGroup(none, unix.SIGTERM); !errors.Is(err, ErrGone) {
			t.Errorf("%v: %v", none, err)
		}
	}
	if n := len(running(pids)); n != len(pids) {
		t.Fatalf("only %d of %d run", n, len(pids))
	}
	if err := SignalGroup(id, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	alive := running(pids)
	for deadline := time.Now().Add(30 * time.Second); len(alive) > 1 && time.Now().Before(deadline); alive = running(pids) {
		time.Sleep(5 * time.Millisecond)
	}
	if len(alive) != 1 {
		t.Errorf("%d of %d are left, want the one in a session of its own", len(alive), len(pids))
	}
	for deadline := time.Now().Add(30 * time.Second); Exists(id) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond) // until it is reaped
	}
	if err := SignalGroup(id, unix.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("after its end: %v", err)
	}
}
