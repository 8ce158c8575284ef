package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also every process that the tests look for: the first argument is the part to play.
const partName = "RC_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(namespaceName) != "" {
		os.Exit(runInNamespace(m))
	}
	if part := os.Getenv(partName); part != "" {
		play(part)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play runs a part, and then the next of the comma list as a child, with a session of its own where it says so.
func play(part string) {
	if arg, ok := strings.CutPrefix(part, "killcgroup "); ok {
		cgroup, done, _ := strings.Cut(arg, " ")
		killCgroup(cgroup)
		_ = os.WriteFile(done, nil, 0o600)
		time.Sleep(time.Minute)
	}
	head, rest, more := strings.Cut(part, ",")
	attr := &unix.SysProcAttr{}
	switch head {
	case "wait": // stays until a signal ends it
	case "deaf": // stays, and SIGTERM does not end it
		signal.Ignore(unix.SIGTERM)
	case "subreaper": // stays, and inherits orphans
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	case "leave", "strip": // ends at once, leaving its child an orphan, or one without the environment of the job too
	case "newsession", "naked": // like wait, but the child gets its own session, or no environment of the job too
		attr.Setsid = true
	case "fork": // never stops starting children
		for range 40 {
			spawn("wait", attr, os.Environ())
		}
	}
	env := os.Environ()
	if head == "naked" || head == "strip" {
		env = nil
	}
	if more {
		spawn(rest, attr, env)
	}
	fmt.Println("pid", os.Getpid())
	if head == "leave" || head == "strip" {
		return
	}
	time.Sleep(time.Minute)
}

func spawn(part string, attr *unix.SysProcAttr, env []string) {
	cmd := exec.Command("/proc/self/exe")
	for _, e := range env {
		if !strings.HasPrefix(e, partName+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, partName+"="+part)
	cmd.SysProcAttr = attr
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

// start plays a comma list of parts in a session of its own and returns its first process once all of them are up, and their pids.
func start(t *testing.T, parts string, env ...string) (ID, []int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(env, partName+"="+parts)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Count(parts, ",") + 1
	if strings.Contains(parts, "fork") {
		want += 40
	}
	var pids []int
	lines := bufio.NewScanner(out)
	for len(pids) < want && lines.Scan() {
		if pid, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "pid ")); err == nil {
			pids = append(pids, pid)
		}
	}
	waited := make(chan struct{})
	go func() { defer close(waited); _ = cmd.Wait() }()
	t.Cleanup(func() {
		for _, pid := range pids {
			if env, err := environ(pid); err == nil && valueOf(env, partName) != "" {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		<-waited
		_ = out.Close()
	})
	if first, _, _ := strings.Cut(parts, ","); first == "leave" || first == "strip" {
		<-waited // only its orphans are left to be found
	}
	if len(pids) < want {
		t.Fatalf("only %d of %d processes came up", len(pids), want)
	}
	return id, pids
}

func running(pids []int) (alive []int) {
	for _, pid := range pids {
		if p, err := readStat(pid); err == nil && p.running() {
			alive = append(alive, pid)
		}
	}
	return alive
}

func TestKillTreeEndsEscapees(t *testing.T) {
	const mark = "RC_JOB_ID=j-proc-escapees"
	cases := []struct {
		name, parts string
		above       bool
	}{
		{"one process", "wait", false},
		{"children in the session", "wait,wait,wait", false},
		{"orphan in the session, root gone", "leave,wait", false},
		{"setsid", "newsession,wait", false},
		{"double fork into a session of its own", "newsession,leave,wait", false},
		{"ignores SIGTERM", "deaf,deaf", false},
		{"double fork, setsid, no environment, ignores SIGTERM", "subreaper,naked,leave,deaf", true},
		{"forks many", "fork", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			id, pids := start(t, c.parts, mark)
			target := Target{Root: id, Marks: []string{mark}}
			spared := 0
			if c.above {
				target = Target{Above: id}
				spared = 1
			}
			left, err := KillTree(context.Background(), target, 200*time.Millisecond)
			if err != nil || len(left) > 0 {
				t.Fatalf("KillTree: left %v, error %v", left, err)
			}
			if alive := running(pids); len(alive) != spared {
				t.Fatalf("of %v still running: %v", pids, alive)
			}
		})
	}
}

func TestKillTreeLetsTermHandlersFinish(t *testing.T) {
	id, _ := start(t, "deaf")
	began := time.Now()
	if left, err := KillTree(context.Background(), Target{Root: id}, 300*time.Millisecond); err != nil || len(left) > 0 {
		t.Fatalf("left %v, error %v", left, err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Fatalf("SIGKILL after %v, before the grace was over", took)
	}
}

func TestKillTreeReportsWhatItMayNotFinish(t *testing.T) {
	id, _ := start(t, "deaf")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := KillTree(ctx, Target{Root: id}, time.Minute)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.Canceled", err)
	}
	if !Alive(id) {
		t.Fatal("gone, though the grace was not over")
	}
}

func TestFindLeavesOthersAlone(t *testing.T) {
	const mark = "RC_JOB_ID=j-proc-others"
	mine, _ := start(t, "wait", mark, "RC_JOB_MARK=mine")
	other, _ := start(t, "wait", mark, "RC_JOB_MARK=other")
	find := func(target Target) map[ID]bool {
		t.Helper()
		list, err := Find(target)
		if err != nil {
			t.Fatal(err)
		}
		found := make(map[ID]bool)
		for _, p := range list {
			found[p.ID] = true
		}
		return found
	}
	if f := find(Target{Root: mine, Marks: []string{mark, "RC_JOB_MARK=mine"}}); len(f) != 1 || !f[mine] {
		t.Errorf("two marks: found %v, want only %v", f, mine)
	}
	if f := find(Target{Marks: []string{mark}, Since: mine.Start}); len(f) != 2 {
		t.Errorf("one mark: found %v, want both", f)
	}
	if f := find(Target{Marks: []string{mark}, Since: other.Start + 1}); len(f) != 0 {
		t.Errorf("older than the job: found %v, want none", f)
	}
	reused := ID{PID: mine.PID, Start: mine.Start - 1}
	if f := find(Target{Root: reused}); len(f) != 0 {
		t.Errorf("the pid belongs to somebody else now: found %v, want none", f)
	}
}

// The table is not read in one moment: between the line of a child and that of its parent's pid, the parent may have ended and the pid be another's.
func TestChildOlderThanItsParentIsNobodysChild(t *testing.T) {
	s := scan{
		target: Target{Root: ID{10, 500}},
		list: []Process{
			{ID: ID{11, 400}, Parent: 10}, // its parent, also pid 10, has ended
			{ID: ID{10, 500}, Parent: 1},
			{ID: ID{12, 500}, Parent: 10},
			{ID: ID{13, 501}, Parent: 12},
			{ID: ID{14, 499}, Parent: 12},
		},
		byPID: map[int]int{11: 0, 10: 1, 12: 2, 13: 3, 14: 4}, children: map[int][]int{10: {0, 2}, 1: {1}, 12: {3, 4}}, in: map[int]bool{},
	}
	s.byDescent()
	if want := map[int]bool{1: true, 2: true, 3: true}; !maps.Equal(s.in, want) {
		t.Errorf("in the tree: %v, want %v", s.in, want)
	}
}

func TestFindNeverNamesTheCaller(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	parent, err := Identify(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []Target{{Root: self}, {Root: parent}, {Above: parent}} {
		list, err := Find(target)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.ID == self || p.ID == parent {
				t.Errorf("%+v: found %v", target, p.ID)
			}
		}
	}
}

func TestSignalNeverHitsAReusedPid(t *testing.T) {
	id, _ := start(t, "wait")
	old := ID{PID: id.PID, Start: id.Start - 1}
	if err := Signal(old, unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Fatalf("error %v, want ErrGone", err)
	}
	if err := signalChecked(old, unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Fatalf("without pidfd: error %v, want ErrGone", err)
	}
	if !Alive(id) || Alive(old) {
		t.Fatalf("alive: %v, want true; older namesake: %v, want false", Alive(id), Alive(old))
	}
}

func TestZombieIsNotAlive(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{partName + "=leave"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); Alive(id); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still alive")
		}
	}
	if !Exists(id) || Exists(ID{PID: id.PID, Start: id.Start - 1}) {
		t.Fatal("a zombie exists, an older namesake of it does not")
	}
}

