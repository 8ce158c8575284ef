package proc

import (
	"context"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemon starts a process that gets that pid, leads a session, and ends when it has started another one in it, as a daemon does. It returns the latter.
func daemon(t *testing.T, pid int, env ...string) ID {
	t.Helper()
	if err := os.WriteFile(lastPID, []byte(strconv.Itoa(pid-1)), 0); err != nil {
		t.Skipf("this kernel does not let a pid be chosen: %v", err)
	}
	leader, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "sleep 60 & exit 0"}, &syscall.ProcAttr{Env: env, Sys: &unix.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	if leader != pid {
		t.Skipf("the pid %d is not to be had again", pid)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(leader, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(p Process) bool { return p.Session == leader })
	if i < 0 {
		t.Fatal("the daemon is not there")
	}
	return list[i].ID
}

// A session's number is that of its first process, and is given out again when nobody is left in it: who is in it then is nobody's.
func TestSessionOfStrangersThatHasTheNumberOfAJobsIsLeftAlone(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	marks := []string{"RC_JOB_ID=j-7", "RC_JOB_MARK=x"}
	old := child(t, 0, marks...)
	if err := Signal(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reap(t, old)
	nextTick(t, old)
	stranger := daemon(t, old.PID)
	above := child(t, 0) // a shim with nobody below it
	for name, c := range map[string]struct {
		target Target
		doubt  bool
	}{
		"the shim is dead": {Target{Root: old, Marks: marks}, true},
		"the shim lives":   {Target{Root: old, Above: above, Marks: marks}, false},
	} {
		found, err := Find(c.target)
		if err != nil || len(found) > 0 {
			t.Errorf("%s: found %+v, %v", name, found, err)
		}
		left, err := KillTree(context.Background(), c.target, time.Millisecond)
		named := slices.ContainsFunc(left, func(p Process) bool { return p.ID == stranger })
		if err != nil || named != c.doubt {
			t.Errorf("%s: left %+v, %v", name, left, err)
		}
	}
	if !Alive(stranger) {
		t.Errorf("%v was ended for a job whose session had that number", stranger)
	}
}

func TestWhoMayBeAStrangerIsNamedAndNotSignalled(t *testing.T) {
	const mark = "RC_JOB_ID=j-proc-doubt"
	id, pids := start(t, "strip,wait", mark) // nothing but the number of its session tells of the job
	left, err := KillTree(context.Background(), Target{Root: id, Marks: []string{mark}}, time.Millisecond)
	if err != nil || len(left) != 1 || !slices.Contains(pids, left[0].PID) || len(running(pids)) != 1 {
		t.Fatalf("left %+v, %v; running of %v: %v", left, err, pids, running(pids))
	}
	if left, err = KillTree(context.Background(), Target{Root: id}, time.Millisecond); err != nil || len(left) > 0 {
		t.Fatalf("with no other rule: left %+v, %v", left, err)
	}
}

// The other way round: of whom the environment does not tell, the session of one that it does tell says it.
func TestSessionWhoseFirstProcessHasGoneIsTheJobsIfAnybodyInItIs(t *testing.T) {
	marks := []string{"RC_JOB_ID=j-7", "RC_JOB_MARK=" + t.Name()}
	root, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "sleep 61 & env -i sleep 62 & exit 0"},
		&syscall.ProcAttr{Env: append(marks, "PATH="+os.Getenv("PATH")), Sys: &unix.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := Identify(root)
	if err != nil {
		t.Fatal(err)
	}
	reap(t, id)
	target := Target{Root: id, Marks: marks}
	found, err := Find(target)
	if err != nil || len(found) != 2 {
		t.Errorf("found %+v, %v; want both", found, err)
	}
	if left, err := KillTree(context.Background(), target, time.Millisecond); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
}
