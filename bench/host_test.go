package bench

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcd/agent/proc"
	"rcd/jepsen/chaos"
)

var (
	hostFor     = flag.Duration("bench.host", 0, "for how long to look at a busy host; 0 measures nothing")
	hostDevices = flag.Int("bench.devices", 64, "simulated devices of that host, all busy")
)

// TestABusyHost measures what an agent takes for itself beside as many jobs as
// it has devices, each printing a line a second, and how long the next agent
// takes to adopt them all after a kill -9.
func TestABusyHost(t *testing.T) {
	if *hostFor == 0 {
		t.Skip("measures only with -bench.host 60s")
	}
	bin, err := chaos.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := *hostDevices
	c := chaos.Start(t, bin, chaos.Options{Controllers: 1, Devices: n})
	for i := range n {
		body := fmt.Sprintf(`{"submitter":"bench","device_id":"box:gpu%d","command":["sh","-c","while :; do date; sleep 1; done"]}`, i)
		if status, answer, err := c.Do(c.Nodes[0], http.MethodPost, "/v1/jobs", fmt.Sprintf("bench-%d", i), []byte(body)); status != http.StatusCreated {
			t.Fatalf("submit: %d %s %v", status, answer, err)
		}
	}
	c.Eventually("busy devices", func() error {
		entries, err := filepath.Glob(filepath.Join(c.Agent.DataDir, "jobs", "*", "process.cbor"))
		if len(entries) != n {
			return fmt.Errorf("%d of %d (%v)", len(entries), n, err)
		}
		return nil
	})
	agent, controller := pidOf(t, c.Agent.DataDir), pidOf(t, c.Nodes[0].DataDir)
	shims := shimsOf(t, c.Agent.DataDir)
	time.Sleep(2 * time.Second) // past the starts
	all := append([]int{agent, controller}, shims...)
	before := map[int]usage{}
	for _, pid := range all {
		before[pid] = usageOf(t, pid)
	}
	begun := time.Now()
	time.Sleep(*hostFor)
	took := time.Since(begun)
	var shimCPU time.Duration
	var shimRSS, shimOwn int
	for _, pid := range shims {
		u := usageOf(t, pid)
		shimCPU += u.cpu - before[pid].cpu
		shimRSS, shimOwn = shimRSS+u.rss, shimOwn+u.own
	}
	say := func(who string, pid int) {
		u := usageOf(t, pid)
		cpu := u.cpu - before[pid].cpu
		t.Logf("%s: %v of CPU in %v, %.2f %% of a core; RSS %d KiB, of that its own %d KiB", who, cpu, took.Round(time.Second),
			100*cpu.Seconds()/took.Seconds(), u.rss, u.own)
	}
	t.Logf("%d devices, all busy, a line a second each; machine: %s", n, machine(t))
	say("agent", agent)
	say("controller", controller)
	t.Logf("a shim, mean of %d: %v of CPU, %.3f %% of a core; RSS %d KiB, of that its own %d KiB", len(shims), shimCPU/time.Duration(len(shims)),
		100*shimCPU.Seconds()/took.Seconds()/float64(len(shims)), shimRSS/len(shims), shimOwn/len(shims))

	var adoption figures
	for range 5 {
		logged := serves(t, c.Dir, n)
		c.Agent.End(syscall.SIGKILL)
		begun := time.Now()
		c.Agent.Start(t)
		for serves(t, c.Dir, n) == logged {
			if time.Since(begun) > time.Minute {
				t.Fatal("the agent does not come back with all its jobs")
			}
			time.Sleep(time.Millisecond)
		}
		adoption = append(adoption, time.Since(begun))
	}
	t.Logf("start of an agent to all %d jobs adopted: %s", n, adoption)
}

// usage is what a process has taken.
type usage struct {
	cpu      time.Duration
	rss, own int // KiB; own is what it shares with no other process or file
}

func usageOf(t *testing.T, pid int) (u usage) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	for _, f := range fields[11:13] { // utime and stime
		ticks, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		for key, into := range map[string]*int{"VmRSS:": &u.rss, "RssAnon:": &u.own} {
			if rest, ok := strings.CutPrefix(line, key); ok {
				*into, _ = strconv.Atoi(strings.Fields(rest)[0])
			}
		}
	}
	return u
}

func pidOf(t *testing.T, dataDir string) int {
	t.Helper()
	id, ok := proc.ReadPIDFile(filepath.Join(dataDir, proc.PIDFile))
	if !ok {
		t.Fatalf("no process serves %s", dataDir)
	}
	return id.PID
}

// shimsOf lists the shims of a data directory.
func shimsOf(t *testing.T, dataDir string) (pids []int) {
	t.Helper()
	list, err := proc.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if strings.Contains(string(line), "\x00shim\x00--dir\x00"+dataDir) {
			pids = append(pids, p.PID)
		}
	}
	if len(pids) == 0 {
		t.Fatal("no shims")
	}
	return pids
}

// serves counts how often the agent has said that it serves with n jobs.
func serves(t *testing.T, dir string, n int) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), fmt.Sprintf("jobs=%d instance=", n))
}
