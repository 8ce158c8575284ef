package bench

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcd/jepsen/chaos"
)

var runs = flag.Int("bench.runs", 0, "how often to measure; 0 measures nothing")

// figures are sorted durations.
type figures []time.Duration

func (f figures) String() string {
	slices.Sort(f)
	return fmt.Sprintf("median %v, worst %v, of %d", f[len(f)/2].Round(10*time.Microsecond), f[len(f)-1].Round(10*time.Microsecond), len(f))
}

// machine says what the figures were measured on.
func machine(t *testing.T) string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("load unknown")
	}
	return fmt.Sprintf("%d cores, load %s, fsync %s", runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:3], " "), syncs(t))
}

// syncs times an append of 4 KiB and its fsync in the test's folder.
func syncs(t *testing.T) figures {
	f, err := os.Create(filepath.Join(t.TempDir(), "sync"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all figures
	block := make([]byte, 4096)
	for range 200 {
		begun := time.Now()
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(begun))
	}
	return all
}

func TestWaitForATrivialJobAndForANewLeader(t *testing.T) {
	if *runs == 0 {
		t.Skip("measures only with -bench.runs N")
	}
	bin, err := chaos.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("machine: %s", machine(t))
	c := chaos.Start(t, bin, chaos.Options{Controllers: 3, Devices: 2})

	var trivial figures
	for range *runs {
		begun := time.Now()
		c.MustRC("run", "-d", "box:gpu0", "--", "true")
		trivial = append(trivial, time.Since(begun))
	}
	t.Logf("rc run -- true: %s", trivial)

	var failover figures
	for i := range *runs {
		old := c.Leader()
		var other *chaos.Node
		for _, n := range c.Nodes {
			if n != old {
				other = n
			}
		}
		body := []byte(`{"submitter":"bench","device_id":"box:gpu1","command":["true"]}`)
		if err := old.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for {
			status, answer, err := c.Do(other, http.MethodPost, "/v1/jobs", fmt.Sprintf("bench-%d", i), body)
			if status == http.StatusCreated {
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("no write is accepted: %d %s %v", status, answer, err)
			}
		}
		failover = append(failover, time.Since(begun))
		old.End(syscall.SIGKILL)
		old.Start(t)
		c.WaitReady(2)
		c.WaitVoters()
	}
	t.Logf("kill -9 of the leader to the next accepted write: %s", failover)
	t.Logf("machine: %s", machine(t))
}
