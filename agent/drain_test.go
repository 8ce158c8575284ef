package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

func TestDrainEndsTheJobOfAStoppedShim(t *testing.T) {
	for _, with := range []bool{true, false} {
		t.Run(fmt.Sprintf("agent=%v", with), func(t *testing.T) {
			t.Parallel()
			c := newControlOf(t, rand.Text())
			config := testConfig(dataDir(t), c)
			r := startAgent(t, config)
			c.want(1, nil, sh("sleep 60 & setsid sleep 60 & wait")...)
			eventually(t, "running", func() bool { return c.isRunning(1) })
			if !with {
				r.stop()
			}
			all, err := shims()
			if err != nil {
				t.Fatal(err)
			}
			id := all[filepath.Join(config.DataDir, jobsDir, "1-1")]
			if err := proc.Signal(id, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
			defer cancel()
			if err := Drain(ctx, config.DataDir, testLog(t)); err != nil {
				t.Error(err)
			}
			if proc.Alive(id) {
				t.Error("the shim still runs")
			}
			if !with {
				startAgent(t, config)
			}
			if o := c.outcome(t, 1); o.Reason != reasonDrained || o.Survivors != "" {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}
