package agent

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"rcd/fsm/command"
	"rcd/wire"
)

// takeFaults is a leader that takes the next faults, and returns them.
func (a *agent) takeFaults(t *testing.T, during func()) (taken []wire.DeviceFault) {
	t.Helper()
	var wait sync.WaitGroup
	wait.Go(func() {
		eventually(t, "a fault", func() bool { taken = a.Faults(); return len(taken) > 0 })
		for _, f := range taken {
			a.FaultAcked(wire.FaultAck{DeviceFault: f, Index: 1})
		}
	})
	during()
	wait.Wait()
	return taken
}

// An outcome takes out all of its job's devices, so what only one of them is to
// blame for is told by itself, and before it.
func TestADeviceAtFaultTakesItsNeighboursInTheJobNotOut(t *testing.T) {
	for _, c := range []struct {
		name, want string
		end        command.EndKind
		prepare    func(config *Config, verifyDir string)
	}{
		{"verify scripts", "verify failed: gpu1: 10-memory: exited 1", command.EndExited, func(_ *Config, dir string) {
			executableFile(t, filepath.Join(dir, "10-memory"), "[ $RC_DEVICE != box:gpu1 ]")
		}},
		{"on_acquire", "on_acquire of gpu1 exited 1", command.EndStartFailed, func(config *Config, dir string) {
			path := executableFile(t, filepath.Join(filepath.Dir(dir), "acquire"), "[ $RC_DEVICE != box:gpu1 ]")
			for i := range config.Devices {
				config.Devices[i].Hooks = Hooks{OnAcquire: path, Timeout: defaultHookTimeout}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, dir, _ := verifying(t)
			c.prepare(&config, dir)
			a := newTestAgent(t, config)
			var o wire.Outcome
			taken := a.takeFaults(t, func() {
				a.Order(context.Background(), onBoth(order(wire.OrderStart, 1, 10, "true")))
				o = a.awaitOutcome(t, key{1, 10})
			})
			if o.Survivors != "" || o.End != uint8(c.end) {
				t.Errorf("outcome %+v", o)
			}
			if !slices.Equal(taken, []wire.DeviceFault{{Device: "gpu1", Detail: c.want}}) {
				t.Errorf("faults %v", taken)
			}
		})
	}
}
