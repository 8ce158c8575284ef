package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/client"
	"rcd/jepsen/rig"
	"rcd/model"
)

// cluster is three controllers on loopback with one pretended host.
type cluster struct {
	t     *testing.T
	nodes []*rig.Node
	host  *rig.Host
	rc    *client.Client
}

func start(t *testing.T) *cluster {
	t.Helper()
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if os.Getenv("RC_TEST_LOG") == "debug" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	nodes, err := rig.Open(rig.Config{Controllers: 3, Dir: t.TempDir(), Network: &rig.Loopback{}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, nodes: nodes}
	var urls, addrs []string
	for _, n := range nodes {
		urls, addrs = append(urls, "http://"+n.HTTP), append(addrs, n.Addr)
	}
	c.host = rig.StartHost(rig.HostConfig{Name: "box", Instance: "i1", Devices: 2, Addresses: addrs, Token: rig.WorkerToken, Logger: log})
	if c.rc, err = client.New(client.Options{Controllers: urls, Token: rig.AdminToken}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.rc.Close()
		c.host.Stop()
		for _, n := range nodes {
			if err := n.Stop(); err != nil {
				t.Errorf("stop %s: %v", n.ID, err)
			}
		}
	})
	c.eventually("two ready devices", func() error {
		devices, err := c.rc.Devices(context.Background())
		if err != nil {
			return err
		}
		for _, d := range devices {
			if d.Device.State != "ready" {
				return fmt.Errorf("%s is %s", d.Device.ID, d.Device.State)
			}
		}
		if len(devices) != 2 {
			return fmt.Errorf("%d devices", len(devices))
		}
		return nil
	})
	return c
}

// testLog gives log lines to a test; a late one, of a goroutine that outlives
// it, is dropped.
type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	defer func() { _ = recover() }()
	l.t.Log(strings.TrimSpace(string(line)))
	return len(line), nil
}

func (c *cluster) eventually(what string, check func() error) {
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
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *cluster) submit(device string) uint64 {
	c.t.Helper()
	job, err := c.rc.Submit(context.Background(), client.SubmitOptions{DeviceID: device, Command: []string{"true"}, Submitter: "ann"})
	if err != nil {
		c.t.Fatal(err)
	}
	n, _ := model.ParseJobID(job.ID)
	return n
}

func (c *cluster) waitRunning(job uint64) {
	c.t.Helper()
	c.eventually("running job", func() error {
		for _, n := range c.host.Running() {
			if n == job {
				return nil
			}
		}
		return fmt.Errorf("the host runs %v", c.host.Running())
	})
}

func TestJobRunsFromSubmitToExitCode(t *testing.T) {
	c := start(t)
	job := c.submit("box:gpu0")
	c.waitRunning(job)
	c.host.Print(job, "hello\n")
	c.host.Exit(job, 7)
	row, err := c.rc.WaitTerminal(context.Background(), model.JobID(job), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if row.State != "failed" || row.ExitCode == nil || *row.ExitCode != 7 {
		t.Errorf("job ended as %s with code %v, want failed with 7", row.State, row.ExitCode)
	}
	var out bytes.Buffer
	if err := c.rc.Logs(context.Background(), model.JobID(job), &out, false); err != nil || out.String() != "hello\n" {
		t.Errorf("logs: %q, %v", &out, err)
	}
}

func TestOutputGoesOnAfterTheLeaderCloses(t *testing.T) {
	c := start(t)
	job := c.submit("box:gpu0")
	c.waitRunning(job)
	var out safeBuffer
	followed := make(chan error, 1)
	go func() { followed <- c.rc.Logs(context.Background(), model.JobID(job), &out, true) }()
	for i := range 3 {
		line := fmt.Sprintf("line %d\n", i)
		c.host.Print(job, line)
		c.eventually("the line", func() error {
			if !strings.HasSuffix(out.String(), line) {
				return fmt.Errorf("have %q", out.String())
			}
			return nil
		})
		leader := rig.Leader(c.nodes)
		if leader == nil {
			continue
		}
		if err := leader.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := leader.Start(); err != nil {
			t.Fatal(err)
		}
	}
	c.host.Exit(job, 0)
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	if want := "line 0\nline 1\nline 2\n"; out.String() != want {
		t.Errorf("followed %q, want %q", out.String(), want)
	}
	for lease, n := range c.host.Starts() {
		if n != 1 {
			t.Errorf("lease %d was started %d times", lease, n)
		}
	}
}

func TestConcurrentSubmitsThroughARollingRestartHappenOnce(t *testing.T) {
	c := start(t)
	stop := make(chan struct{})
	var drain sync.WaitGroup
	drain.Add(1)
	go func() { // the host ends whatever runs
		defer drain.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, job := range c.host.Running() {
				c.host.Exit(job, 0)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	const clients, each = 8, 10
	var wg sync.WaitGroup
	for i := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range each {
				_, err := c.rc.Submit(context.Background(), client.SubmitOptions{
					Selector: "vram>=40G", Command: []string{fmt.Sprintf("mark-%d-%d", i, k)}, Submitter: "ann",
				})
				if err != nil {
					t.Errorf("submit: %v", err)
				}
			}
		}()
	}
	for _, n := range c.nodes {
		if err := n.Stop(); err != nil {
			t.Errorf("stop %s: %v", n.ID, err)
		}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		c.eventually("a leader", func() error {
			if rig.Leader(c.nodes) == nil {
				return io.EOF
			}
			return nil
		})
	}
	wg.Wait()
	c.eventually("an empty queue", func() error {
		state, err := c.rc.State(context.Background())
		if err != nil {
			return err
		}
		if n := len(state.Queued) + len(state.Jobs); n > 0 {
			return fmt.Errorf("%d jobs left", n)
		}
		return nil
	})
	close(stop)
	drain.Wait()
	jobs, err := c.rc.Jobs(context.Background(), client.JobsOptions{Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, j := range jobs {
		seen[j.Command[0]]++
		if j.State != "succeeded" {
			t.Errorf("%s ended as %s", j.ID, j.State)
		}
	}
	for i := range clients {
		for k := range each {
			if mark := fmt.Sprintf("mark-%d-%d", i, k); seen[mark] != 1 {
				t.Errorf("%s happened %d times", mark, seen[mark])
			}
		}
	}
}

// safeBuffer is written by one goroutine and read by another.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
