package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcd/client"
)

// TestALogThatIsStillWrittenToCanBeFetched: a copy is of what there was when it
// began, the same both ways.
func TestALogThatIsStillWrittenToCanBeFetched(t *testing.T) {
	b := newBetween(t)
	write(t, b.there("log"), strings.Repeat("line\n", 2_000_000), 0o644)
	f, err := os.OpenFile(b.there("log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, _ = f.WriteString("line\nline\n")
			}
		}
	}()
	fetch := func() {
		t.Helper()
		r := b.down("log", "log")
		got, err := os.ReadFile(filepath.Join(b.here, "log"))
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(got, []byte("line\n")); int64(len(got)) != r.Bytes || lines < 2_000_000 || lines*5 != len(got) {
			t.Errorf("%d bytes, %d lines: %+v", len(got), lines, r)
		}
	}
	fetch()
	fetch()
	// The rest of one that was cut off is of the same moment.
	b.host.Cut, b.host.Cuts = 1_000_000, 4
	fetch()
	close(stop)
	<-stopped
}

// TestAFileThatStatesNoSizeIsFetched: those of /proc have bytes all the same.
func TestAFileThatStatesNoSizeIsFetched(t *testing.T) {
	const file = "/proc/sys/kernel/ostype"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	b := newBetween(t)
	b.down(file, "x")
	if got, err := os.ReadFile(b.here + "/x"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNothingIsSaidToBeKeptWhereNothingCouldBeWritten(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/f", "some", 0o600)
	_, err := b.c.CopyTo(t.Context(), b.options(b.here+"/f", "/proc/f"))
	var failed *client.CopyError
	if !errors.As(err, &failed) || failed.Kept != "" || !strings.HasPrefix(err.Error(), "cannot write in /proc") {
		t.Errorf("%v, kept %q", err, failed.Kept)
	}
}

// TestDirectoriesThatNobodyMayWriteToAreCopiedOntoThemselves runs the far side's
// script as a user for whom permissions count.
func TestDirectoriesThatNobodyMayWriteToAreCopiedOntoThemselves(t *testing.T) {
	script, err := os.ReadFile("copy/to.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "rc-cp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("chmod", "-R", "u+rwx", dir).Run()
		_ = os.RemoveAll(dir)
	})
	write(t, dir+"/src/shut/f", "f", 0o644)
	write(t, dir+"/src/open/g", "g", 0o644)
	var cred *syscall.Credential
	for path, mode := range map[string]os.FileMode{"/src/shut": 0o555, "": 0o777} {
		if err := os.Chmod(dir+path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		cred = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	archive, err := exec.Command("tar", "-C", dir+"/src", "-cf", "-", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	sum := exec.Command("sha256sum")
	sum.Stdin = bytes.NewReader(archive)
	hash, err := sum.Output()
	if err != nil {
		t.Skip(err)
	}
	for try := range 3 {
		cmd := exec.Command("sh", "-c", string(script), "rc-cp", "to", "key", dir, "dst", "tree", "0755", "", ".dst.part", "")
		cmd.Stdin = strings.NewReader(fmt.Sprintf("0 %d %s\n%s", len(archive), strings.Fields(string(hash))[0], archive))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		if try == 0 { // so that one directory is new in one that is there
			if err := os.Mkdir(dir+"/dst", 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir+"/dst", 0o777); err != nil {
				t.Fatal(err)
			}
		}
		said, err := os.Create(filepath.Join(t.TempDir(), "said")) // no pipe, which its last sleep would keep open
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = said
		err = cmd.Run()
		said.Close()
		if out, _ := os.ReadFile(said.Name()); err != nil || !strings.Contains(string(out), "@rc-cp done") {
			t.Fatalf("try %d: %v\n%s", try, err, out)
		}
		for path, mode := range map[string]os.FileMode{"shut": 0o555, "open": 0o755, "shut/f": 0o644} {
			if info, err := os.Stat(dir + "/dst/" + path); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
	}
	if left, _ := filepath.Glob(dir + "/.dst*"); left != nil {
		t.Errorf("left: %q", left)
	}
}

// TestAnArchiveThatCouldNotBeUnpackedIsKept: for want of room, say; only one
// that is refused would be refused again.
func TestAnArchiveThatCouldNotBeUnpackedIsKept(t *testing.T) {
	b := newBetween(t)
	tree(t, b.there("t"))
	ctx, cancel := context.WithCancel(t.Context())
	o := b.options(b.here+"/t", "t")
	o.Progress = func(p client.CopyProgress) {
		if p.Step == client.CopyEnding && p.Total > 0 && p.Done == p.Total {
			cancel()
		}
	}
	_, err := b.c.CopyFrom(ctx, o)
	var failed *client.CopyError
	if !errors.As(err, &failed) || failed.Kept == "" {
		t.Fatalf("%v, %+v", err, failed)
	}
	if r := b.down("t", "t"); r.ResumedFrom != r.Bytes {
		t.Errorf("all of it had come: %+v", r)
	}
	same(t, b.there("t"), b.here+"/t")
}
