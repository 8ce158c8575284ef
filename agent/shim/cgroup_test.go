package shim

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

func TestCgroupRecordIsFrozen(t *testing.T) {
	want := cgroupRecord{Path: "/sys/fs/cgroup/system.slice/rcd.service/rc-j-48213-MARK"}
	data, err := encodeRecord(kindCgroup, want)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "cgroup.golden", hex.Dump(data))
	var back cgroupRecord
	if err := decodeRecord(kindCgroup, data, &back); err != nil || back != want {
		t.Errorf("reads back as %+v, %v", back, err)
	}
}

// inCgroup tells whether a process is in the cgroup of that path.
func inCgroup(t *testing.T, id proc.ID, path string) bool {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", id.PID))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(raw, []byte("/"+filepath.Base(path)+"\n"))
}

func TestJobIsBornIntoItsCgroupAndItsShimStaysOutside(t *testing.T) {
	needsCgroup(t)
	h := start(t, job(t, "echo ready; exec sleep 60"))
	status := awaitOutput(t, h, 6)
	path, err := cgroupOf(h.dir)
	if err != nil || !strings.Contains(path, "/rc-j-7-"+h.order.Mark) || h.Tree().Cgroup != path {
		t.Fatalf("cgroup %q, %v; the handle says %q", path, err, h.Tree().Cgroup)
	}
	if !inCgroup(t, status.Job, path) || inCgroup(t, shimOf(h), path) {
		t.Errorf("the job is inside: %v; the shim is: %v", inCgroup(t, status.Job, path), inCgroup(t, shimOf(h), path))
	}
	h.Kill("cancelled")
	wantEnd(t, await(t, h), Killed, 143, "cancelled")
	wantNoCgroup(t, h, true)
}

func TestJobRunsWithoutACgroupWhereThereIsNone(t *testing.T) {
	cfg := job(t, "exit 7")
	cfg.shimEnv = append(cfg.shimEnv, misbehaviourName+"=no-cgroup")
	h := start(t, cfg)
	wantEnd(t, await(t, h), Exited, 7, "")
	wantNoCgroup(t, h, false)
	if raw, err := os.ReadFile(filepath.Join(h.dir, logName)); err != nil || bytes.Count(raw, []byte("without a cgroup")) != 1 {
		t.Errorf("the shim's log does not say so once: %s, %v", raw, err)
	}
}

func TestJobRunsOutsideACgroupThatCannotTakeIt(t *testing.T) {
	var log bytes.Buffer
	for _, c := range []struct {
		program string
		warns   bool
	}{{"/bin/true", true}, {"/no-such-program", false}} {
		log.Reset()
		s := &supervisor{log: slog.New(slog.NewTextHandler(&log, nil)), cgroup: filepath.Join(t.TempDir(), "gone")}
		pid, err := s.fork(c.program, []string{"x"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
		if (err == nil) != c.warns || (log.Len() > 0) != c.warns {
			t.Errorf("%s: %v, log %q", c.program, err, log.String())
		}
		if err == nil {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFailedStartLeavesNoCgroup(t *testing.T) {
	needsCgroup(t)
	h := start(t, config(t, []string{"no-such-program-here"}))
	if r := await(t, h); r.Outcome != StartFailed {
		t.Fatalf("result %+v", r)
	}
	wantNoCgroup(t, h, true)
}

// A shim may die between making its cgroup and saying whose it is.
func TestUnmarkedCgroupOfADeadShimIsFoundByItsName(t *testing.T) {
	needsCgroup(t)
	mark := rand.Text()
	path, err := proc.MakeCgroup("j-7", mark, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Removexattr(path, "user.rc.job"); err != nil {
		t.Fatal(err)
	}
	if err := removeCgroupsByMark(mark); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
		_ = proc.RemoveCgroup(path)
	}
}

func TestOnlyLeftoversOfEndedJobsAreRemoved(t *testing.T) {
	needsCgroup(t)
	jobs, others := t.TempDir(), t.TempDir()
	leave := func(parent, name string, files ...string) string {
		t.Helper()
		dir := filepath.Join(parent, name)
		path, err := proc.MakeCgroup(name, rand.Text(), dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proc.RemoveCgroup(path) })
		for _, file := range files {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	populated := leave(jobs, "populated")
	s := &supervisor{log: slog.New(slog.DiscardHandler), cgroup: populated}
	pid, err := s.fork("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = endChild(pid) })
	cgroups := map[string]bool{ // stays
		populated:                             true,
		leave(jobs, "gone"):                   false,
		leave(jobs, "being removed", "acked"): false,
		leave(jobs, "ended", "spec.cbor", "result.cbor"): false,
		leave(jobs, "about to run", "spec.cbor"):         true,
		leave(others, "neighbour"):                       true,
	}
	if err := os.Mkdir(filepath.Join(jobs, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := RemoveCgroups(jobs, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for path, stays := range cgroups {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v; want it to stay: %v", path, err, stays)
		}
	}
}

func TestDirectoryStaysAsLongAsSomebodyIsInTheCgroup(t *testing.T) {
	needsCgroup(t)
	dir := t.TempDir()
	path, err := proc.MakeCgroup("j-7", rand.Text(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeRecord(dir, cgroupFile, kindCgroup, cgroupRecord{Path: path}, replace); err != nil {
		t.Fatal(err)
	}
	s := &supervisor{log: slog.New(slog.DiscardHandler), cgroup: path}
	pid, err := s.fork("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := RemoveDir(dir); !errors.Is(err, proc.ErrPopulated) {
		t.Errorf("error %v, want ErrPopulated", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if err := endChild(pid); err != nil {
		t.Fatal(err)
	}
	if err := RemoveDir(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the cgroup is still there: %v", err)
	}
}
