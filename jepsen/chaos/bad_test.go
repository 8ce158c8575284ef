package chaos

import (
	"bytes"
	"encoding/json"
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
	before := c.digests()
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
	if out := c.MustRC("jobs", "-o", "json"); out != "[]\n" {
		t.Errorf("refused requests left jobs: %s", out)
	}
	_ = before
}

// digests returns the digest of each node's lease table.
func (c *Cluster) digests() map[string]string {
	all := map[string]string{}
	for _, n := range c.Nodes {
		_, body, err := c.Get(n, "/v1/raft/status")
		if err != nil {
			continue
		}
		var s struct {
			Digest string `json:"digest"`
		}
		if json.Unmarshal(body, &s) == nil {
			all[n.ID] = s.Digest
		}
	}
	return all
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
