package shim

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// The ways of a process to get out of its job's sight, each a bit.
const (
	ownSession = 1 << iota
	doubleFork
	noEnvironment
	termIgnored
	stopped
	hupIgnored // and no output of the job's, as by nohup
	renamed
	allWays
)

// pidsName names the file that a job of escapees leaves their pids in.
const pidsName = "RC_TEST_PIDS"

// playEscapees is a job that starts a process for each combination of ways ("escapees EXIT [SKIP]": those that have all of SKIP are left out), one of these
// processes ("escapee WAYS"), or what a double fork starts in between ("escapee-via WAYS").
func playEscapees(arg string) int {
	words := strings.Fields(arg)
	number := func(i int) int { n, _ := strconv.Atoi(words[i]); return n }
	switch words[0] {
	case "s":
		return playEscapeesJob(number(1), number(2))
	case "-via":
		escape(number(1), os.NewFile(3, "up"))
		return 0
	}
	ways := number(0)
	if ways&termIgnored != 0 {
		signal.Ignore(unix.SIGTERM)
	}
	if ways&hupIgnored != 0 {
		signal.Ignore(unix.SIGHUP)
	}
	if ways&renamed != 0 {
		_ = os.WriteFile("/proc/self/comm", []byte("kworker/0:1"), 0)
	}
	up := os.NewFile(3, "up")
	_, _ = fmt.Fprintln(up, os.Getpid())
	_ = up.Close()
	if ways&stopped != 0 {
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
	time.Sleep(2 * time.Minute)
	return 0
}

func playEscapeesJob(code, skip int) int {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 1
	}
	for ways := range allWays {
		if skip != 0 && ways&skip == skip {
			continue
		}
		if ways&doubleFork != 0 {
			_ = escapeAs("escapee-via", ways&^doubleFork, theirs).Wait()
		} else {
			escape(ways, theirs)
		}
	}
	_ = theirs.Close()
	var pids []string
	for lines := bufio.NewScanner(ours); lines.Scan(); { // ends when all have closed it
		pids = append(pids, lines.Text())
	}
	if err := os.WriteFile(os.Getenv(pidsName), []byte(strings.Join(pids, "\n")), 0o600); err != nil {
		return 1
	}
	fmt.Println("ready")
	if code > 0 {
		return code
	}
	time.Sleep(2 * time.Minute)
	return 0
}

func escape(ways int, up *os.File) { escapeAs("escapee", ways, up) }

func escapeAs(part string, ways int, up *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	if ways&renamed != 0 {
		cmd.Args = []string{"[kworker/0:1]"}
	}
	for _, e := range os.Environ() {
		if ways&noEnvironment == 0 && !strings.HasPrefix(e, partName+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s %d", partName, part, ways), quickExit, "GOMAXPROCS=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: ways&ownSession != 0}
	if ways&hupIgnored == 0 {
		cmd.Stdout = os.Stdout
	}
	cmd.ExtraFiles = []*os.File{up}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

// escapees starts the job and returns those that it has left all over the host, once all are there.
func escapees(t *testing.T, code, skip int, shimEnv ...string) (*Handle, []proc.ID) {
	t.Helper()
	cfg := acting(t, fmt.Sprintf("escapees %d %d", code, skip))
	pids := filepath.Join(t.TempDir(), "pids")
	cfg.Spec.Env = append(cfg.Spec.Env, pidsName+"="+pids)
	cfg.shimEnv = append(cfg.shimEnv, shimEnv...)
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	raw, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	var all []proc.ID
	for _, line := range strings.Fields(string(raw)) {
		pid, _ := strconv.Atoi(line)
		id, err := proc.Identify(pid)
		if err != nil && code == 0 {
			t.Fatalf("escapee %d: %v", pid, err)
		}
		if err == nil {
			all = append(all, id)
		}
	}
	t.Cleanup(func() { // a test that fails leaves nobody either
		for _, id := range all {
			_ = proc.Signal(id, unix.SIGKILL)
		}
	})
	return h, all
}

func needsCgroup(t *testing.T) {
	t.Helper()
	path, err := proc.MakeCgroup("j-7", rand.Text(), t.TempDir())
	if err != nil {
		t.Skipf("whom nothing but a cgroup can tell is not found here: %v", err)
	}
	if err := proc.RemoveCgroup(path); err != nil {
		t.Fatal(err)
	}
}

func TestNobodyEscapesHoweverItIsDone(t *testing.T) {
	for _, c := range []struct {
		name     string
		kill     bool // or the job ends by itself
		shimDies bool
		cgroup   bool
		skip     int
	}{
		{"the job is killed", true, false, true, 0},
		{"the job is killed, without a cgroup", true, false, false, 0},
		{"the job ends", false, false, true, 0},
		{"the shim is killed", true, true, true, 0},
		// Without a cgroup they cannot be told from strangers.
		{"the shim is killed, without a cgroup, some left out", true, true, false, ownSession | noEnvironment},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.cgroup {
				needsCgroup(t)
			}
			code, env := 0, []string{}
			if !c.kill {
				code = 7
			}
			if !c.cgroup {
				env = []string{misbehaviourName + "=no-cgroup"}
			}
			h, all := escapees(t, code, c.skip, env...)
			want := allWays
			if c.skip != 0 {
				want -= allWays / 4
			}
			if c.kill && len(all) != want {
				t.Fatalf("%d escapees, want %d", len(all), want)
			}
			switch {
			case c.shimDies:
				if err := proc.Signal(shimOf(h), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if r := await(t, h); r.Outcome != SupervisorDied || r.ExitCode != nil || !r.Clean() {
					t.Errorf("result %+v", r)
				}
			case c.kill:
				h.Kill("cancelled")
				wantEnd(t, await(t, h), Killed, 143, "cancelled")
			default:
				wantEnd(t, await(t, h), Exited, 7, "")
			}
			if left := slices.DeleteFunc(all, func(id proc.ID) bool { return !proc.Alive(id) }); len(left) > 0 {
				t.Errorf("still there: %v", left)
			}
			wantNoCgroup(t, h, c.cgroup)
		})
	}
}

// wantNoCgroup fails unless the job had a cgroup, or had none, and it is gone.
func wantNoCgroup(t *testing.T, h *Handle, had bool) {
	t.Helper()
	path, err := cgroupOf(h.dir)
	if err != nil || (path != "") != had {
		t.Fatalf("cgroup %q, %v; had one: %v", path, err, had)
	}
	if _, err := os.Stat(path); had && !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", path, err)
	}
}
