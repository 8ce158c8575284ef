package chaos

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rcd/agent"
	"rcd/agent/witness"
	"rcd/wire"
)

// Binaries are the programs under test.
type Binaries struct{ RC, RCD string }

// Build compiles both programs without cgo into dir.
func Build(dir string) (Binaries, error) {
	b := Binaries{RC: filepath.Join(dir, "rc"), RCD: filepath.Join(dir, "rcd")}
	for out, pkg := range map[string]string{b.RC: "rcd/cmd/rc", b.RCD: "rcd/cmd/rcd"} {
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return b, fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	return b, nil
}

// Secrets of every test cluster.
const (
	ClusterKey  = "chaos-cluster-key-of-good-length"
	AdminToken  = "chaos-admin-token"
	ClientToken = "chaos-client-token"
)

// WorkerToken differs in each test process: an agent keeps a second one of the
// same host and token off the machine, and several runs may be on it.
var WorkerToken = "chaos-worker-" + rand.Text()

// Options shape a cluster.
type Options struct {
	Controllers int
	Devices     int
	// Proxied puts a Proxy before each port, so that it can be cut.
	Proxied bool
	// Env is added to the environment of the controllers.
	Env []string
}

// Cluster is a running set of real processes.
type Cluster struct {
	t     testing.TB
	bin   Binaries
	Dir   string
	Nodes []*Node
	Agent *Proc
}

// Node is one controller. Peers and agents dial Addr, clients URL.
type Node struct {
	*Proc
	Addr, URL   string
	Peers, HTTP *Proxy // nil unless proxied
}

// Proc is one process that can be killed and started again with the same
// arguments.
type Proc struct {
	ID      string
	DataDir string
	argv    []string
	env     []string
	logPath string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// Start launches a cluster and returns when every device is ready. Everything
// ends with the test.
func Start(t testing.TB, bin Binaries, o Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t, bin: bin, Dir: t.TempDir()}
	real := freeAddrs(t, 2*o.Controllers)
	var join []string
	for i := range o.Controllers {
		n := &Node{Addr: real[2*i], URL: "http://" + real[2*i+1]}
		if o.Proxied {
			n.Peers, n.HTTP = mustProxy(t, real[2*i]), mustProxy(t, real[2*i+1])
			n.Addr, n.URL = n.Peers.Addr(), "http://"+n.HTTP.Addr()
		}
		id := fmt.Sprintf("c%d", i+1)
		join = append(join, id+"="+n.Addr)
		n.Proc = &Proc{ID: id, DataDir: filepath.Join(c.Dir, id), logPath: filepath.Join(c.Dir, id+".log")}
		c.Nodes = append(c.Nodes, n)
	}
	for i, n := range c.Nodes {
		n.argv = []string{bin.RCD, "serve", "--data", n.DataDir, "--id", n.ID, "--listen", real[2*i], "--http", real[2*i+1],
			"--bootstrap-expect", fmt.Sprint(o.Controllers), "--join", strings.Join(join, ",")}
		n.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "RCD_CLUSTER_KEY=" + ClusterKey, "RCD_LOG_LEVEL=debug",
			"RC_TOKENS=" + AdminToken + ":admin," + ClientToken + ":client," + WorkerToken + ":worker"}
		n.env = append(n.env, o.Env...)
	}
	t.Cleanup(c.stop)
	for _, n := range c.Nodes {
		n.Start(t)
	}
	c.Agent = &Proc{ID: "agent", DataDir: filepath.Join(c.Dir, "agent"), logPath: filepath.Join(c.Dir, "agent.log")}
	c.Agent.argv = []string{bin.RCD, "agent", "--config", c.agentConfig(o.Devices)}
	c.Agent.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "RC_TOKEN=" + WorkerToken, "RCD_LOG_LEVEL=debug"}
	c.Agent.Start(t)
	c.WaitReady(o.Devices)
	c.waitLevel()
	return c
}

// waitLevel returns once the cluster is at the feature level that its controllers
// know, to which it goes by itself when each of them has said so.
func (c *Cluster) waitLevel() {
	c.t.Helper()
	c.Eventually("feature level of all controllers", func() error {
		_, body, err := c.Get(c.Nodes[0], "/v1/members")
		var members wire.Members
		if err == nil {
			err = json.Unmarshal(body, &members)
		}
		if err != nil || len(members.Members) != len(c.Nodes) {
			return fmt.Errorf("%s %v", body, err)
		}
		for _, m := range members.Members {
			if m.Supports != members.FeatureLevel {
				return fmt.Errorf("%s", body)
			}
		}
		return nil
	})
}

