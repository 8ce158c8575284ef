package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcd/agent/probe"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// glass is a library that sees what it is told to.
type glass struct {
	mu   sync.Mutex
	gpus []probe.GPU
	err  error
}

func (g *glass) GPUs(context.Context) ([]probe.GPU, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.gpus), g.err
}

func (g *glass) show(gpus []probe.GPU, err error) *glass {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gpus, g.err = gpus, err
	return g
}

// newGPUAgent is an agent without a link that looks through lib, when told to.
func newGPUAgent(t *testing.T, config Config, lib probe.Library) *agent {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(config.DataDir, jobsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := newAgent(ctx, config, Deps{Logger: testLog(t), Exec: executable(t), GPUs: lib})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close(cancel) })
	return a
}

func (a *agent) lookAtGPUs(t *testing.T) Labels {
	t.Helper()
	labels, err := a.gpus.look(t.Context())
	if err != nil {
		t.Logf("look: %v", err)
	}
	return labels
}

func (a *agent) faulted() map[string]string {
	out := map[string]string{}
	for _, f := range a.Faults() {
		out[f.Device] = f.Detail
	}
	return out
}

func ack(a *agent) {
	for _, f := range a.Faults() {
		a.FaultAcked(wire.FaultAck{DeviceFault: f})
	}
}

func TestBindingsOutliveTheAgentWhateverTheDriverCounts(t *testing.T) {
	config := Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0", "gpu1", "gpu2")}
	a := newGPUAgent(t, config, new(glass).show(rack("abc"), nil))
	if labels := a.lookAtGPUs(t); labels["gpu1"]["uuid"] != "GPU-b" {
		t.Errorf("labels %v", labels)
	}
	b := newGPUAgent(t, config, new(glass).show(rack("cab"), nil))
	for look := range 2 { // before the first look, and after it
		for i, want := range []string{"GPU-a", "GPU-b", "GPU-c"} {
			name := fmt.Sprint("gpu", i)
			if got := b.gpus.uuid(name); got != want {
				t.Errorf("look %d: %s is %s, want %s", look, name, got, want)
			}
		}
		b.lookAtGPUs(t)
	}
	if len(b.Faults()) != 0 {
		t.Errorf("faults %v", b.Faults())
	}
}

func TestAGoneGPUTakesItsDeviceOutOnceUntilItIsBack(t *testing.T) {
	lib := new(glass).show(rack("ab"), nil)
	config := Config{Host: "box", DataDir: t.TempDir(), Auto: true}
	newGPUAgent(t, config, lib)
	lib.show(rack("a"), nil)
	a := newGPUAgent(t, config, lib)
	if len(a.config.Devices) != 2 {
		t.Fatalf("devices %+v: what is gone stays declared", a.config.Devices)
	}
	if f := a.faulted(); len(f) != 1 || !strings.Contains(f["gpu1"], "GPU-b of gpu1 is gone") {
		t.Fatalf("faults %v", f)
	}
	ack(a)
	a.lookAtGPUs(t)
	if len(a.Faults()) != 0 {
		t.Fatalf("said again: %v", a.Faults())
	}
	if why, _ := a.gpus.fit([]string{"gpu0", "gpu1"}); !strings.Contains(why, "GPU-b of gpu1 is gone") {
		t.Errorf("fit: %q", why)
	}
	lib.show(rack("ab"), nil)
	a.lookAtGPUs(t)
	if why, news := a.gpus.fit([]string{"gpu0", "gpu1"}); why != "" || news != nil || len(a.Faults()) != 0 {
		t.Errorf("after it came back: %q, faults %v", why, a.Faults())
	}
	lib.show(rack("a"), nil)
	a.lookAtGPUs(t)
	if len(a.faulted()) != 1 {
		t.Errorf("gone a second time: faults %v", a.faulted())
	}
}

func TestASwappedCardIsUsedOnlyAfterAPersonHasSeenIt(t *testing.T) {
	config := Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0")}
	newGPUAgent(t, config, new(glass).show(rack("a"), nil)).lookAtGPUs(t)
	a := newGPUAgent(t, config, new(glass).show([]probe.GPU{{UUID: "GPU-x", PCI: slot('a')}}, nil))
	a.lookAtGPUs(t)
	a.lookAtGPUs(t)
	if f := a.faulted(); !strings.Contains(f["gpu0"], "another GPU") || a.gpus.uuid("gpu0") != "GPU-x" {
		t.Errorf("faults %v, %s", f, a.gpus.uuid("gpu0"))
	}
	if why, news := a.gpus.fit([]string{"gpu0"}); why != "" || news != nil {
		t.Errorf("once it is returned it can be used: %q", why)
	}
}

