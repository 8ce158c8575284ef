package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/witness"
	"rcd/relay"
	"rcd/wire"
)

// long has the tests run that take longer than a minute in all.
var long = flag.Bool("agent.long", false, "run the long tests too: 200 restarts, and the previous commit's shims")

// agentMain is an agent in a process of its own, to be killed: arguments are
// the controller, the data directory, the token, the point at which it kills
// itself, if any, and a file with devices and verify scripts, if any. It ends with its stdin, so that it never outlives the test,
// and with SIGTERM.
func agentMain(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	deps := Deps{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if last := point(args[3]); last != "" {
		deps.reached = func(p point) {
			if p == last {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL) // always permitted
				select {}
			}
		}
		deps.shaped = func(a *agent) {
			if last == atRemoving {
				config := *a.settings()
				config.KeepJobs = 1
				a.live.Store(&config)
			}
			a.checks = append(a.checks, check{name: "nothing", look: func(context.Context, *job, wire.Outcome) finding { return finding{} }})
		}
	}
	config := processConfig(args[0], args[1], args[2])
	if len(args) > 4 {
		more, err := LoadConfig(args[4])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		config.Devices, config.Verify = more.Devices, more.Verify
	}
	if err := Run(ctx, config, deps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func processConfig(addr, dir, token string) Config {
	config := Config{Controllers: []string{addr}, Token: token, Host: "box", DataDir: dir, KillGrace: time.Second, KeepJobs: 100_000, KeepBytes: 1 << 30}
	for i := range 4 {
		config.Devices = append(config.Devices, Device{Name: fmt.Sprintf("gpu%d", i), Simulated: true})
	}
	return config
}

// agentProcess is such an agent.
type agentProcess struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
}

func startProcess(t *testing.T, c *control, dir string, dies point) *agentProcess {
	t.Helper()
	return runProcess(t, exec.Command(executable(t), "agent", c.addr, dir, token, string(dies)))
}

// startProcessWith is startProcess with devices and scripts of its own, in YAML.
func startProcessWith(t *testing.T, c *control, dir, more string) *agentProcess {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte("controllers: ["+c.addr+"]\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return runProcess(t, exec.Command(executable(t), "agent", c.addr, dir, token, "", path))
}

// runProcess starts an agent that ends with the test at the latest.
func runProcess(t *testing.T, cmd *exec.Cmd) *agentProcess {
	t.Helper()
	log := &lastWords{}
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &agentProcess{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		p.end(unix.SIGKILL)
		stdin.Close()
		if t.Failed() {
			t.Logf("agent %d:\n%s", cmd.Process.Pid, log)
		}
	})
	return p
}

// end sends a signal and waits for the process to be gone.
func (p *agentProcess) end(sig unix.Signal) {
	_ = p.cmd.Process.Signal(sig) // ended already is what we want
	<-p.done
}

// killedItself waits for the end of an agent that was to die at a point.
func (p *agentProcess) killedItself(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(60 * time.Second):
		t.Fatal("the agent never came to that point")
	}
	if state, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGKILL {
		t.Fatalf("the agent ended with %v", p.cmd.ProcessState)
	}
}

// lastWords keeps the end of what an agent says.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-20_000):]
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}

// begunOnce returns the leases that the witness saw begin on any device, and
// fails if it saw anything that must not be.
func begunOnce(t *testing.T, dir string) []uint64 {
	t.Helper()
	r, err := witness.Check(WitnessDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Breaches) > 0 {
		t.Errorf("the witness saw:\n%s", strings.Join(r.Breaches, "\n"))
	}
	var all []uint64
	for _, d := range r.Devices {
		all = append(all, d.Begun...)
	}
	slices.Sort(all)
	return all
}

// wholeOutput reads an ended job's output, if its record is still kept.
func wholeOutput(t *testing.T, c *control, job uint64) (string, error) {
	t.Helper()
	var text string
	var end relay.End
	eventually(t, "output of the job", func() (ok bool) { // the agent may just be coming back
		var err error
		text, end, err = c.tryOutput(fmt.Sprintf("j-%d", job), 0, true)
		return err == nil
	})
	if !end.Complete {
		return text, errors.New(end.Reason)
	}
	return text, nil
}
