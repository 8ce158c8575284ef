package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// What cannot be read at this moment, for the agent has no descriptor left, say, is not what is not there.
func TestResultThatCannotBeReadForAMomentIsNotReplaced(t *testing.T) {
	t.Parallel()
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

func TestShimThatCannotWriteItsResultSaysSoOnce(t *testing.T) {
	t.Parallel()
	h := start(t, job(t, "echo ready; read x < "+fifo(t)+"; exit 7"))
	job := awaitOutput(t, h, 6).Job
	inTheWay := filepath.Join(h.dir, resultName)
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := proc.Signal(job, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	log := func() []byte {
		raw, err := os.ReadFile(filepath.Join(h.dir, logName))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for deadline := time.Now().Add(20 * time.Second); !bytes.Contains(log(), []byte("write result")); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it says nothing")
		}
	}
	time.Sleep(2 * writePause) // there is nothing to wait for: it is to stay silent
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, await(t, h), Exited, 137, "")
	if n := bytes.Count(log(), []byte(`msg="write result`)); n != 1 {
		t.Errorf("said %d times:\n%s", n, log())
	}
}
