package proc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asNobody runs f as a user who may not look at the processes of others.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(65534, 65534, 0), syscall.Setresuid(65534, 65534, 0)); err != nil {
		t.Skip("cannot become another user: ", err)
	}
	defer func() {
		if err := errors.Join(syscall.Setresuid(0, 0, 0), syscall.Setresgid(0, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

func TestTreeIsEndedWhereTheProcessesOfOthersCannotBeLookedAt(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, "hidepid=1"); err != nil {
		t.Skip("no such /proc here: ", err)
	}
	other := child(t, 0)
	asNobody(t, func() {
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{Sys: &unix.SysProcAttr{
			Setsid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}})
		if err != nil {
			t.Fatal(err)
		}
		root, err := Identify(pid)
		if err != nil {
			t.Fatal(err)
		}
		list, err := List()
		if err != nil || slices.ContainsFunc(list, func(p Process) bool { return p.ID == other }) {
			t.Errorf("list %+v, %v", list, err)
		}
		if left, err := KillTree(context.Background(), Target{Root: root, Marks: []string{"RC_JOB_ID=j-7"}}, time.Millisecond); err != nil || len(left) > 0 {
			t.Errorf("left %+v, %v", left, err)
		}
		if check, err := Survivors(nil, ""); err != nil || check.Checked || !strings.Contains(check.Unreadable, "hidepid") {
			t.Errorf("what cannot be looked at proves %+v, %v", check, err)
		}
	})
	if check, err := Survivors(nil, ""); err != nil || !check.Checked {
		t.Errorf("as root: %+v, %v", check, err)
	}
}
