package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

// agentMain runs an agent in a process of its own, to be killed. It ends with
// its stdin, so that it never outlives the test.
func agentMain() int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	config := Config{Controllers: []string{os.Args[2]}, Token: os.Args[4], Host: "box", DataDir: os.Args[3], KillGrace: time.Second,
		Devices: []Device{{Name: "gpu0"}, {Name: "gpu1"}}, KeepJobs: 1000, KeepBytes: 1 << 30}
	if err := Run(ctx, config, Deps{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (c *control) busy(device string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.desired {
		if d.Start.Devices[0] == device {
			return true
		}
	}
	return false
}

// end kills an agent the hard way, once.
func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill() // it is there: nothing else ends it
		_ = cmd.Wait()
	}
}

// TestAKilledAgentLosesNoExitCodeAndStartsNothingTwice kills agents with
// SIGKILL at random moments while jobs begin and end on two devices.
// RC_TEST_KILLS sets how many (default 8); the seed is printed.
func TestAKilledAgentLosesNoExitCodeAndStartsNothingTwice(t *testing.T) {
	kills := 8
	if n, err := strconv.Atoi(os.Getenv("RC_TEST_KILLS")); err == nil {
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d kills", seed, kills)
	r := rand.New(rand.NewPCG(seed, 1))

	c := newControl(t)
	dir := dataDir(t)
	witness := t.TempDir()
	done := make(chan struct{})
	total := uint64(2 * kills)
	go func() { // one job after the other on each device
		defer close(done)
		for n := uint64(1); n <= total; time.Sleep(2 * time.Millisecond) {
			for gpu := range 2 {
				device := fmt.Sprint("box:gpu", gpu)
				if n > total || c.busy(device) {
					continue
				}
				lock := filepath.Join(witness, fmt.Sprint("device", gpu))
				script := fmt.Sprintf("echo x >> %s/job%d; mkdir %s || touch %s/twice; sleep 0.0%d; rmdir %s; exit %d",
					witness, n, lock, witness, n%9, lock, n%100)
				c.want(n, func(s *wire.StartJob) { s.Devices = []string{device} }, sh(script)...)
				n++
			}
		}
	}()

	start := func() *exec.Cmd {
		cmd := exec.Command(executable(t), "agent", c.addr, dir, token)
		cmd.Stderr = os.Stderr
		if !testing.Verbose() {
			cmd.Stderr = nil
		}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stdin.Close() })
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	cmd := start()
	defer func() { end(cmd) }()
	for range kills {
		time.Sleep(time.Duration(30+r.IntN(200)) * time.Millisecond)
		end(cmd)
		cmd = start()
	}
	<-done
	for n := uint64(1); n <= total; n++ {
		if o := c.outcome(t, n); o.ExitCode == nil || *o.ExitCode != int32(n%100) {
			t.Errorf("job %d: %+v", n, o)
		}
		if runs := read(t, witness, fmt.Sprint("job", n)); runs != "x\n" {
			t.Errorf("job %d ran %d times", n, strings.Count(runs, "x"))
		}
	}
	end(cmd)
	if _, err := os.Stat(filepath.Join(witness, "twice")); err == nil {
		t.Error("two jobs were on one device")
	}
}
