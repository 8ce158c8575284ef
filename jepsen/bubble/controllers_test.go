package bubble

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcd/client"
	ctl "rcd/controller"
	"rcd/jepsen/rig"
	"rcd/model"
	"rcd/wire"
)

// hosts names the in-memory network's hosts for package rig: "c1" listens on
// c1:7001 for peers and agents, and on c1:8080 for clients.
type hosts struct{ *Network }

func (h hosts) Listen(name string) (net.Listener, error) {
	if id, ok := strings.CutSuffix(name, "-http"); ok {
		return h.Network.Listen(id + ":8080")
	}
	return h.Network.Listen(name + ":7001")
}

func (h hosts) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	return h.Dialer(from)(ctx, "tcp", address)
}

// fleet is three whole controllers, a pretended host "box" and a client.
type fleet struct {
	t     *testing.T
	net   *Network
	nodes []*rig.Node
	box   *rig.Host
	rc    *client.Client
}

// inFleet runs a scenario on a fleet whose two devices are ready.
func inFleet(t *testing.T, scenario func(t *testing.T, f *fleet)) {
	t.Helper()
	inFleetOf(t, nil, scenario)
}

// inFleetOf runs a scenario on a fleet whose controllers are started changed.
func inFleetOf(t *testing.T, change func(id string, config *ctl.Config, deps *ctl.Deps), scenario func(t *testing.T, f *fleet)) {
	t.Helper()
	// yamux keeps stopped timers in a global pool; one of an earlier bubble
	// must not be found in this one.
	for range 3 {
		runtime.GC()
	}
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(10 * time.Minute) }) // runs last
		log := slog.New(slog.DiscardHandler)
		if os.Getenv("RC_TEST_LOG") != "" {
			log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		f := &fleet{t: t, net: NewNetwork()}
		var err error
		if f.nodes, err = rig.Open(rig.Config{Controllers: 3, Dir: t.TempDir(), Network: hosts{f.net}, Logger: log, Change: change}); err != nil {
			t.Fatal(err)
		}
		f.box = rig.StartHost(rig.HostConfig{Name: "box", Instance: "i1", Devices: 2, Token: rig.WorkerToken,
			Addresses: []string{"c1:7001", "c2:7001", "c3:7001"}, Dial: f.net.Dialer("box"), Logger: log})
		if f.rc, err = client.New(client.Options{
			Controllers: []string{"c1:8080", "c2:8080", "c3:8080"}, Token: rig.AdminToken, Dial: f.net.Dialer("desk"),
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			f.rc.Close()
			f.box.Stop()
			for _, n := range f.nodes {
				f.net.Heal(n.ID)
				if err := n.Stop(); err != nil {
					t.Errorf("stop %s: %v", n.ID, err)
				}
			}
		})
		f.eventually("two ready devices", func() bool { return f.state("box:gpu0") == "ready" && f.state("box:gpu1") == "ready" })
		scenario(t, f)
		for lease, n := range f.box.Starts() {
			if n > 1 {
				t.Errorf("law 1: lease %d was started %d times", lease, n)
			}
		}
	})
}

// eventually gives a condition five virtual minutes.
func (f *fleet) eventually(what string, holds func() bool) {
	f.t.Helper()
	for range 6000 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Fatalf("no %s within five virtual minutes", what)
}

func (f *fleet) device(id string) wire.DeviceView {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	views, err := f.rc.Devices(ctx)
	if err != nil {
		return wire.DeviceView{}
	}
	for _, v := range views {
		if v.Device.ID == id {
			return v
		}
	}
	return wire.DeviceView{}
}

func (f *fleet) state(id string) string { return f.device(id).Device.State }

func (f *fleet) leader() *rig.Node {
	f.t.Helper()
	var leader *rig.Node
	f.eventually("leader", func() bool { leader = rig.Leader(f.nodes); return leader != nil })
	return leader
}

// run submits a job and waits until the host runs it.
func (f *fleet) run(device string) uint64 { f.t.Helper(); return f.runAs(device, "") }

// runAs is run with the job's streams wired as stdio says.
func (f *fleet) runAs(device, stdio string) uint64 {
	f.t.Helper()
	job, err := f.rc.Submit(context.Background(), client.SubmitOptions{DeviceID: device, Command: []string{"train"}, Submitter: "ann", Stdio: stdio})
	if err != nil {
		f.t.Fatal(err)
	}
	number, _ := model.ParseJobID(job.ID)
	f.eventually("start of the job", func() bool {
		for _, n := range f.box.Running() {
			if n == number {
				return true
			}
		}
		return false
	})
	// The host's word that it runs may still be on its way.
	f.eventually("running job", func() bool { return f.job(number).State == "running" })
	return number
}

