package agent

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// An agent that is the first process of a container gets what a dead shim leaves.
func TestAnAgentThatIsTheFirstProcessLeavesNoZombies(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	c.want(1, nil, sh("for i in 1 2 3 4 5; do setsid sleep 600 & done; exec sleep 600")...)
	eventually(t, "job 1 runs", func() bool { return c.isRunning(1) })
	list, err := proc.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
		if strings.Contains(string(line), "\x00shim\x00--dir\x00") {
			_ = proc.Signal(p.ID, unix.SIGKILL)
		}
	}
	c.outcome(t, 1)
	eventually(t, "no process is left but the agent", func() bool {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range entries {
			if _, err := strconv.Atoi(e.Name()); err == nil {
				n++
			}
		}
		return n == 1
	})
}