func (c *Cluster) agentConfig(devices int) string {
	var b strings.Builder
	b.WriteString("controllers:\n")
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "  - %s\n", n.Addr)
	}
	fmt.Fprintf(&b, "host: box\ndata_dir: %q\ndevices:\n", c.Agent.DataDir)
	for i := range devices {
		fmt.Fprintf(&b, "  - {name: gpu%d, kind: simulated, labels: {vram: 80G}}\n", i)
	}
	path := filepath.Join(c.Dir, "agent.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// stop ends the agent, its jobs, then the controllers. The logs are shown when
// the test failed.
func (c *Cluster) stop() {
	if c.Agent != nil {
		c.Agent.Signal(syscall.SIGCONT)
		c.Agent.End(syscall.SIGTERM)
		drain := exec.Command(c.bin.RCD, "agent", "drain", "--kill", "--config", filepath.Join(c.Dir, "agent.yaml"))
		drain.Env = c.Agent.env
		if text, err := drain.CombinedOutput(); err != nil {
			c.t.Errorf("drain the agent: %v\n%s", err, text)
		}
		// Law 1, as the job's own processes saw it.
		if r, err := witness.Check(agent.WitnessDir(c.Agent.DataDir)); err != nil || len(r.Breaches) > 0 {
			c.t.Errorf("the witness saw %q (%v)", r.Breaches, err)
		}
	}
	for _, n := range c.Nodes {
		n.Signal(syscall.SIGCONT)
		n.End(syscall.SIGTERM)
		if n.Peers != nil {
			n.Peers.Close()
			n.HTTP.Close()
		}
	}
	if c.t.Failed() {
		c.showLogs()
	}
}

func (c *Cluster) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "*.log"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		if len(text) > 20_000 {
			text = text[len(text)-20_000:]
		}
		c.t.Logf("--- %s\n%s", filepath.Base(path), text)
	}
}

// Start runs the process. It must not be running.
func (p *Proc) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.done = cmd, done
}

// Signal sends sig. The error says that the process does not run.
func (p *Proc) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
		return p.cmd.Process.Signal(sig)
	}
}

// End sends sig and waits until the process is gone; after 15 s it is killed.
func (p *Proc) End(sig syscall.Signal) {
	p.Signal(sig)
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		p.Signal(syscall.SIGKILL)
		<-done
	}
}

// Env is the environment of a client.
func (c *Cluster) Env(token string) []string {
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.URL)
	}
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "USER=ann", "RC_CONTROLLER=" + strings.Join(urls, ","), "RC_TOKEN=" + token}
}

// RC returns the command `rc args…`, not started, its output collected.
func (c *Cluster) RC(ctx context.Context, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, c.bin.RC, args...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.Env(AdminToken), stdout, stderr
	return cmd, stdout, stderr
}

// MustRC runs `rc args…` and returns its stdout.
func (c *Cluster) MustRC(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd, stdout, stderr := c.RC(ctx, args...)
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("rc %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout.String()
}

// Get asks one node and returns the status and the body. No retry.
func (c *Cluster) Get(n *Node, path string) (int, []byte, error) {
	return c.Do(n, http.MethodGet, path, "", nil)
}

// Do sends one request to one node, with a deadline of 10 s.
func (c *Cluster) Do(n *Node, method, path, key string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, n.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+AdminToken)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// Peer is one line of rc raft peers -o json.
type Peer struct {
	ID     string `json:"id"`
	Leader bool   `json:"leader"`
	Voter  bool   `json:"voter"`
	HTTP   string `json:"http"`
}

// Leader returns the node that leads, waiting for one.
func (c *Cluster) Leader() *Node {
	c.t.Helper()
	var leader *Node
	c.Eventually("a leader", func() error {
		for _, n := range c.Nodes {
			status, body, err := c.Get(n, "/v1/raft/status")
			if err != nil || status != http.StatusOK {
				continue
			}
			var s struct {
				State string `json:"state"`
			}
			if json.Unmarshal(body, &s) == nil && s.State == "leader" {
				leader = n
				return nil
			}
		}
		return fmt.Errorf("no node says that it leads")
	})
	return leader
}

// Term returns the leader's term.
func (c *Cluster) Term() uint64 {
	c.t.Helper()
	var s struct {
		Term uint64 `json:"term"`
	}
	leader := c.Leader()
	if status, body, err := c.Get(leader, "/v1/raft/status"); err != nil || status != http.StatusOK || json.Unmarshal(body, &s) != nil || s.Term == 0 {
		c.t.Fatalf("the term of %s: status %d, %v", leader.ID, status, err)
	}
	return s.Term
}

// WaitVoters waits until every controller answers the leader and has its log.
func (c *Cluster) WaitVoters() {
	c.t.Helper()
	c.Eventually("controllers that have caught up", func() error {
		_, body, err := c.Get(c.Leader(), "/v1/raft/peers")
		if err != nil {
			return err
		}
		var answer struct {
			Peers []struct {
				ID        string `json:"id"`
				Reachable bool   `json:"reachable"`
				LastLog   uint64 `json:"last_log_index"`
			} `json:"peers"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || len(answer.Peers) != len(c.Nodes) {
			return fmt.Errorf("%s: %v", body, err)
		}
		for _, p := range answer.Peers {
			if !p.Reachable || p.LastLog != answer.Peers[0].LastLog {
				return fmt.Errorf("%s is behind: %s", p.ID, body)
			}
		}
		return nil
	})
}

// WaitReady waits until n devices are ready.
func (c *Cluster) WaitReady(n int) {
	c.t.Helper()
	c.Eventually("ready devices", func() error {
		status, body, err := c.Get(c.Nodes[0], "/v1/devices")
		if err != nil {
			return err
		}
		if got := strings.Count(string(body), `"state":"ready"`); got != n {
			return fmt.Errorf("%d of %d ready: %d %s", got, n, status, body)
		}
		return nil
	})
}

// Eventually repeats check until it holds; a minute is far beyond any bound of
// the system, so that load on the machine does not fail a test.
func (c *Cluster) Eventually(what string, check func() error) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("no %s within a minute: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func freeAddrs(t testing.TB, n int) []string {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

func mustProxy(t testing.TB, target string) *Proxy {
	p, err := NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
