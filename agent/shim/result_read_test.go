package shim

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// What cannot be read at this moment, for the agent has no descriptor left, say, is not what is not there.
func TestResultThatCannotBeReadForAMomentIsNotReplaced(t *testing.T) {
	cfg := job(t, "echo ready; exec sleep 60")
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	letGo(h)
	path := filepath.Join(cfg.Dir, resultName)
	if err := os.Symlink(resultName, path); err != nil { // to itself: the kernel follows that to no end
		t.Fatal(err)
	}
	shim := shimOf(h)
	if err := proc.Signal(shim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.reap()
	next := newHandle(cfg.Dir, h.order, cfg.Log)
	for range 3 { // as often as the agent may look
		if next.settle(t.Context()) {
			r, err := next.Result()
			t.Fatalf("ended as %+v, %v although there may be a result", r, err)
		}
	}
	if !proc.Alive(h.Status().Job) {
		t.Error("the job was ended although its shim may have said that it is over")
	}
	code := 3
	if err := writeResult(cfg.Dir, Result{Outcome: Exited, ExitCode: &code, FinishedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if !next.settle(t.Context()) {
		t.Fatal("not ended although there is a result")
	}
	wantEnd(t, await(t, next), Exited, 3, "")
	if left, err := proc.KillTree(t.Context(), h.Tree(), 0); err != nil || len(left) > 0 { // the test's result, not the shim's
		t.Fatal(left, err)
	}
}
