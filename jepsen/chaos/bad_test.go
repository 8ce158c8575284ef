package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// refusal is what every error answer must be.
type refusal struct {
	Code    string `json:"error"`
	Message string `json:"message"`
}

func TestBadInputIsRefusedWithACodeAndChangesNothing(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2})
	leader := c.Leader()
	var follower *Node
	for _, n := range c.Nodes {
		if n != leader {
			follower = n
		}
	}
	cases := []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{"unknown device", "POST", "/v1/jobs", `{"submitter":"a","device_id":"no:such","command":["true"]}`, 400, "unknown_device"},
		{"selector without a match", "POST", "/v1/jobs", `{"submitter":"a","selector":"vram>=400T","command":["true"]}`, 400, "no_matching_device"},
		{"bad selector", "POST", "/v1/jobs", `{"submitter":"a","selector":"==","command":["true"]}`, 400, "bad_selector"},
		{"priority", "POST", "/v1/jobs", `{"submitter":"a","device_id":"box:gpu0","command":["true"],"priority":11}`, 400, "priority_out_of_range"},
		{"priority far out", "POST", "/v1/jobs", `{"submitter":"a","device_id":"box:gpu0","command":["true"],"priority":-1000}`, 400, "priority_out_of_range"},
		{"malformed", "POST", "/v1/jobs", `{"submitter":`, 400, "bad_request"},
		{"empty", "POST", "/v1/jobs", ``, 400, "bad_request"},
		{"wrong type", "POST", "/v1/jobs", `{"submitter":7}`, 400, "bad_request"},
		{"too large", "POST", "/v1/jobs", `{"submitter":"` + string(bytes.Repeat([]byte("x"), 1<<20)) + `"}`, 413, "body_too_large"},
		{"no such job", "GET", "/v1/jobs/j-999", ``, 404, "not_found"},
		{"kill of no job", "POST", "/v1/jobs/j-999/kill", `{"submitter":"a"}`, 404, "not_found"},
		{"logs of no job", "GET", "/v1/jobs/nope/logs", ``, 404, "not_found"},
		{"clear of no device", "POST", "/v1/devices/no:such/clear", ``, 409, "device_not_cleared"},
		{"limit", "GET", "/v1/jobs?limit=0", ``, 400, "bad_request"},
		{"bad offset", "GET", "/v1/jobs/j-1/logs?offset=-1", ``, 400, "bad_request"},
	}
	c.MustRC("run", "-d", "box:gpu0", "--", "true") // so that there is something to change
	before := c.rows()
	for _, node := range []*Node{leader, follower} {
		for _, test := range cases {
			status, body, err := c.Do(node, test.method, test.path, "", []byte(test.body))
			if err != nil {
				t.Errorf("%s on %s: %v", test.name, node.ID, err)
				continue
			}
			var r refusal
			if json.Unmarshal(body, &r) != nil || status != test.status || r.Code != test.code || r.Message == "" {
				t.Errorf("%s on %s: %d %s, want %d %s and a sentence", test.name, node.ID, status, body, test.status, test.code)
			}
		}
	}
	if after := c.rows(); after != before {
		t.Errorf("refused requests changed the lease table from\n%s\nto\n%s", before, after)
	}
}

// rows returns how many rows each table of the lease table has, once every node
// has applied the same index and counts the same. Clocks are not among them:
// they run on.
func (c *Cluster) rows() (counts string) {
	c.t.Helper()
	c.Eventually("nodes that count the same rows", func() error {
		var first string
		for _, n := range c.Nodes {
			status, body, err := c.Get(n, "/v1/raft/status")
			var s struct {
				FSMIndex uint64         `json:"fsm_index"`
				Counts   map[string]int `json:"counts"`
			}
			if err != nil || status != http.StatusOK || json.Unmarshal(body, &s) != nil || len(s.Counts) == 0 {
				return fmt.Errorf("status of %s: %d %s %v", n.ID, status, body, err)
			}
			counts = fmt.Sprint(s.Counts) // fmt sorts the keys
			if here := fmt.Sprint(s.FSMIndex, counts); first == "" {
				first = here
			} else if here != first {
				return fmt.Errorf("%s is at %s, another at %s", n.ID, here, first)
			}
		}
		return nil
	})
	return counts
}

func TestANodeWithoutQuorumSaysSoWithinTheDeadline(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	survivor := c.Nodes[0]
	c.Nodes[1].End(syscall.SIGKILL)
	c.Nodes[2].End(syscall.SIGKILL)
	for name, ask := range map[string]func() (int, []byte, error){
		"write": func() (int, []byte, error) {
			return c.Do(survivor, "POST", "/v1/jobs", "k1", []byte(`{"submitter":"a","device_id":"box:gpu0","command":["true"]}`))
		},
		"read": func() (int, []byte, error) { return c.Get(survivor, "/v1/devices") },
	} {
		begun := time.Now()
		status, body, err := ask()
		var r refusal
		// A leader that has just lost its quorum may have taken the write
		// into its log: then only "unknown" is honest.
		honest := status == http.StatusServiceUnavailable && r.Code == "no_leader"
		if err == nil && json.Unmarshal(body, &r) == nil {
			honest = status == http.StatusServiceUnavailable && r.Code == "no_leader" ||
				name == "write" && status == http.StatusGatewayTimeout && r.Code == "outcome_unknown"
		}
		if err != nil || !honest || r.Message == "" {
			t.Errorf("%s: %d %s %v, want 503 no_leader", name, status, body, err)
		}
		if d := time.Since(begun); d > 9*time.Second {
			t.Errorf("%s was answered after %v", name, d)
		}
	}
	status, body, err := c.Get(survivor, "/v1/devices?stale=true")
	if err != nil || status != http.StatusOK || !bytes.Contains(body, []byte("box:gpu0")) {
		t.Errorf("a stale read without a leader: %d %s %v", status, body, err)
	}
	if status, body, err = c.Get(survivor, "/v1/raft/log?n=5"); err != nil || status != http.StatusOK {
		t.Errorf("raft log without a leader: %d %s %v", status, body, err)
	}
}
