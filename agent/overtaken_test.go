package agent

import (
	"context"
	"path/filepath"
	"testing"

	"rcd/wire"
)

// endsUnseen runs a job on gpu0 that ends while no agent runs, after what then
// does with it. The next agent comes with verify scripts that find a fault.
func endsUnseen(t *testing.T, then func(a *agent)) (next *agent) {
	t.Helper()
	config, dir, notes := verifying(t)
	ctx, cancel := context.WithCancel(context.Background())
	a := newTestAgent(t, config)
	a.ctx = ctx
	a.Order(context.Background(), order(wire.OrderStart, 1, 10, sh("until [ -e "+filepath.Join(notes, "go")+" ]; do sleep 0.01; done")...))
	eventually(t, "running", func() bool { p, _ := a.phase(key{1, 10}); return p == wire.PhaseRunning })
	then(a)
	a.close(cancel)
	executableFile(t, filepath.Join(notes, "go"), "")
	eventually(t, "ended", func() bool { all, err := shims(); _, there := all[a.dirOf(key{1, 10})]; return err == nil && !there })
	executableFile(t, filepath.Join(dir, "10-memory"), "exit 1")
	return newTestAgent(t, config)
}

func TestALeaseThatNeverCameSparesNobodyTheVerifyScripts(t *testing.T) {
	next := endsUnseen(t, func(a *agent) {
		a.Order(context.Background(), order(wire.OrderKill, 2, 15, "true"))
		a.awaitOutcome(t, key{2, 15})
	})
	if o := next.awaitOutcome(t, key{1, 10}); o.Survivors != "verify failed: 10-memory: exited 1" || *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
}
