package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/fsm/command"
	"rcd/wire"
)

// deaths are the points at which agents die one after the other, where that is
// more than the one point.
var deaths = map[point][]point{
	atUnfenced: {atFenceRaised, atUnfenced}, // while an earlier death is being mended
	atAdopting: {atRunningNoted, atAdopting},
}

// TestAnAgentKilledAtAnyPointLosesNothing kills an agent with SIGKILL at each
// point in turn. One job ends by itself with 7, one is killed and ends with 9,
// and one is killed before it began: whatever the point, the next agent tells
// each as it was, and none ran twice.
func TestAnAgentKilledAtAnyPointLosesNothing(t *testing.T) {
	for _, p := range points {
		t.Run(string(p), func(t *testing.T) {
			c := newControl(t)
			dir, up := dataDir(t), filepath.Join(t.TempDir(), "up")
			on := func(device string) func(*wire.StartJob) {
				return func(s *wire.StartJob) { s.Devices = []string{"box:" + device} }
			}
			c.want(1, on("gpu0"), sh("echo one; echo two; sleep 0.05; exit 7")...)
			c.want(2, on("gpu1"), sh("exec 2>/dev/null; trap 'echo bye; exit 9' TERM; : > "+up+"; while :; do sleep 0.02; done")...)
			c.want(3, on("gpu2"), "true")
			c.kill(3)
			killWhen(t, c, 2, up)

			if p == atRecalled { // told and acked, and then ordered again: a restored controller has not heard it
				first := startProcess(t, c, dir, "")
				eventually(t, "outcome of the first job acked", func() bool {
					_, err := os.Stat(filepath.Join(dir, jobsDir, "1-1", ackedFile))
					return err == nil
				})
				first.end(unix.SIGKILL)
				c.want(1, on("gpu0"), "true")
			}
			sequence := deaths[p]
			if sequence == nil {
				sequence = []point{p}
			}
			for _, last := range sequence {
				startProcess(t, c, dir, last).killedItself(t)
			}
			startProcess(t, c, dir, "")

			if o := c.outcome(t, 1); o.End != uint8(command.EndExited) || o.ExitCode == nil || *o.ExitCode != 7 || o.OutputLength != 8 || o.Survivors != "" {
				t.Errorf("the job that ended with 7: %+v", o)
			}
			if o := c.outcome(t, 2); o.End != uint8(command.EndKilled) || o.ExitCode == nil || *o.ExitCode != 9 || o.OutputLength != 4 || o.Survivors != "" {
				t.Errorf("the job that was killed and ended with 9: %+v", o)
			}
			if o := c.outcome(t, 3); o.End != uint8(command.EndKilled) || o.OutputLength != 0 || o.Survivors != "" {
				t.Errorf("the job that was killed before it began: %+v", o)
			}
			eventually(t, "nothing wanted any more", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.desired) == 0 })
			if p != atRemoving {
				if text, err := wholeOutput(t, c, 1); text != "one\ntwo\n" || err != nil {
					t.Errorf("output %q, %v", text, err)
				}
				if text, err := wholeOutput(t, c, 2); text != "bye\n" || err != nil {
					t.Errorf("output %q, %v", text, err)
				}
			}
			if begun := begunOnce(t, dir); !slices.Equal(begun, []uint64{1, 2}) {
				t.Errorf("the witness saw leases %v begin", begun)
			}
		})
	}
}

// killWhen has a job killed once a file is there. The wait ends with the test.
func killWhen(t *testing.T, c *control, job uint64, file string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(file); err == nil {
				c.kill(job)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}
