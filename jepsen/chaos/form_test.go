package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clusterIDs returns the cluster ID that each node has.
func (c *Cluster) clusterIDs() map[string]string {
	ids := map[string]string{}
	for _, n := range c.Nodes {
		_, body, err := c.Get(n, "/v1/raft/status")
		var s struct {
			ClusterID string `json:"cluster_id"`
		}
		if err == nil && json.Unmarshal(body, &s) == nil {
			ids[n.ID] = s.ClusterID
		}
	}
	return ids
}

// theOneID waits until every node is of one and the same cluster.
func (c *Cluster) theOneID() string {
	c.t.Helper()
	var id string
	c.Eventually("one cluster", func() error {
		ids := c.clusterIDs()
		id = ids[c.Nodes[0].ID]
		for _, n := range c.Nodes {
			if ids[n.ID] == "" || ids[n.ID] != id {
				return fmt.Errorf("cluster IDs %v", ids)
			}
		}
		return nil
	})
	return id
}

func TestFiveControllersFormOneClusterAndRestartsChangeNothing(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 5, Devices: 1})
	id := c.theOneID()
	c.MustRC("run", "-d", "box:gpu0", "--", "true")
	for _, n := range c.Nodes {
		n.End(syscall.SIGTERM)
	}
	for _, n := range c.Nodes {
		n.Start(t)
	}
	c.WaitReady(1)
	if again := c.theOneID(); again != id {
		t.Errorf("the cluster is %s after a restart of all, it was %s", again, id)
	}
	if jobs := c.MustRC("jobs"); strings.Count(jobs, "succeeded") != 1 {
		t.Errorf("the history changed:\n%s", jobs)
	}
	var peers []Peer
	if err := json.Unmarshal([]byte(c.MustRC("raft", "peers", "-o", "json")), &peers); err != nil {
		t.Fatal(err)
	}
	voters := 0
	for _, p := range peers {
		if p.Voter {
			voters++
		}
	}
	if voters != 5 {
		t.Errorf("%d voters, want 5: %+v", voters, peers)
	}
}

func TestOneControllerIsAWholeCluster(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	c.MustRC("run", "-d", "box:gpu0", "--", "true")
	c.Nodes[0].End(syscall.SIGKILL)
	c.Nodes[0].Start(t)
	c.WaitReady(1)
	if jobs := c.MustRC("jobs"); strings.Count(jobs, "succeeded") != 1 {
		t.Errorf("the history changed:\n%s", jobs)
	}
}

func TestAWipedControllerFormsNoRivalAndHasNoVote(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	id := c.theOneID()
	// Two of three wiped: the third has state and no quorum. Nothing may come
	// of it, however long they run.
	for _, n := range c.Nodes[1:] {
		n.End(syscall.SIGKILL)
		if err := os.RemoveAll(n.DataDir); err != nil {
			t.Fatal(err)
		}
		n.Start(t)
	}
	c.Eventually("a wiped node that says what it waits for", func() error {
		_, body, err := c.Get(c.Nodes[1], "/v1/raft/status")
		if err != nil || !strings.Contains(string(body), `"state":"forming"`) || !strings.Contains(string(body), `"waiting"`) {
			return fmt.Errorf("%s %v", body, err)
		}
		return nil
	})
	// Ten election timeouts: a rival that could be elected would be by then.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for _, n := range c.Nodes {
			_, body, err := c.Get(n, "/v1/raft/status")
			if err == nil && strings.Contains(string(body), `"state":"leader"`) {
				// The survivor may still lead for the length of its lease.
				if n != c.Nodes[0] {
					t.Fatalf("a wiped node leads: %s", body)
				}
			}
		}
	}
	for node, other := range c.clusterIDs() {
		if other != "" && other != id {
			t.Errorf("%s is of a rival cluster %s", node, other)
		}
	}
}

func TestNothingStartsWithoutCredentials(t *testing.T) {
	full := []string{"PATH=" + os.Getenv("PATH"), "RCD_CLUSTER_KEY=" + ClusterKey, "RC_TOKENS=a:admin,w:worker"}
	for name, env := range map[string][]string{
		"RCD_CLUSTER_KEY": {full[0], full[2]},
		"RC_TOKENS":       {full[0], full[1]},
		"worker token":    {full[0], full[1], "RC_TOKENS=a:admin"},
		"role":            {full[0], full[1], "RC_TOKENS=a:king"},
	} {
		cmd := exec.Command(bin.RCD, "serve", "--data", t.TempDir(), "--id", "c1", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--bootstrap-expect", "1")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), name) {
			t.Errorf("without %s: %v\n%s", name, err, out)
		}
	}
}

func TestAnAgentWithAWrongTokenIsNotTakenIn(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	c.Agent.End(syscall.SIGTERM)
	for i, e := range c.Agent.env {
		if strings.HasPrefix(e, "RC_TOKEN=") {
			c.Agent.env[i] = "RC_TOKEN=wrong"
		}
	}
	c.Agent.Start(t)
	c.Eventually("a refusal in the agent's log", func() error {
		text, err := os.ReadFile(c.Agent.logPath)
		if err != nil || !strings.Contains(string(text), "unauthorized") {
			return fmt.Errorf("log: %v", err)
		}
		return nil
	})
	c.Eventually("an unknown device", func() error {
		if out := c.MustRC("devices"); !strings.Contains(out, "unknown") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

func TestJobsSeeNoSecretsOfTheDaemons(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	out := c.MustRC("run", "-d", "box:gpu0", "--", "env")
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "RC_TOKEN") || strings.HasPrefix(line, "RCD_") || strings.Contains(line, WorkerToken) {
			t.Errorf("the job sees %s", line)
		}
	}
	for _, name := range []string{"RC_JOB_ID=j-1", "RC_DEVICE=box:gpu0", "RC_LEASE_TOKEN=", "CUDA_VISIBLE_DEVICES=0"} {
		if !strings.Contains(out, name) {
			t.Errorf("the job does not see %s:\n%s", name, out)
		}
	}
}
