package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/shim"
	"rcd/internal/mux"
	"rcd/model"
	"rcd/relay"
	"rcd/session"
	"rcd/wire"
)

// TestMain makes the test binary its own shim, and an agent to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "shim" {
		os.Exit(shim.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agentMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "hold-host" {
		holdHost(os.Args[2], os.Args[3])
	}
	if len(os.Args) > 1 && os.Args[1] == "hold-device" {
		holdDevice(os.Args[2])
	}
	os.Exit(m.Run())
}

// holdDevice is a job that leaves PATH.twice when another one holds the device
// at the same time. The kernel gives the lock back with the process.
func holdDevice(path string) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		_ = os.WriteFile(path+".twice", []byte(err.Error()), 0o600)
	}
	_ = os.WriteFile(path+".held", nil, 0o600)
	select {}
}

// token differs in each test process, so that several may run on one machine.
var token = rand.Text()

// control is a controller with a lease table of a few lines, on a real port.
type control struct {
	t     *testing.T
	token string
	hub   *session.Hub
	addr  string
	roles session.RoleCell

	mu       sync.Mutex // guards what follows
	desired  map[uint64]session.Desired
	outcomes map[uint64]wire.Outcome // by lease, of its last job
	ends     map[uint64]wire.Outcome // by job
	hellos   []wire.Hello
	running  map[uint64]bool
	deaf     bool // outcomes are not acked
	facts    []wire.Facts
	faults   []wire.DeviceFault

	wantsProof bool
	proofs     []wire.Hello // later hellos
}

func newControl(t *testing.T) *control { return newControlOf(t, token) }

// newControlOf is a control of a cluster of its own: tests that run at the same
// time serve the same host under different tokens.
func newControlOf(t *testing.T, token string) *control {
	c := &control{t: t, token: token, desired: map[uint64]session.Desired{}, outcomes: map[uint64]wire.Outcome{}, ends: map[uint64]wire.Outcome{}, running: map[uint64]bool{}}
	c.hub = session.NewHub("c1", c, testLog(t))
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.addr = inner.Addr().String()
	l, err := mux.NewListener(inner, mux.Config{
		ClusterKey: mux.Key{Name: "cluster", Secret: []byte("k")},
		WorkerKeys: func() []mux.Key { return []mux.Key{{Name: "worker", Secret: []byte(token)}} },
		Self: func() mux.Identity {
			return mux.Identity{ClusterID: "cluster-1", Generation: 1, NodeID: "c1", Incarnation: "x"}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	serve := func(kind mux.Type, f func(context.Context, net.Conn, string) error) {
		channel := l.Channel(kind)
		wait.Go(func() {
			for {
				conn, err := channel.Accept()
				if err != nil {
					return
				}
				wait.Go(func() { _ = f(ctx, conn, conn.(*mux.Conn).Peer().NodeID) })
			}
		})
	}
	serve(mux.Agent, c.hub.ServeControl)
	serve(mux.Bytes, c.hub.ServeBytes)
	c.lead(1)
	t.Cleanup(func() { cancel(); l.Close(); wait.Wait() })
	return c
}

func (c *control) lead(term uint64) {
	epoch, stop := context.WithCancel(context.Background())
	c.t.Cleanup(stop)
	c.hub.Reset()
	c.roles.Set(session.Role{Leading: true, Epoch: epoch, Generation: 1, Term: term, Leader: "c1", Addr: c.addr})
}

func (c *control) Role() (session.Role, <-chan struct{}) { return c.roles.Get() }
func (c *control) Index() uint64                         { return 7 }
func (c *control) Controllers() []wire.Controller        { return []wire.Controller{{ID: "c1", Addr: c.addr}} }

func (c *control) Admit(_ context.Context, h wire.Hello) (session.Admission, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hellos = append(c.hellos, h)
	return session.Admission{ClusterID: "cluster-1", Index: 7}, nil
}

func (c *control) Desired(string, uint64) ([]session.Desired, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []session.Desired
	for _, d := range c.desired {
		out = append(out, d)
	}
	return out, true
}

func (c *control) Facts(_ context.Context, _, _ string, f wire.Facts) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.facts = append(c.facts, f)
	return 7, nil
}

func (c *control) Fault(_ context.Context, _, _ string, f wire.DeviceFault) (index, lease uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, f)
	return 7, 0, nil
}

// No device of this table is in quarantine unless a test says so.
func (c *control) WantsProof(wire.Hello) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wantsProof
}

func (c *control) Prove(_ context.Context, h wire.Hello) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proofs = append(c.proofs, h)
	return nil
}

func (c *control) Started(_ context.Context, _, _ string, job, _ uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, ok := c.desired[job]; ok {
		d.State = model.JobRunning
		c.desired[job] = d
		c.running[job] = true
	}
	return nil
}