func TestALostRecordOfGPUsTakesEveryGPUOutOnce(t *testing.T) {
	config := Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0", "gpu1", "oven")}
	lib := new(glass).show(rack("ab"), nil)
	newGPUAgent(t, config, lib).lookAtGPUs(t)
	if err := os.WriteFile(filepath.Join(config.DataDir, bindingsFile), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	newGPUAgent(t, config, lib) // and it ends before it has looked
	a := newGPUAgent(t, config, lib)
	a.lookAtGPUs(t)
	if f := a.faulted(); len(f) != 2 || !strings.Contains(f["gpu1"], "bindings.cbor.corrupt") {
		t.Errorf("faults %v", f)
	}
	ack(a)
	a = newGPUAgent(t, config, lib)
	a.lookAtGPUs(t)
	if len(a.Faults()) != 0 || a.gpus.uuid("gpu1") != "GPU-b" {
		t.Errorf("once it is on record again: %v", a.Faults())
	}
}

func TestAGPUThatSaysNothingKeepsItsDeviceForAWhileOnly(t *testing.T) {
	for _, tt := range []struct {
		name  string
		gpus  []probe.GPU
		err   error
		after time.Duration
	}{
		{"one hangs", failing(rack("ab"), 1, fmt.Errorf("GPU 1: %w", probe.ErrHung)), nil, silentFor},
		{"the driver hangs", nil, probe.ErrHung, silentFor},
		{"the driver is gone", nil, probe.ErrAbsent, absentFor},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lib := new(glass).show(rack("ab"), nil)
			a := newGPUAgent(t, Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0", "gpu1", "board7")}, lib)
			log := a.log
			synctest.Test(t, func(t *testing.T) {
				g := newGPUs(a)
				g.log = log
				look := func() { _, _ = g.look(t.Context()) }
				for range 2 { // a while ago, and now: it has answered in between
					lib.show(rack("ab"), nil)
					look()
					lib.show(tt.gpus, tt.err)
					look()
					time.Sleep(tt.after - time.Second)
				}
				look()
				if why, news := g.fit([]string{"gpu0", "gpu1"}); why != "" || news != nil || len(a.Faults()) != 0 {
					t.Errorf("before its time: %q, %v", why, a.Faults())
				}
				time.Sleep(time.Second)
				look()
				if why, _ := g.fit([]string{"gpu1"}); !strings.Contains(why, "has not answered for "+tt.after.String()) {
					t.Errorf("then: %q", why)
				}
				if why, news := g.fit([]string{"board7"}); why != "" || news != nil {
					t.Errorf("what is no GPU: %q", why)
				}
				_, gpu0 := a.faulted()["gpu0"]
				if gpu0 != (tt.err != nil) || a.faulted()["gpu1"] == "" {
					t.Errorf("faults %v", a.faulted())
				}
			})
		})
	}
}