func TestSurvivorsAreFoundOutsideKnownTrees(t *testing.T) {
	known, _ := start(t, "subreaper,newsession,wait", "RC_JOB_ID=j-known")
	unknown, _ := start(t, "wait", "RC_JOB_ID=j-unknown")
	empty, _ := start(t, "wait", "RC_JOB_ID=")
	check, err := Survivors([]Target{{Above: known}}, "")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range check.Found {
		found = found || p.ID == unknown
		if p.ID == empty || p.ID == known || p.Parent == known.PID {
			t.Errorf("named without reason: %+v", p)
		}
	}
	if !found {
		t.Errorf("survivor %v not found in %+v", unknown, check.Found)
	}
	if os.Getuid() == 0 && !check.Checked {
		t.Errorf("not checked, because of %s", check.Unreadable)
	}
}

func TestParseStatTakesAnyName(t *testing.T) {
	const after = " S 7 8 9 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 4711 0 0"
	for _, name := range []string{"sh", "a b", "x) R 1 1 1 (y", ")", ""} {
		p, err := parseStat(5, []byte("5 ("+name+")"+after))
		want := Process{ID: ID{5, 4711}, Parent: 7, Group: 8, Session: 9, Command: name, state: 'S', threads: 3, flags: flagExiting}
		if err != nil || p != want {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
	}
	for _, bad := range []string{"", "5 sh S 1", "5 (sh) S 1 2", "5 (sh) S x 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 4711"} {
		if _, err := parseStat(5, []byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestBootIDIsStable(t *testing.T) {
	a, err := BootID()
	if err != nil || a == "" {
		t.Fatalf("%q, %v", a, err)
	}
	if b, _ := BootID(); b != a {
		t.Fatalf("%q, then %q", a, b)
	}
}