func (c *control) Finish(_ context.Context, _, _ string, o wire.Outcome) (uint64, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf {
		return 0, false, errors.New("no quorum")
	}
	if d, ok := c.desired[o.Job]; ok && d.Lease == o.Lease {
		delete(c.desired, o.Job)
	}
	c.outcomes[o.Lease], c.ends[o.Job] = o, o
	return 7, true, nil
}

// want has a command run on gpu0 as job and lease n.
func (c *control) want(n uint64, change func(*wire.StartJob), command ...string) {
	start := wire.StartJob{Job: n, Lease: n, Devices: []string{"box:gpu0"}, Command: command, Submitter: "ann"}
	if change != nil {
		change(&start)
	}
	c.mu.Lock()
	c.desired[start.Job] = session.Desired{Job: start.Job, Lease: start.Lease, State: model.JobAssigned, Start: start}
	c.mu.Unlock()
	c.hub.Nudge("box")
}

func (c *control) kill(job uint64) {
	c.mu.Lock()
	if d, ok := c.desired[job]; ok { // else it has ended just now
		d.KillRequested = true
		c.desired[job] = d
	}
	c.mu.Unlock()
	c.hub.Nudge("box")
}

func (c *control) outcome(t *testing.T, lease uint64) wire.Outcome {
	t.Helper()
	var o wire.Outcome
	eventually(t, "outcome of the lease", func() (ok bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		o, ok = c.outcomes[lease]
		return ok
	})
	return o
}

// deafen has outcomes not acked.
func (c *control) deafen(deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = deaf
}

func (c *control) isRunning(job uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[job]
}

// output reads a job's output through the hub, with gaps as [gap FROM-TO].
func (c *control) output(t *testing.T, job string, from int64, follow bool) (string, relay.End) {
	t.Helper()
	text, end, err := c.tryOutput(job, from, follow)
	if err != nil {
		t.Fatalf("read output of %s: %v (%d bytes so far)", job, err, len(text))
	}
	return text, end
}

// tryOutput is output while the agent may be going down.
func (c *control) tryOutput(job string, from int64, follow bool) (string, relay.End, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := c.hub.OpenStream(ctx, "box")
	if err != nil {
		return "", relay.End{}, err
	}
	if err := relay.Ask(conn, from, wire.StreamOpen{Job: job, Follow: follow}); err != nil {
		return "", relay.End{}, err
	}
	var got bytes.Buffer
	_, end, err := relay.Receive(ctx, conn, from, relay.SinkFunc(func(_ context.Context, r relay.Record) error {
		switch r := r.(type) {
		case relay.Data:
			got.Write(r.Bytes)
		case relay.Gap:
			fmt.Fprintf(&got, "[gap %d-%d]", r.From, r.To)
		}
		return nil
	}))
	return got.String(), end, err
}

// running is an agent in this process.
type running struct {
	stop func()
	err  error
}

func testConfig(dir string, c *control) Config {
	return Config{
		Controllers: []string{c.addr}, Token: c.token, Host: "box", DataDir: dir, KillGrace: time.Second,
		Devices: []Device{{Name: "gpu0", Labels: map[string]string{"vram": "80G"}}, {Name: "gpu1"}}, KeepJobs: 100, KeepBytes: 1 << 30,
	}
}

func startAgent(t *testing.T, config Config) *running {
	t.Helper()
	return startAgentWith(t, config, func(*Deps) {})
}

func startAgentWith(t *testing.T, config Config, change func(*Deps)) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan struct{})
	r := &running{}
	deps := Deps{Logger: testLog(t), Version: "test", Exec: executable(t), Ready: func() { close(ready) }}
	change(&deps)
	go func() {
		defer close(done)
		r.err = Run(ctx, config, deps)
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(r.stop)
	select {
	case <-ready:
	case <-done:
		t.Fatalf("agent did not start: %v", r.err)
	}
	return r
}

func executable(t *testing.T) string {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// dataDir returns a data directory that leaves no process behind.
func dataDir(t *testing.T) string {
	dir := t.TempDir()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := Drain(ctx, dir, nil); err != nil && !errors.Is(err, shim.ErrCorrupt) {
			t.Errorf("drain: %v", err)
		}
		all, err := shims()
		for at, id := range all {
			if err == nil && strings.HasPrefix(at, dir) {
				t.Errorf("shim %v of %s is left", id, at)
			}
		}
	})
	return dir
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// testLog shows the log of a failed test.
func testLog(t *testing.T) *slog.Logger {
	var mu sync.Mutex
	var lines bytes.Buffer
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			t.Log("\n" + lines.String())
		}
	})
	return slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return lines.Write(p)
	}), nil))
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var _ io.Writer = writerFunc(nil)

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func reports(jobs []wire.ReportedJob, job uint64) bool {
	return slices.ContainsFunc(jobs, func(j wire.ReportedJob) bool { return j.Job == job })
}
