package shim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhatTheHostLacksIsTheHostsWithWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		err    error
		cause  Cause // where else it would be the agent's
		advice string
	}{
		{fmt.Errorf("write x: %w", &os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}), CauseHost, "make room"},
		{fmt.Errorf("fork: %w", unix.EAGAIN), CauseHost, "raise the limit of tasks"},
		{fmt.Errorf("pipe: %w", unix.EMFILE), CauseHost, "open files"},
		{unix.EIO, CauseHost, "disk"},
		{hostError{errors.New("no /dev/null")}, CauseHost, ""},
		{&CorruptError{File: "x", Err: errors.New("y")}, CauseHost, ""},
		{fmt.Errorf("%w: no command", ErrSpec), CauseJob, ""},
		{fmt.Errorf("%w: RC_TOKEN", ErrForbiddenEnv), CauseJob, ""},
		{&problem{text: "no room", cause: CauseHost}, CauseHost, ""},
		{errNeverBegan, CauseAgent, ""},
		{errors.New("anything else"), CauseAgent, ""},
	} {
		if cause, advice := CauseOf(tt.err), Advice(tt.err); cause != tt.cause || !strings.Contains(advice, tt.advice) || (advice == "") != (tt.advice == "") {
			t.Errorf("%v: %s, %q", tt.err, cause, advice)
		}
	}
	if causeOf(unix.ENOENT, CauseJob) != CauseJob {
		t.Error("a program that is not there")
	}
}

// TestAShimThatCannotBeginSaysWhy: the agent hears of a full disk as such, and
// not as a shim that is broken.
func TestAShimThatCannotBeginSaysWhy(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{unix.ENOSPC, "start shim: no space left on device; make room on the host's disk"},
		{errors.New("become subreaper: no"), "start shim: become subreaper: no"},
	} {
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		(&reporter{pipe: theirs}).problem(tt.err)
		_, err = awaitReport(ours, t.TempDir())
		_ = ours.Close()
		if err == nil || err.Error() != tt.want || CauseOf(err) != CauseOf(tt.err) {
			t.Errorf("%v, of %s; want %q", err, CauseOf(err), tt.want)
		}
	}
}

func TestTheCauseOfAResultIsKept(t *testing.T) {
	dir := t.TempDir()
	if err := writeResult(dir, Result{Outcome: SupervisorDied, Reason: reasonRestart, Cause: CauseHost}); err != nil {
		t.Fatal(err)
	}
	if r, err := readResult(dir); err != nil || r.Cause != CauseHost {
		t.Errorf("%+v, %v", r, err)
	}
	path := filepath.Join(dir, causeName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ToUpper(data), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResult(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged cause: %v", err)
	}
	if err := os.Remove(path); err != nil { // as an earlier release has left it
		t.Fatal(err)
	}
	if r, err := readResult(dir); err != nil || r.Cause != "" || r.Reason != reasonRestart {
		t.Errorf("%+v, %v", r, err)
	}
}
