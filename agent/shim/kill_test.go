package shim

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/spool"
)

func TestKillEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	for _, part := range []string{
		"wait", "wait,wait,wait", "deaf", "setsid,wait", "setsid,leave,wait", "setsid,leave,deaf", "naked,leave,deaf", "naked,wait,setsid,leave,deaf",
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			h := start(t, acting(t, part))
			escapee := last(t, h)
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
			if proc.Alive(escapee) {
				t.Errorf("%v still runs", escapee)
			}
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
	t.Parallel()
	for _, part := range []string{"leave,wait", "leave,deaf", "setsid leave,deaf", "naked leave,leave,deaf"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			h := start(t, acting(t, part))
			wantEnd(t, await(t, h), Exited, 7, "")
			if escapee := last(t, h); proc.Alive(escapee) {
				t.Errorf("%v still runs", escapee)
			}
			if list := below(t, h); len(list) > 0 {
				t.Errorf("still there: %+v", list)
			}
		})
	}
}

func TestTermHandlerSaysItsLastWord(t *testing.T) {
	t.Parallel()
	h := start(t, job(t, `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.02; done`))
	awaitOutput(t, h, 6)
	h.Kill("moved")
	wantEnd(t, await(t, h), Killed, 5, "moved")
	if all, stdout, _ := output(t, h); stdout != "ready\nbye\n" { // some shells tell on stderr that their sleep was terminated
		t.Errorf("output %q", all)
	}
}

func TestFirstKillReasonCounts(t *testing.T) {
	t.Parallel()
	cfg := acting(t, "deaf")
	cfg.Spec.Grace = 2 * time.Second
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	h.Kill("first")
	h.Kill("second")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for status := h.Status(); status.Killing == "" && status.Phase != Ended; { // taken by the shim
		var err error
		if status, err = h.Wait(ctx, status); err != nil {
			t.Fatal(err)
		}
	}
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
	t.Parallel()
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

func TestJobWhoseDirectoryIsDeletedEnds(t *testing.T) {
	t.Parallel()
	hold := config(t, nil)
	hold.Spec.Kind = KindHold
	handles := []*Handle{start(t, acting(t, "wait,setsid,leave,deaf")), start(t, hold)}
	last(t, handles[0])
	for _, h := range handles {
		letGo(h)
		if err := os.RemoveAll(h.dir); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(60 * time.Second)
	for _, h := range handles {
		for proc.Alive(shimOf(h)) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		h.reap()
		wantNobody(t, h)
	}
}

func TestSurvivorCheckKnowsTheTreeOfAHandle(t *testing.T) {
	h := start(t, acting(t, "wait,setsid,leave,deaf"))
	escapee := last(t, h)
	for _, known := range [][]proc.Target{{h.Tree()}, nil} {
		check, err := proc.Survivors(known, "")
		if err != nil {
			t.Fatal(err)
		}
		named := slices.ContainsFunc(check.Found, func(p proc.Process) bool { return p.ID == escapee })
		if named != (known == nil) {
			t.Errorf("known trees %+v: escapee named: %v", known, named)
		}
	}
}

func TestPumpTakesWhatIsInThePipesWhenItFinishes(t *testing.T) {
	writer, err := spool.Create(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPump(writer, newBoard(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out, errs [2]int
	for _, pipe := range []*[2]int{&out, &errs} {
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(pipe[1]) }() // held open beyond the end, as by a process outside the tree
		if _, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, 4*pumpChunk); err != nil {
			t.Skip(err)
		}
		for range 50 {
			if _, err := unix.Write(pipe[1], make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
		}
	}
	finished := make(chan struct{})
	_ = unix.Close(p.stop[1])
	p.start(streams{stdout: out[0], stderr: errs[0]})
	go func() { defer close(finished); <-p.done }()
	select {
	case <-finished:
	case <-time.After(30 * time.Second):
		t.Fatal("does not finish while a pipe is held")
	}
	_ = unix.Close(p.stop[0])
	if err := writer.Close(); err != nil || writer.Length() != 2*50*4096 {
		t.Errorf("%d bytes, %v", writer.Length(), err)
	}
}
