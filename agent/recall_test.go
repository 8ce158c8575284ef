package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"rcd/wire"
)

// With a check the agent keeps the outcome itself; the output is the shim's all
// the same, also once the job is acked and for the next agent.
func TestOutputIsReadWhoeverKeepsTheOutcome(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	checked := func(d *Deps) {
		d.shaped = func(a *agent) {
			a.checks = []check{{name: "nothing", look: func(context.Context, *job, wire.Outcome) finding { return finding{} }}}
		}
	}
	first := startAgentWith(t, config, checked)
	c.want(1, nil, sh("echo out; exit 3")...)
	c.outcome(t, 1)
	eventually(t, "acked", func() bool {
		_, err := os.Stat(filepath.Join(config.DataDir, jobsDir, "1-1", ackedFile))
		return err == nil
	})
	for i := range 2 {
		if text, err := wholeOutput(t, c, 1); text != "out\n" || err != nil {
			t.Errorf("output %q, %v", text, err)
		}
		if i == 0 {
			first.stop()
			startAgentWith(t, config, checked)
		}
	}
}
