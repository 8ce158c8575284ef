package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/wire"
)

// fill leaves no room on a disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "filling"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func (c *control) helloAt(t *testing.T, n int) (h wire.Hello) {
	t.Helper()
	eventually(t, "another hello", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.hellos) > n {
			h = c.hellos[n]
		}
		return len(c.hellos) > n
	})
	return h
}

// A full disk keeps jobs from starting, and no agent from the jobs that run.
func TestAnAgentStartsOnAFullDisk(t *testing.T) {
	c := newControl(t)
	config := testConfig(t.TempDir(), c)
	if err := unix.Mount("tmpfs", config.DataDir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("no small disk can be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(config.DataDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { // before that, and after the agents
		_ = os.Remove(filepath.Join(config.DataDir, "filling"))
		if err := Drain(context.Background(), config.DataDir, nil); err != nil {
			t.Error(err)
		}
	})
	first := startAgent(t, config)
	c.want(1, nil, sh("until [ -e "+filepath.Join(config.DataDir, "go")+" ]; do sleep 0.01; done; exit 7")...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	first.stop()
	// What an agent leaves that was killed between fence and spec.
	s, _, _, err := openState(config.DataDir)
	if err == nil {
		_, err = s.begin([]string{"gpu1"}, claim{lease: 11})
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(config.DataDir, jobsDir, "2-11"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	fill(t, config.DataDir)
	startAgent(t, config)
	if h := c.helloAt(t, 1); len(h.Jobs) != 1 || h.Devices[1].Begun != 10 {
		t.Errorf("hello %+v", h)
	}
	if err := os.Remove(filepath.Join(config.DataDir, "filling")); err != nil {
		t.Fatal(err)
	}
	executableFile(t, filepath.Join(config.DataDir, "go"), "")
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 7 {
		t.Errorf("outcome %+v", o)
	}
}