func (f *fleet) job(number uint64) *wire.Job {
	f.t.Helper()
	job, err := f.rc.Job(context.Background(), model.JobID(number))
	if err != nil {
		f.t.Fatal(err)
	}
	return job
}

// reader follows a job's output beside the scenario.
type reader struct {
	mu   sync.Mutex
	text bytes.Buffer
	done chan error
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (f *fleet) follow(number uint64) *reader {
	r := &reader{done: make(chan error, 1)}
	go func() { r.done <- f.rc.Logs(context.Background(), model.JobID(number), r, true) }()
	return r
}

// printer prints a numbered line each 10 ms until its stop is called, which
// returns everything that was printed.
func (f *fleet) printer(number uint64) (stop func() string) {
	quit, done := make(chan struct{}), make(chan string, 1)
	go func() {
		var all strings.Builder
		for i := 1; ; i++ {
			select {
			case <-quit:
				done <- all.String()
				return
			case <-time.After(10 * time.Millisecond):
			}
			line := fmt.Sprintf("line %d\n", i)
			all.WriteString(line)
			f.box.Print(number, line)
		}
	}()
	return func() string { close(quit); return <-done }
}

// whole waits for the reader's end and compares.
func (f *fleet) whole(r *reader, want string) {
	f.t.Helper()
	if err := <-r.done; err != nil {
		f.t.Errorf("follow: %v", err)
	}
	if got := r.String(); got != want {
		f.t.Errorf("the reader has %d bytes, the job printed %d", len(got), len(want))
	}
}

func TestOutputSurvivesALeaderThatIsCutOff(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		r, stop := f.follow(job), f.printer(job)
		time.Sleep(time.Second)
		old := f.leader()
		f.net.Isolate(old.ID)
		f.eventually("another leader", func() bool {
			for _, n := range f.nodes {
				if n != old && n.Controller.Leader().Self {
					return true
				}
			}
			return false
		})
		before := len(r.String())
		f.eventually("output through the new leader", func() bool { return len(r.String()) > before })
		f.net.Heal(old.ID)
		time.Sleep(10 * time.Second)
		printed := stop()
		f.box.Exit(job, 7)
		f.whole(r, printed)
		if row := f.job(job); row.State != "failed" || *row.ExitCode != 7 {
			t.Errorf("%s with %v, want failed with 7", row.State, *row.ExitCode)
		}
		if v := f.device("box:gpu0"); v.Device.State != "ready" {
			t.Errorf("the device is %s (%s)", v.Device.State, v.QuarantineReason)
		}
	})
}

func TestACutAgentLinkJudgesNobodyAndLosesNothing(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job, other := f.run("box:gpu0"), f.run("box:gpu1")
		r, stop := f.follow(job), f.printer(job)
		time.Sleep(time.Second)
		f.net.Isolate("box")
		f.eventually("unknown device", func() bool { return f.state("box:gpu0") == "unknown" })
		f.box.Exit(other, 3) // ends while nobody can hear it
		time.Sleep(20 * time.Second)
		f.net.Heal("box")
		f.eventually("busy device", func() bool { return f.state("box:gpu0") == "busy" })
		f.eventually("outcome of the other job", func() bool { return f.job(other).State == "failed" })
		if code := f.job(other).ExitCode; code == nil || *code != 3 {
			t.Errorf("the job that ended unheard has code %v, want 3", code)
		}
		printed := stop()
		f.box.Exit(job, 0)
		f.whole(r, printed)
	})
}

func TestAWholeClusterRestartKeepsLeasesAndOutput(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		r, stop := f.follow(job), f.printer(job)
		time.Sleep(time.Second)
		lease := f.job(job).Lease
		for _, n := range f.nodes {
			if err := n.Stop(); err != nil {
				t.Fatalf("stop %s: %v", n.ID, err)
			}
		}
		time.Sleep(time.Minute)
		for _, n := range f.nodes {
			if err := n.Start(); err != nil {
				t.Fatal(err)
			}
		}
		f.eventually("busy device", func() bool { return f.state("box:gpu0") == "busy" })
		printed := stop()
		f.box.Exit(job, 0)
		f.whole(r, printed)
		if row := f.job(job); row.State != "succeeded" || row.Lease != lease {
			t.Errorf("%s under %s, want succeeded under %s", row.State, row.Lease, lease)
		}
	})
}