func TestLabelsAreThoseOfTheGPUAndALastWordStands(t *testing.T) {
	lib := new(glass).show(failing(rack("ab"), 1, probe.ErrHung), nil)
	a := newGPUAgent(t, Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0", "gpu1", "oven")}, lib)
	labels := a.lookAtGPUs(t)
	if len(labels) != 2 || labels["gpu1"]["uuid"] != "GPU-b" {
		t.Errorf("labels %v", labels)
	}
	lib.show(nil, probe.ErrHung)
	if _, err := a.gpus.look(t.Context()); !errors.Is(err, probe.ErrHung) {
		t.Errorf("%v: the labels would be taken away", err)
	}
}

func TestAHostWithoutGPUsIsAsBefore(t *testing.T) {
	for _, lib := range []probe.Library{nil, new(glass).show(nil, probe.ErrAbsent)} {
		a := newGPUAgent(t, Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0", "board12", "oven")}, lib)
		if lib != nil {
			if _, err := a.gpus.look(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for want, devices := range map[string][]string{"12,0": {"board12", "gpu0"}, "": {"gpu0", "oven"}} {
			if got := a.gpus.cuda(devices); got["CUDA_VISIBLE_DEVICES"] != want || want == "" && got != nil {
				t.Errorf("%v: %v", devices, got)
			}
		}
		if why, news := a.gpus.fit([]string{"gpu0"}); why != "" || news != nil {
			t.Errorf("fit: %q", why)
		}
	}
}

func TestAutoWithoutAGPUSaysSo(t *testing.T) {
	a := newGPUAgent(t, Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0")}, nil)
	for _, tt := range []struct {
		lib  probe.Library
		want string
	}{
		{nil, "no NVIDIA driver"}, {new(glass).show(nil, nil), "shows none"}, {new(glass).show(nil, probe.ErrHung), "does not answer"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGPUs(a)
			g.lib, g.config.Auto, g.config.Devices, g.declared = tt.lib, true, nil, nil
			start := time.Now()
			_, err := g.declare(t.Context())
			if took := time.Since(start); !errors.Is(err, ErrNoGPU) || !strings.Contains(err.Error(), tt.want) || took > absentFor+2*gpusAgain {
				t.Errorf("%v after %v", err, took)
			}
		})
	}
}

func TestAutoWaitsForADriverThatComesLate(t *testing.T) {
	lib := new(glass).show(nil, probe.ErrAbsent)
	a := newGPUAgent(t, Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0")}, nil)
	synctest.Test(t, func(t *testing.T) {
		g := newGPUs(a)
		g.lib, g.config.Auto, g.config.Devices, g.declared = lib, true, nil, nil
		time.AfterFunc(absentFor/2, func() { lib.show(rack("ab"), nil) })
		devices, err := g.declare(t.Context())
		if err != nil || len(devices) != 2 || devices[1].Name != "gpu1" || g.uuid("gpu1") != "GPU-b" {
			t.Errorf("%+v, %v", devices, err)
		}
	})
}

func TestAutoDeclaresWhatItKnowsWhileTheDriverHangs(t *testing.T) {
	config := Config{Host: "box", DataDir: t.TempDir(), Auto: true}
	newGPUAgent(t, config, new(glass).show(rack("ab"), nil))
	a := newGPUAgent(t, config, new(glass).show(nil, probe.ErrHung))
	if len(a.config.Devices) != 2 || a.gpus.uuid("gpu1") != "GPU-b" {
		t.Errorf("%+v", a.config.Devices)
	}
}

func TestAJobSeesItsGPUsByUUID(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.Devices = devicesNamed("gpu0", "gpu1")
	a := newGPUAgent(t, config, new(glass).show(rack("ba"), nil))
	a.lookAtGPUs(t)
	for i, tt := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "PCI_BUS_ID GPU-b,GPU-a"},
		{map[string]string{"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST 7"},
		{map[string]string{"CUDA_VISIBLE_DEVICES": ""}, "PCI_BUS_ID"}, // none at all
	} {
		n := uint64(i + 1)
		o := order(wire.OrderStart, n, n, sh(`echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES >`+filepath.Join(config.DataDir, fmt.Sprint("seen", i)))...)
		o.Start.Devices, o.Start.Env = []string{"box:gpu1", "box:gpu0"}, tt.env
		a.Order(t.Context(), o)
		a.awaitOutcome(t, key{n, n})
		if got := strings.TrimSpace(read(t, config.DataDir, fmt.Sprint("seen", i))); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.env, got, tt.want)
		}
	}
}

func TestAJobWaitsForTheDriverOfABoundDeviceAndFailsWithoutIt(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	newGPUAgent(t, config, new(glass).show(rack("ab"), nil)).lookAtGPUs(t)
	lib := new(glass).show(nil, probe.ErrAbsent)
	a := newGPUAgent(t, config, lib)
	a.lookAtGPUs(t)
	for n := range uint64(3) {
		a.Order(t.Context(), order(wire.OrderStart, n+1, 10*(n+1), "true"))
		if n == 0 {
			a.Order(t.Context(), wire.Order{Kind: wire.OrderKill, Job: 1, Lease: 10})
			if o := a.awaitOutcome(t, key{1, 10}); o.End != uint8(command.EndKilled) {
				t.Fatalf("killed while it waited: %+v", o)
			}
			continue
		}
		if phase, o := a.phase(key{n + 1, 10 * (n + 1)}); phase != wire.PhaseStarting || o != nil {
			t.Fatalf("job %d did not wait: %v, %+v", n+1, phase, o)
		}
		if n == 1 {
			lib.show(rack("ab"), nil)
			a.lookAtGPUs(t)
			if o := a.awaitOutcome(t, key{2, 20}); o.End != uint8(command.EndExited) {
				t.Fatalf("the GPU has come: %+v", o)
			}
			lib.show(rack("b"), nil)
			a.gpus.mu.Lock()
			a.gpus.seen = map[string]bool{} // as after a start
			a.gpus.mu.Unlock()
			continue
		}
		a.lookAtGPUs(t)
		if o := a.awaitOutcome(t, key{3, 30}); o.End != uint8(command.EndStartFailed) || o.Origin != uint8(model.OriginDevice) || !strings.Contains(o.Survivors, "GPU-a of gpu0 is gone") {
			t.Errorf("the GPU does not come: %+v", o)
		}
	}
}
