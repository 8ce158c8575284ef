package proc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newCgroup returns a job's cgroup that goes with the test, or skips it.
func newCgroup(t *testing.T) string {
	t.Helper()
	path, err := MakeCgroup("j-7", rand.Text(), t.TempDir())
	if errors.Is(err, ErrNoCgroup) {
		t.Skipf("this machine lets nobody here have a cgroup: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killCgroup(path)
		eventually(t, func() bool { return !errors.Is(RemoveCgroup(path), ErrPopulated) })
		if err := RemoveCgroup(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s")
		}
	}
}

// startIn runs a program in a cgroup and a session of its own. The test waits for its end when it is over.
func startIn(t *testing.T, cgroup string, env []string, argv ...string) ID {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"))
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if cgroup != "" {
		dir, err := os.Open(cgroup)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dir.Close() }()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() { defer close(waited); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = Signal(id, unix.SIGKILL); <-waited })
	return id
}

func ids(list []Process) (out []ID) {
	for _, p := range list {
		out = append(out, p.ID)
	}
	return out
}

func TestPlaceOfACgroupIsFoundInMountinfo(t *testing.T) {
	const (
		unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1      = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
		hybrid  = v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		part    = `50 31 0:38 /kube/pod\0407 /cg\040here ro - cgroup2 none rw` + "\n"
		above   = "50 31 0:38 /.. /cg rw - cgroup2 none rw\n"
	)
	for _, c := range []struct {
		name, mounts, own string
		want              []string
	}{
		{"unified", unified, "0::/system.slice/rcd.service\n", []string{"/sys/fs/cgroup/system.slice/rcd.service"}},
		{"root", unified, "0::/\n", []string{"/sys/fs/cgroup"}},
		{"hybrid", hybrid, "4:memory:/a\n0::/b\n", []string{"/sys/fs/cgroup/unified/b"}},
		{"only version 1", v1, "4:memory:/a\n", nil},
		{"version 2 without controllers, not mounted", v1, "4:memory:/a\n0::/\n", nil},
		{"a part of the hierarchy, with blanks", part, "0::/kube/pod 7/c\n", []string{"/cg here/c"}},
		{"the mount's own root", part, "0::/kube/pod 7\n", []string{"/cg here"}},
		{"beside that part", part, "0::/kube/pod 77\n", nil},
		{"mounted twice", hybrid + unified, "0::/b\n", []string{"/sys/fs/cgroup/unified/b", "/sys/fs/cgroup/b"}},
		{"outside of the namespace", unified, "0::/../b\n", nil},
		{"mount from outside of the namespace", above, "0::/b\n", nil},
		{"deleted", unified, "0::/b (deleted)\n", nil},
		{"nonsense", "a - cgroup2\n\n- cgroup2 x\n", "0::/\n", nil},
	} {
		if got := placesIn(parseMounts(c.mounts), c.own); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCgroupOfAJobIsKnownByItsName(t *testing.T) {
	mark := rand.Text()
	for name, want := range map[string]bool{
		cgroupName("j-48213", mark): true, cgroupName("a/b c\x01é", mark): true, cgroupName("", mark): true,
		cgroupName(strings.Repeat("long", 100), mark): true,
		"rc-local.service":                            false, "rc-" + mark: false, "rc-j-7-" + strings.ToLower(mark): false, "rc-j-7-" + mark + "x": false, "user.slice": false,
	} {
		if isJobCgroup(name) != want || strings.Contains(name, "/") || len(name) > 255 {
			t.Errorf("%q: %v, want %v", name, !want, want)
		}
	}
	if err := RemoveCgroup("/sys/fs/cgroup/user.slice"); err == nil {
		t.Error("would have removed somebody else's")
	}
}

func TestWhoLeftSessionParentAndEnvironmentIsFoundByTheCgroup(t *testing.T) {
	cgroup := newCgroup(t)
	dir := t.TempDir()
	// Its parent ends, so that nothing else connects it with the job.
	startIn(t, cgroup, nil, "sh", "-c", `cd "$0"; env -i setsid sh -c 'trap "" TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 1; done' & wait; exit`, dir)
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "pid")); return err == nil })
	raw, _ := os.ReadFile(filepath.Join(dir, "pid"))
	var pid int
	if _, err := fmt.Sscan(string(raw), &pid); err != nil {
		t.Fatal(err)
	}
	escapee, err := Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	found, err := Find(Target{Cgroup: cgroup})
	if err != nil || !slices.Contains(ids(found), escapee) {
		t.Fatalf("found %+v, %v; want %v among them", found, err, escapee)
	}
	if err := RemoveCgroup(cgroup); !errors.Is(err, ErrPopulated) {
		t.Errorf("removed with somebody in it: %v", err)
	}
	left, err := KillTree(context.Background(), Target{Cgroup: cgroup}, 100*time.Millisecond)
	if err != nil || len(left) > 0 || Alive(escapee) {
		t.Fatalf("left %+v, %v; escapee alive: %v", left, err, Alive(escapee))
	}
	if err := RemoveCgroup(cgroup); err != nil {
		t.Error(err)
	}
	if err := RemoveCgroup(cgroup); err != nil {
		t.Errorf("again: %v", err)
	}
	if found, err := Find(Target{Cgroup: cgroup}); err != nil || len(found) > 0 {
		t.Errorf("a cgroup that is gone: %+v, %v", found, err)
	}
}

