package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/agent/probe"
	"rcd/wire"
)

// fakeGPUs are GPUs that say what a test has them say, by UUID. A func that is
// not set answers with nothing.
type fakeGPUs struct {
	mu     sync.Mutex // guards what follows
	use    map[string]func(context.Context) (probe.Use, error)
	state  map[string]func(context.Context) (probe.State, error)
	events map[string]func(context.Context, func(probe.Event)) error
	emits  map[string]func(probe.Event)
}

func newFakeGPUs() *fakeGPUs {
	return &fakeGPUs{
		use: map[string]func(context.Context) (probe.Use, error){}, state: map[string]func(context.Context) (probe.State, error){},
		events: map[string]func(context.Context, func(probe.Event)) error{}, emits: map[string]func(probe.Event){},
	}
}

func (f *fakeGPUs) GPUs(context.Context) ([]probe.GPU, error) {
	return []probe.GPU{{Index: 0, UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1"}}, nil
}

func (f *fakeGPUs) Use(ctx context.Context, uuid string) (probe.Use, error) {
	f.mu.Lock()
	say := f.use[uuid]
	f.mu.Unlock()
	if say == nil {
		return probe.Use{TotalBytes: 80 << 30, Exact: true}, nil
	}
	return say(ctx)
}

func (f *fakeGPUs) State(ctx context.Context, uuid string) (probe.State, error) {
	f.mu.Lock()
	say := f.state[uuid]
	f.mu.Unlock()
	if say == nil {
		return probe.State{}, nil
	}
	return say(ctx)
}

func (f *fakeGPUs) Watch(ctx context.Context, uuid string, emit func(probe.Event)) error {
	f.mu.Lock()
	say := f.events[uuid]
	f.emits[uuid] = emit
	f.mu.Unlock()
	if say != nil {
		return say(ctx, emit)
	}
	<-ctx.Done()
	return nil
}

func (f *fakeGPUs) say(uuid string, use func(context.Context) (probe.Use, error), state func(context.Context) (probe.State, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if use != nil {
		f.use[uuid] = use
	}
	if state != nil {
		f.state[uuid] = state
	}
}

// report has a GPU report errors, once somebody listens.
func (f *fakeGPUs) report(t *testing.T, uuid string, xids ...uint64) {
	t.Helper()
	eventually(t, "a watch of "+uuid, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.emits[uuid] != nil })
	f.mu.Lock()
	emit := f.emits[uuid]
	f.mu.Unlock()
	for _, x := range xids {
		emit(probe.Event{XID: x})
	}
}

func gpuConfig(t *testing.T) Config {
	return Config{
		Controllers: []string{"127.0.0.1:1"}, Token: token, Host: "box", DataDir: dataDir(t), KillGrace: time.Second, KeepJobs: 100, KeepBytes: 1 << 30,
		Devices: []Device{{Name: "gpu0", Bind: "GPU-0"}, {Name: "gpu1", Bind: "GPU-1"}, {Name: "sim", Simulated: true}},
	}
}

// newHealthAgent is newTestAgent with GPUs. It has less patience with them.
func newHealthAgent(t *testing.T, config Config, gpus probe.Library) *agent {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(config.DataDir, jobsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := newAgent(ctx, config, Deps{Logger: testLog(t), Exec: executable(t), GPUs: gpus})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close(cancel) })
	a.health.within, a.health.again = 500*time.Millisecond, 10*time.Millisecond
	if err := a.adopt(); err != nil {
		t.Fatal(err)
	}
	a.observe()
	eventually(t, "the devices are bound", func() bool { return a.gpus.uuid("gpu0") != "" && a.gpus.uuid("gpu1") != "" })
	return a
}

// gate is a job that runs until it is let go.
type gate struct {
	path string
	a    *agent
	n    uint64
}

// hold starts a job on devices that ends with code once let go.
func (a *agent) hold(t *testing.T, n uint64, code int, devices ...string) gate {
	t.Helper()
	g := gate{path: filepath.Join(t.TempDir(), "go"), a: a, n: n}
	start := order(wire.OrderStart, n, n, sh(fmt.Sprintf("while [ ! -e %s ]; do sleep 0.02; done; exit %d", g.path, code))...)
	start.Start.Devices = nil
	for _, d := range devices {
		start.Start.Devices = append(start.Start.Devices, "box:"+d)
	}
	if ack := a.Order(context.Background(), start); ack.Code != "" {
		t.Fatalf("ack %+v", ack)
	}
	eventually(t, "running", func() bool { p, o := a.phase(key{n, n}); return p == wire.PhaseRunning || o != nil })
	return g
}

// finish lets the job end and returns its outcome.
func (g gate) finish(t *testing.T) wire.Outcome {
	t.Helper()
	if err := os.WriteFile(g.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return g.a.awaitOutcome(t, key{g.n, g.n})
}

func (a *agent) wantFault(t *testing.T, device string, texts ...string) {
	t.Helper()
	for _, f := range a.Faults() {
		if f.Device != device {
			continue
		}
		for _, text := range texts {
			if !strings.Contains(f.Detail, text) {
				t.Errorf("fault of %s: %q has no %q", device, f.Detail, text)
			}
		}
		return
	}
	t.Errorf("no fault of %s; faults are %v", device, a.Faults())
}

func (a *agent) wantNoFaults(t *testing.T) {
	t.Helper()
	if f := a.Faults(); len(f) != 0 {
		t.Errorf("faults %v", f)
	}
}

func TestTheDocumentedMeaningsOfXIDsCanBeLoaded(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "../docs/hosts.md"), "```yaml\nxid:\n")
	text, _, _ := strings.Cut(rest, "```")
	c, err := load(t, "controllers: [a:1]\ndevices: [gpu0]\nxid:\n"+text)
	if err != nil || !found || len(c.XIDs) != 3 || c.XIDs[109] != XIDJob {
		t.Errorf("%+v, %v", c.XIDs, err)
	}
}
