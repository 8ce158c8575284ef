package chaos

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host runs `rcd args…` as somebody on the device host would.
func (c *Cluster) host(args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.bin.RCD, append(args, "--config", filepath.Join(c.Dir, "agent.yaml"))...)
	cmd.Env = c.Agent.env
	var out, text strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &text
	err = cmd.Run()
	return out.String(), text.String(), err
}

// background starts a job that exits with 7 once its file is there.
func (c *Cluster) background(device, marker string) *exec.Cmd {
	c.t.Helper()
	cmd, _, _ := c.RC(context.Background(), "run", "-d", device, "--", "sh", "-c", "echo up; until [ -e "+marker+" ]; do sleep 0.02; done; echo over; exit 7")
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestADrainedHostFinishesItsJobAcrossAnUpgradeAndComesBackWhenCleared is the
// way of a host out of service and back, and an agent stopped by SIGTERM and
// started again with a job running on the way.
func TestADrainedHostFinishesItsJobAcrossAnUpgradeAndComesBackWhenCleared(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 2})
	marker := filepath.Join(c.Dir, "go")
	job := c.background("box:gpu0", marker)
	eventually(t, "a running job", func() bool {
		out, _, err := c.host("agent", "status", "-o", "json")
		return err == nil && strings.Contains(out, `"phase":"running"`)
	})

	out, text, err := c.host("agent", "drain", "--reason", "new fans", "--timeout", "1s", "-o", "json")
	var left struct {
		Drained bool
		Jobs    []struct{ Job, Phase string }
	}
	if json.Unmarshal([]byte(out), &left) != nil || err == nil || left.Drained || len(left.Jobs) != 1 || left.Jobs[0].Job != "j-1" || left.Jobs[0].Phase != "running" {
		t.Fatalf("drained beside a running job: %v\n%s%s", err, out, text)
	}
	if !strings.Contains(text, "the time is up; left are 1: j-1 on gpu0, running for") {
		t.Errorf("it does not name the job:\n%s", text)
	}
	eventually(t, "both devices out, with the way back", func() bool {
		out := c.MustRC("devices", "-o", "wide")
		return strings.Count(out, "fault: drained on the host: new fans; return it with: rc clear box:gpu") == 2
	})

	// The upgrade: the agent ends, another one starts.
	c.Agent.End(syscall.SIGTERM)
	if out, _, err := c.host("agent", "status"); err != nil || !strings.Contains(out, "no agent runs, 1 jobs on 1 of 2 devices, drained") {
		t.Errorf("status without an agent: %v\n%s", err, out)
	}
	c.Agent.Start(t)
	waiting := make(chan error, 1)
	go func() {
		_, text, err := c.host("agent", "drain", "--wait")
		if err == nil && !strings.Contains(text, "nothing runs on host box any more") {
			t.Errorf("the drain says\n%s", text)
		}
		waiting <- err
	}()
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := job.Wait(); job.ProcessState.ExitCode() != 7 {
		t.Errorf("rc run: %v, want the job's own 7", err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("drain: %v", err)
	}
	if out := c.MustRC("devices", "-o", "wide"); strings.Count(out, "fault: drained on the host: new fans") != 2 {
		t.Errorf("a device came back by itself:\n%s", out)
	}

	c.MustRC("clear", "box:gpu0")
	c.MustRC("clear", "box:gpu1")
	c.MustRC("run", "-d", "box:gpu0", "--", "true")
	c.MustRC("run", "-d", "box:gpu1", "--", "true")
	if out, _, err := c.host("agent", "status"); err != nil || strings.Contains(out, "drained") {
		t.Errorf("the host is back, and its status says: %v\n%s", err, out)
	}
}

// TestADeviceReturnedRightAfterADrainTakesItsNextJob: the host was drained
// without an agent, and nobody waits until every order from before has had the
// time to come.
func TestADeviceReturnedRightAfterADrainTakesItsNextJob(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	c.MustRC("run", "-d", "box:gpu0", "--", "true")
	c.Agent.End(syscall.SIGTERM)
	if _, text, err := c.host("agent", "drain"); err != nil {
		t.Fatalf("drain: %v\n%s", err, text)
	}
	c.Agent.Start(t)
	eventually(t, "the device out", func() bool { return strings.Contains(c.MustRC("devices"), "drained on the host") })
	c.MustRC("clear", "box:gpu0")
	c.MustRC("run", "-d", "box:gpu0", "--", "true")
}

// TestTheHostsGuideDrains runs what docs/hosts.md shows for a host in service.
func TestTheHostsGuideDrains(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	n := 0
	for _, line := range commands(documents(t)["hosts.md"]) {
		if !strings.HasPrefix(line, "rcd agent drain") && !strings.HasPrefix(line, "rcd agent status") {
			continue
		}
		n++
		if strings.HasPrefix(line, "rcd agent drain") {
			line += " --leader-wait 1s" // it need not be sure here that nothing more comes
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, "sh", "-c", line+" --config "+filepath.Join(c.Dir, "agent.yaml"))
		cmd.Env = append(c.Agent.env, "PATH="+filepath.Dir(bin.RCD)+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", line, err, out)
		}
		cancel()
	}
	if n < 5 {
		t.Errorf("only %d commands of the guide were found", n)
	}
}