func TestSilenceIsJudgedAfterItsBoundAndLateTruthIsAdded(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.net.Isolate("box")
		time.Sleep(4 * time.Minute)
		if state := f.job(job).State; state != "running" {
			t.Errorf("after four minutes of silence the job is %s", state)
		}
		f.eventually("lost job", func() bool { return f.job(job).State == "lost" })
		if v := f.device("box:gpu0"); v.Device.State != "unhealthy" {
			t.Errorf("the device of a lost job is %s", v.Device.State)
		}
		f.box.Exit(job, 5)
		f.net.Heal("box")
		f.eventually("late exit code", func() bool { return f.job(job).LateExitCode != nil })
		if row := f.job(job); row.State != "lost" || *row.LateExitCode != 5 {
			t.Errorf("%s with late code %d, want lost with 5", row.State, *row.LateExitCode)
		}
		// The same agent process proves, while it is attached, that nothing of
		// the job is left: nobody has to restart it.
		f.eventually("ready device", func() bool { return f.state("box:gpu0") == "ready" && f.state("box:gpu1") == "ready" })
		if f.box.Welcomes() != 2 {
			t.Errorf("%d sessions, want the first and the one after the silence", f.box.Welcomes())
		}
		kinds := f.kinds()
		if kinds["recover"] != 1 || kinds["agent.register"] != 1 {
			t.Errorf("the proof of a known process came as %v", kinds)
		}
	})
}

func TestSurvivorsKeepADeviceOutUntilTheyAreGone(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.run("box:gpu0")
		f.net.Isolate("box")
		time.Sleep(4 * time.Minute)
		f.eventually("unhealthy device", func() bool { return f.state("box:gpu0") == "unhealthy" })
		f.box.SetSurvivors(true)
		f.net.Heal("box")
		time.Sleep(5 * time.Minute)
		if state := f.state("box:gpu0"); state != "unhealthy" {
			t.Errorf("with survivors on it the device is %s", state)
		}
		f.box.SetSurvivors(false)
		f.eventually("ready device", func() bool { return f.state("box:gpu0") == "ready" })
	})
}

func TestNothingDestructiveIsDrawnFromSilenceInTheHoldoffOfEveryLeader(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.net.Isolate("box")
		// A new leader every four minutes: none has heard silence for five.
		for range 4 {
			time.Sleep(4 * time.Minute)
			old := f.leader()
			if err := old.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := old.Start(); err != nil {
				t.Fatal(err)
			}
			f.leader()
		}
		if state := f.job(job).State; state != "running" {
			t.Errorf("a leader judged by another's silence: the job is %s", state)
		}
		f.net.Heal("box")
		f.eventually("busy device", func() bool { return f.state("box:gpu0") == "busy" })
		f.box.Exit(job, 0)
		f.eventually("end of the job", func() bool { return f.job(job).State == "succeeded" })
	})
}

func TestAHelloOutOfReachHoldsUpNobody(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		rogue := rig.StartHost(rig.HostConfig{Name: "rogue", Instance: "r1", Devices: 1, Token: rig.WorkerToken, Index: 1 << 40,
			Addresses: []string{"c1:7001", "c2:7001", "c3:7001"}, Dial: f.net.Dialer("rogue"), Logger: slog.New(slog.DiscardHandler)})
		defer rogue.Stop()
		time.Sleep(20 * time.Second)
		f.net.Isolate("box")
		cut := time.Now()
		f.eventually("unknown device", func() bool { return f.state("box:gpu0") == "unknown" })
		if took := time.Since(cut); took > 10*time.Second {
			t.Errorf("a detached host was unknown after %v, want about 3 s", took)
		}
		f.net.Heal("box")
		healed := time.Now()
		f.eventually("busy device", func() bool { return f.state("box:gpu0") == "busy" })
		if took := time.Since(healed); took > 5*time.Second {
			t.Errorf("an honest host was taken in after %v", took)
		}
		if rogue.Welcomes() != 0 {
			t.Error("a host that has seen what this cluster has not was taken in")
		}
		f.box.Exit(job, 0)
		f.eventually("end of the job", func() bool { return f.job(job).State == "succeeded" })
	})
}