func TestCgroupsThatAJobMakesBelongToIt(t *testing.T) {
	for _, c := range []struct {
		name     string
		threaded bool
	}{{"nested", false}, {"threaded", true}} {
		t.Run(c.name, func(t *testing.T) {
			cgroup := newCgroup(t)
			into := filepath.Join(cgroup, "a", "b")
			if c.threaded {
				into = cgroup
				if err := os.WriteFile(filepath.Join(cgroup, "cgroup.type"), []byte("threaded"), 0); err != nil {
					t.Skipf("no threaded cgroup can be made here: %v", err)
				}
				if _, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs")); !errors.Is(err, unix.EOPNOTSUPP) {
					t.Fatalf("a threaded cgroup tells its processes: %v", err)
				}
			} else if err := os.MkdirAll(into, 0o755); err != nil {
				t.Fatal(err)
			}
			id := startIn(t, "", nil, "sleep", "60")
			if err := os.WriteFile(filepath.Join(into, "cgroup.procs"), fmt.Append(nil, id.PID), 0); err != nil {
				t.Fatal(err)
			}
			found, err := Find(Target{Cgroup: cgroup})
			if err != nil || !slices.Equal(ids(found), []ID{id}) {
				t.Fatalf("found %+v, %v; want %v", found, err, id)
			}
			left, err := KillTree(context.Background(), Target{Cgroup: cgroup}, 0)
			if err != nil || len(left) > 0 || Alive(id) {
				t.Fatalf("left %+v, %v", left, err)
			}
			if err := RemoveCgroup(cgroup); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMembersOutOfSightAreNotTakenForNobody(t *testing.T) {
	cgroup := newCgroup(t)
	id := startIn(t, cgroup, nil, "sleep", "60")
	s := scan{target: Target{Cgroup: cgroup}, byPID: map[int]int{}, in: map[int]bool{}} // as if it were forked after the list was made
	if unseen, err := s.byCgroup(); err != nil || !unseen {
		t.Errorf("unseen: %v, %v; want true", unseen, err)
	}
	s.list, s.byPID[id.PID] = []Process{{ID: ID{id.PID, id.Start - 1}}}, 0 // the list has the one that had the pid before
	if unseen, err := s.byCgroup(); err != nil || !unseen || len(s.in) > 0 {
		t.Errorf("unseen: %v, %v; taken in: %v", unseen, err, s.in)
	}
	if p := unseenIn(cgroup); Alive(p.ID) || !errors.Is(Signal(p.ID, unix.SIGKILL), ErrGone) {
		t.Error("what stands for them is somebody")
	}
	if _, err := Find(Target{Cgroup: filepath.Join(t.TempDir(), "gone", cgroupName("j", rand.Text()))}); err == nil {
		t.Error("a hierarchy that is out of sight was taken for an empty cgroup")
	}
}

func TestCgroupThatHoldsTheCallerIsNotKilledAsAWhole(t *testing.T) {
	cgroup, done := newCgroup(t), filepath.Join(t.TempDir(), "done")
	child := startIn(t, cgroup, []string{partName + "=killcgroup " + cgroup + " " + done}, "/proc/self/exe")
	eventually(t, func() bool { _, err := os.Stat(done); return err == nil || !Alive(child) })
	if !Alive(child) {
		t.Error("the caller ended itself")
	}
}

func TestSurvivorsAreFoundByTheCgroupOfAnUnknownJob(t *testing.T) {
	cgroup, other := newCgroup(t), newCgroup(t)
	mine, stranger := startIn(t, cgroup, nil, "sleep", "60"), startIn(t, other, nil, "sleep", "60")
	empty := newCgroup(t)
	check, err := Survivors([]Target{{Cgroup: cgroup}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if found := ids(check.Found); slices.Contains(found, mine) || !slices.Contains(found, stranger) {
		t.Errorf("found %+v; want %v and not %v", check.Found, stranger, mine)
	}
	for _, p := range check.Found {
		if strings.Contains(p.Command, empty) || strings.Contains(p.Command, cgroup) {
			t.Errorf("named without reason: %+v", p)
		}
	}
	list, err := JobCgroups()
	if err != nil {
		t.Fatal(err)
	}
	populated := map[string]bool{}
	for _, c := range list {
		if c.Owner == "" {
			t.Errorf("%s has no owner", c.Path)
		}
		populated[c.Path] = c.Populated
	}
	for path, want := range map[string]bool{cgroup: true, other: true, empty: false} {
		if got, ok := populated[path]; !ok || got != want {
			t.Errorf("%s: listed %v, populated %v", path, ok, got)
		}
	}
}

// Containers may share a hierarchy of cgroups and no PID namespace. Whoever is
// in the cgroup of this installation's job there keeps its devices out, and
// nobody else does.
func TestWhoIsOutOfSightCountsForItsOwnInstallation(t *testing.T) {
	cgroup := newCgroup(t)
	startIn(t, cgroup, nil, "sleep", "60")
	blind := scan{byPID: map[int]int{}} // as it is seen from another PID namespace
	jobs := filepath.Dir(ownerOf(cgroup))
	for place, want := range map[string]bool{jobs: true, t.TempDir(): false} {
		_, unseen, err := blind.cgroupsBeyond(nil, place)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(unseen, func(p Process) bool { return strings.Contains(p.Command, cgroup) }); got != want {
			t.Errorf("for jobs in %s it counts: %v, want %v", place, got, want)
		}
	}
}
