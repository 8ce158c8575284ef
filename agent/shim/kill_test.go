package shim

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

func TestKillEndsTheWholeTree(t *testing.T) {
	for _, part := range []string{
		"wait", "wait,wait,wait", "deaf", "setsid,wait", "setsid,leave,wait", "setsid,leave,deaf", "naked,leave,deaf", "naked,wait,setsid,leave,deaf",
	} {
		t.Run(part, func(t *testing.T) {
			h := start(t, acting(t, part))
			awaitOutput(t, h, 6) // the last of the chain is up
			if n := len(below(t, h)); n < 1 {
				t.Fatalf("%d processes below the shim", n)
			}
			code := 143
			if part == "deaf" {
				code = 137
			}
			h.Kill("cancelled")
			began := time.Now()
			wantEnd(t, await(t, h), Killed, code, "cancelled")
			if took := time.Since(began); took > h.order.Spec.Grace+5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// below returns all descendants of the shim.
func below(t *testing.T, h *Handle) []proc.Process {
	t.Helper()
	list, err := proc.Find(proc.Target{Above: shimOf(h)})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestStragglersGoAndTheJobKeepsItsExitCode(t *testing.T) {
	for _, part := range []string{"leave,wait", "leave,deaf", "setsid leave,deaf", "naked leave,leave,deaf"} {
		t.Run(part, func(t *testing.T) {
			h := start(t, acting(t, part))
			r := await(t, h)
			wantEnd(t, r, Exited, 7, "")
			if list := below(t, h); len(list) > 0 {
				t.Errorf("still there: %+v", list)
			}
		})
	}
}

func TestTermHandlerSaysItsLastWord(t *testing.T) {
	h := start(t, job(t, `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.02; done`))
	awaitOutput(t, h, 6)
	h.Kill("moved")
	wantEnd(t, await(t, h), Killed, 5, "moved")
	if all, stdout, _ := output(t, h); stdout != "ready\nbye\n" { // some shells tell on stderr that their sleep was terminated
		t.Errorf("output %q", all)
	}
}

func TestFirstKillReasonCounts(t *testing.T) {
	cfg := acting(t, "deaf")
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	h.Kill("first")
	h.Kill("second")
	other, err := Adopt(cfg.Dir, cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.Kill("third")
	wantEnd(t, await(t, h), Killed, 137, "first")
	wantEnd(t, await(t, other), Killed, 137, "first")
}

func TestStoppedJobCanBeKilled(t *testing.T) {
	h := start(t, job(t, `echo ready; kill -STOP $$`))
	awaitOutput(t, h, 6)
	h.Kill("cancelled")
	wantEnd(t, await(t, h), Killed, 143, "cancelled")
}

func TestAPipeHeldElsewhereDoesNotHoldTheEnd(t *testing.T) {
	// Somebody outside the tree has opened the job's stdout, and keeps it.
	h := start(t, job(t, `echo ready; exec sleep 60`))
	status := awaitOutput(t, h, 6)
	fd, err := unix.PidfdOpen(status.Job.PID, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Close(fd) }()
	held, err := unix.PidfdGetfd(fd, 1, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Close(held) }()
	h.Kill("cancelled")
	if _, err := unix.Write(held, []byte("late\n")); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, await(t, h), Killed, 143, "cancelled")
	if all, _, _ := output(t, h); all != "ready\nlate\n" {
		t.Errorf("output %q", all)
	}
}
