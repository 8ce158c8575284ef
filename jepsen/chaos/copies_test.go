package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// numbers is what seq prints.
func numbers(from, to int) []byte {
	var b bytes.Buffer
	for i := from; i <= to; i++ {
		b.WriteString(strconv.Itoa(i))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// copied waits until a controller has complete copies of n jobs.
func (c *Cluster) copied(n *Node, jobs int) {
	c.t.Helper()
	c.Eventually("complete copies on "+n.ID, func() error {
		status, body, err := c.Get(n, "/v1/raft/status")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("status %d, %v", status, err)
		}
		var s struct {
			Copies struct {
				Complete int `json:"jobs_complete"`
			} `json:"output_copies"`
		}
		if err := json.Unmarshal(body, &s); err != nil || s.Copies.Complete != jobs {
			return fmt.Errorf("%d complete, %v", s.Copies.Complete, err)
		}
		return nil
	})
}

// TestOutputOutlivesItsHostAndAnyOneKilledController lets a job print 20 MB
// with the leader killed in the middle, kills its host, and reads the output
// with each controller killed in turn.
func TestOutputOutlivesItsHostAndAnyOneKilledController(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	const half, all = 1_350_000, 2_700_000
	want := numbers(1, all)
	proceed := filepath.Join(t.TempDir(), "proceed")
	script := fmt.Sprintf(`seq 1 %d; until [ -e %s ]; do sleep 0.05; done; seq %d %d; exit 3`, half, proceed, half+1, all)
	job := strings.TrimSpace(c.MustRC("run", "--detach", "-d", "box:gpu0", "--", "sh", "-c", script))
	c.Eventually("output of the job", func() error {
		if got := c.MustRC("logs", job); len(got) < len(want)/3 {
			return fmt.Errorf("%d bytes", len(got))
		}
		return nil
	})
	killed := c.Leader()
	killed.End(syscall.SIGKILL)
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Eventually("end of the job", func() error {
		if jobs := c.MustRC("jobs", "-o", "json"); !strings.Contains(jobs, `"failed"`) {
			return fmt.Errorf("%s", jobs)
		}
		return nil
	})
	for _, n := range c.Nodes {
		if n != killed {
			c.copied(n, 1)
		}
	}
	c.Agent.End(syscall.SIGKILL) // the job's shim ended with it
	killed.Start(t)
	c.copied(killed, 1) // the rest of it from the others
	for _, n := range c.Nodes {
		n.End(syscall.SIGKILL)
		began := time.Now()
		got := c.MustRC("logs", job)
		if got != string(want) {
			t.Errorf("with %s killed: %d bytes of %d, not what was printed", n.ID, len(got), len(want))
		}
		t.Logf("with %s killed: %d bytes in %v", n.ID, len(got), time.Since(began).Round(time.Millisecond))
		n.Start(t)
		c.copied(n, 1)
		c.WaitVoters()
	}
}
