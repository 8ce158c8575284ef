package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/shim"
	"rcd/fsm/command"
	"rcd/wire"
)

// simulated is testConfig with witnessed devices.
func simulated(dir string, c *control) Config {
	config := testConfig(dir, c)
	for i := range config.Devices {
		config.Devices[i].Simulated = true
	}
	return config
}

// treeOf returns the shim and the main process of a running job.
func treeOf(t *testing.T, config Config, name string) proc.Target {
	t.Helper()
	h, err := shim.Adopt(filepath.Join(config.DataDir, jobsDir, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var tree proc.Target
	eventually(t, "job and shim known", func() bool { tree = h.Tree(); return !tree.Root.Zero() && !tree.Above.Zero() })
	return tree
}

func TestAKilledShimCostsItsJobAndNothingElse(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("agent away=%v", away), func(t *testing.T) {
			c := newControl(t)
			config := simulated(dataDir(t), c)
			agent := startAgent(t, config)
			c.want(1, nil, sh("setsid sleep 60 & trap '' TERM; echo out; while :; do sleep 0.02; done")...)
			eventually(t, "running", func() bool { return c.isRunning(1) })
			eventually(t, "its output", func() bool { text, _ := c.output(t, "j-1", 0, false); return text == "out\n" })
			tree := treeOf(t, config, "1-1")
			if away {
				agent.stop()
			}
			if err := proc.Signal(tree.Above, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if away {
				startAgent(t, config)
			}
			o := c.outcome(t, 1)
			if o.End != uint8(command.EndSupervisorDied) || o.ExitCode != nil || o.Survivors != "" || !strings.HasPrefix(o.Reason, "supervisor_died; ") {
				t.Errorf("outcome %+v", o)
			}
			if text, err := wholeOutput(t, c, 1); text != "out\n" || err != nil {
				t.Errorf("output %q, %v", text, err)
			}
			// Nothing of it is left: the next lease would be refused by the witness.
			c.want(2, nil, "true")
			if o := c.outcome(t, 2); o.ExitCode == nil || *o.ExitCode != 0 {
				t.Errorf("the next lease: %+v", o)
			}
			if begun := begunOnce(t, config.DataDir); !slices.Equal(begun, []uint64{1, 2}) {
				t.Errorf("leases begun: %v", begun)
			}
		})
	}
}

func TestAfterARestartOfTheHostNothingOfItsJobsIsLeft(t *testing.T) {
	c := newControl(t)
	config := simulated(dataDir(t), c)
	agent := startAgent(t, config)
	c.want(1, nil, "sleep", "60")
	eventually(t, "running", func() bool { return c.isRunning(1) })
	agent.stop()
	// A restart of the host, as far as the agent can see it: nobody is there
	// any more, and the boot ID is another.
	tree := treeOf(t, config, "1-1")
	gone(t, tree)
	rebooted(t, filepath.Join(config.DataDir, jobsDir, "1-1", "spec.cbor"))

	startAgent(t, config)
	if o := c.outcome(t, 1); o.End != uint8(command.EndSupervisorDied) || o.ExitCode != nil || o.Survivors != "" || !strings.Contains(o.Reason, "the host was restarted") {
		t.Errorf("outcome %+v", o)
	}
	c.want(2, nil, "true")
	if o := c.outcome(t, 2); o.ExitCode == nil || *o.ExitCode != 0 {
		t.Errorf("the next lease: %+v", o)
	}
}

// gone ends a job as the end of its host does: the shim first, everybody, and
// the cgroup.
func gone(t *testing.T, tree proc.Target) {
	t.Helper()
	if err := proc.Signal(tree.Above, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if left, err := proc.KillTree(context.Background(), tree, 0); err != nil || len(left) > 0 {
		t.Fatalf("left %v: %v", left, err)
	}
	if tree.Cgroup != "" {
		if err := proc.RemoveCgroup(tree.Cgroup); err != nil {
			t.Fatal(err)
		}
	}
}

// rebooted gives a job's order the boot ID of an earlier day.
func rebooted(t *testing.T, path string) {
	t.Helper()
	var order struct {
		Spec shim.Spec `cbor:"1,keyasint"`
		Mark string    `cbor:"2,keyasint"`
		Boot string    `cbor:"3,keyasint"`
	}
	const kindOrder = 1 // in package shim, on disk
	if err := readRecord(path, kindOrder, &order); err != nil {
		t.Fatal(err)
	}
	order.Boot = "an earlier one"
	if err := writeRecord(path, kindOrder, order); err != nil {
		t.Fatal(err)
	}
}

// cable is the network of an agent, to be pulled.
type cable struct {
	mu    sync.Mutex
	off   bool
	conns []net.Conn
}

func (l *cable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.off {
		return nil, errors.New("the cable is pulled")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *cable) pull(off bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.off = off
	for _, conn := range l.conns {
		conn.Close()
	}
	l.conns = nil
}

func TestWithControllersAwayNothingNewStartsAndNothingOldEnds(t *testing.T) {
	c := newControl(t)
	config := simulated(dataDir(t), c)
	var net cable
	agent := startAgentWith(t, config, func(d *Deps) { d.Dial = net.dial })
	dir := t.TempDir()
	wait := func(name string) string {
		return "until [ -e " + filepath.Join(dir, name) + " ]; do sleep 0.01; done; "
	}
	done := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.want(1, nil, sh(wait("first")+"exit 5")...)
	c.want(2, func(s *wire.StartJob) { s.Devices = []string{"box:gpu1"} }, sh(wait("second")+"exit 6")...)
	eventually(t, "both running", func() bool { return c.isRunning(1) && c.isRunning(2) })
	tree := treeOf(t, config, "1-1")

	net.pull(true)
	c.want(3, func(s *wire.StartJob) { s.Devices = []string{"box:gpu1"} }, "true")
	done("second")
	eventually(t, "the second job over with nobody to tell", func() bool {
		_, err := os.Stat(filepath.Join(config.DataDir, jobsDir, "2-2", "result.cbor"))
		return err == nil
	})
	agent.stop() // also not by the restart of an agent that finds nobody
	startAgentWith(t, config, func(d *Deps) { d.Dial = net.dial })
	if !proc.Alive(tree.Root) {
		t.Error("a job ended because the controllers were away")
	}
	if begun := begunOnce(t, config.DataDir); !slices.Equal(begun, []uint64{1, 2}) {
		t.Errorf("leases begun with the controllers away: %v", begun)
	}

	net.pull(false)
	if o := c.outcome(t, 2); o.ExitCode == nil || *o.ExitCode != 6 {
		t.Errorf("the job that ended meanwhile: %+v", o)
	}
	done("first")
	for lease, code := range map[uint64]int32{1: 5, 3: 0} {
		if o := c.outcome(t, lease); o.ExitCode == nil || *o.ExitCode != code {
			t.Errorf("lease %d: %+v", lease, o)
		}
	}
	if begun := begunOnce(t, config.DataDir); !slices.Equal(begun, []uint64{1, 2, 3}) {
		t.Errorf("leases begun: %v", begun)
	}
}
