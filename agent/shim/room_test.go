package shim

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/spool"
)

// smallDisk returns a directory on a disk of its own of 1 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("no small disk can be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestAJobThatFillsTheDiskEnds: nobody else may ever make room.
func TestAJobThatFillsTheDiskEnds(t *testing.T) {
	t.Run("with its output", func(t *testing.T) {
		cfg := job(t, "head -c 3000000 /dev/zero; exit 7")
		cfg.Dir = filepath.Join(smallDisk(t), "job")
		if r := await(t, start(t, cfg)); r.Outcome != Exited || r.ExitCode == nil || *r.ExitCode != 7 || r.OutputLength != 3000000 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("with a file", func(t *testing.T) {
		disk := smallDisk(t)
		cfg := job(t, "cat /dev/zero >"+filepath.Join(disk, "filling")+" 2>/dev/null; exit 7")
		cfg.Dir = filepath.Join(disk, "job")
		if r := await(t, start(t, cfg)); r.Outcome != Exited || r.ExitCode == nil || *r.ExitCode != 7 {
			t.Errorf("%+v", r)
		}
		// The next agent reads the same.
		again, err := Adopt(cfg.Dir, cfg.Log)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if r := await(t, again); r.ExitCode == nil || *r.ExitCode != 7 {
			t.Errorf("read again: %+v", r)
		}
	})
	t.Run("and whose shim dies", func(t *testing.T) {
		disk := smallDisk(t)
		ready := filepath.Join(t.TempDir(), "ready")
		cfg := job(t, "cat /dev/zero >"+filepath.Join(disk, "filling")+" 2>/dev/null; echo >"+ready+"; exec sleep 600")
		cfg.Dir = filepath.Join(disk, "job")
		h := start(t, cfg)
		deadline := time.Now().Add(time.Minute)
		for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
			if time.Now().After(deadline) {
				t.Fatal("the disk is not full")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := proc.Signal(shimOf(h), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if r := await(t, h); r.Outcome != SupervisorDied || r.Cause != CauseAgent {
			t.Errorf("%+v", r)
		}
	})
}

// TestOutputThatAFullDiskRefusedIsOnRecord: nobody is to take what is there for the whole.
func TestOutputThatAFullDiskRefusedIsOnRecord(t *testing.T) {
	disk := smallDisk(t)
	cfg := job(t, "cat /dev/zero >"+filepath.Join(disk, "filling")+" 2>/dev/null; head -c 3000000 /dev/zero; exit 7")
	cfg.Dir = filepath.Join(disk, "job")
	h := start(t, cfg)
	if r := await(t, h); r.ExitCode == nil || *r.ExitCode != 7 || r.OutputLength != 3000000 {
		t.Errorf("%+v", r)
	}
	out, err := h.OpenOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	if rec, err := out.Next(); err != nil || rec.Gap == nil || rec.Gap.To != 3000000 || rec.Gap.Cause == spool.CauseLost {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestTheRoomOfAResultIsGivenBack(t *testing.T) {
	cfg := job(t, "true")
	await(t, start(t, cfg))
	if left, err := filepath.Glob(filepath.Join(cfg.Dir, "*.room")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}
