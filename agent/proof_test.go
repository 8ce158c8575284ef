package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcd/agent/proc"
	"rcd/wire"
)

// looking returns an agent without a link whose log is kept.
func looking(t *testing.T, c *control) (*agent, *logBook) {
	t.Helper()
	a, log := newTestAgent(t, testConfig(dataDir(t), c)), &logBook{}
	a.log = log.logger()
	return a, log
}

// proofAt returns the proof of a first hello.
func (c *control) proofAt(n int) wire.HostProof {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hellos[n].Proof
}

// look is a proof that is not from before.
func (a *agent) look() wire.HostProof {
	a.proofs.orders.Add(1)
	return a.proof()
}

func TestAnAgentIsIsolatedForAsLongAsItIsSeenAlone(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	a, _ := looking(t, newControl(t))
	if p := a.look(); !p.Isolated || !p.SurvivorsChecked || p.SurvivorsFound || p.Detail != "" {
		t.Errorf("alone: %+v", p)
	}
	_, end := bystander(t)
	if p := a.look(); p.Isolated || !p.SurvivorsChecked || p.SurvivorsFound {
		t.Errorf("with somebody of no job: %+v", p)
	}
	end()
	if p := a.look(); !p.Isolated {
		t.Errorf("alone again: %+v", p)
	}
}

func TestWhoIsNotTheFirstOfItsNamespaceIsNotIsolated(t *testing.T) {
	if proc.Alone() {
		t.Error("this process is not the first of its namespace, or not alone")
	}
}

func TestASurvivorIsNamedUntilItIsGone(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newControl(t)
	c.wantsProof = true
	pid, end := bystander(t, "RC_JOB_ID=j-99")
	config, log := testConfig(dataDir(t), c), &logBook{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- Run(ctx, config, Deps{Logger: log.logger(), Exec: executable(t)}) }()
	defer func() { cancel(); <-done }()
	eventually(t, "first hello", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) > 0 })
	name := fmt.Sprintf("pid %d (sleep 600)", pid)
	if p := c.proofAt(0); p.Isolated || !p.SurvivorsChecked || !p.SurvivorsFound || p.Detail != name {
		t.Errorf("first hello: %+v", p)
	}
	end()
	eventually(t, "a later hello", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.proofs) > 0 })
	c.mu.Lock()
	later := c.proofs[0].Proof
	c.mu.Unlock()
	if p := later; !p.SurvivorsChecked || p.SurvivorsFound {
		t.Errorf("later hello: %+v", p)
	}
	if text := log.text(); strings.Count(text, name) != 2 || !strings.Contains(text, "no process of an earlier job is left") {
		t.Errorf("log:\n%s", text)
	}
}

func TestTheTreesOfReadoptedJobsAreNoSurvivors(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	first := startAgent(t, config)
	up := filepath.Join(t.TempDir(), "up")
	// One in a session of its own, and its parent gone.
	c.want(1, nil, sh("setsid sh -c 'sleep 600 & touch "+up+"; sleep 600' & wait")...)
	eventually(t, "job running", func() bool {
		_, err := os.Stat(up)
		return c.isRunning(1) && err == nil
	})
	first.stop()
	startAgent(t, config)
	eventually(t, "second hello", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 2 })
	if p := c.proofAt(1); p.Isolated || !p.SurvivorsChecked || p.SurvivorsFound {
		t.Errorf("second hello: %+v", p)
	}
	pid, _ := bystander(t, "RC_JOB_ID=j-1") // says that it is of the job, and is not
	a := newTestAgent(t, config)            // beside it: it only looks
	if p := a.look(); !p.SurvivorsFound || p.Detail != fmt.Sprintf("pid %d (sleep 600)", pid) {
		t.Errorf("with a stranger: %+v", p)
	}
	c.kill(1)
	c.outcome(t, 1)
}

func TestWhatCannotBeReadProvesNothingAndTheLogSaysWhatToDo(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	a, log := looking(t, newControl(t))
	pid, end := bystander(t, "RC_JOB_ID=j-99")
	_, endOther := bystander(t)
	asNobody := func(f func()) {
		t.Helper()
		// The group as well: that of root sees what hidepid hides.
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
	asNobody(func() {
		for range 2 {
			if p := a.look(); p.SurvivorsChecked || p.SurvivorsFound || p.Isolated || !strings.Contains(p.Detail, fmt.Sprintf("process %d (sleep) and 1 more", pid)) {
				t.Errorf("unreadable: %+v", p)
			}
		}
	})
	if text := log.text(); strings.Count(text, "CAP_SYS_PTRACE") != 1 {
		t.Errorf("log:\n%s", text)
	}
	for _, option := range []string{"hidepid=2", "hidepid=4"} {
		if err := mountProc(option); err != nil {
			t.Log("not tried: ", err)
			continue
		}
		asNobody(func() {
			if p := a.look(); p.SurvivorsChecked || p.Isolated || !strings.Contains(p.Detail, "hidepid") {
				t.Errorf("%s: %+v", option, p)
			}
		})
		if p := a.look(); !p.SurvivorsChecked || !p.SurvivorsFound {
			t.Errorf("%s, as root: %+v", option, p)
		}
	}
	end()
	endOther()
	if p := a.look(); !p.SurvivorsChecked || p.SurvivorsFound {
		t.Errorf("in the end: %+v", p)
	}
	if text := log.text(); !strings.Contains(text, "every process can be looked at again") {
		t.Errorf("log:\n%s", text)
	}
}

func TestALookFromBeforeAnOrderIsNotGivenAsAProof(t *testing.T) {
	a, _ := looking(t, newControl(t))
	a.proof()
	first := a.proofs.at
	if a.proof(); a.proofs.at != first {
		t.Error("two hellos in a row cost two looks")
	}
	a.Order(context.Background(), order(wire.OrderStart, 1, 10, "true"))
	if a.proof(); a.proofs.at == first {
		t.Error("a look from before the order stands for one after it")
	}
	a.awaitOutcome(t, key{1, 10})
}

func TestTheLogNamesSurvivorsOncePerChange(t *testing.T) {
	var s sayings
	log := &logBook{}
	say := func(second int, left, unread string) int {
		before := strings.Count(log.text(), "\n")
		s.say(log.logger(), left, unread, time.Unix(int64(second), 0))
		return strings.Count(log.text(), "\n") - before
	}
	for i, tt := range []struct {
		second       int
		left, unread string
		lines        int
	}{
		{0, "", "", 0},
		{1, "pid 1 (a)", "", 1},
		{3, "pid 1 (a)", "", 0},
		{5, "pid 2 (a)", "", 0}, // it forks
		{12, "pid 3 (a)", "", 1},
		{14, "", "", 1},
		{15, "pid 4 (b)", "", 1}, // news after nobody is said at once
		{16, "pid 4 (b)", "process 7 (x)", 1},
		{17, "pid 4 (b)", "process 8 (x)", 0},
		{18, "", "", 2},
		{19, "", "", 0},
	} {
		if got := say(tt.second, tt.left, tt.unread); got != tt.lines {
			t.Errorf("step %d: %d lines, want %d:\n%s", i, got, tt.lines, log.text())
		}
	}
}

// TestManualClearIsOnlyEverAdded: neither the file nor the environment can take
// back what the other one has asked for.
func TestManualClearIsOnlyEverAdded(t *testing.T) {
	for _, tt := range []struct {
		file, env string
		want      bool
	}{
		{"", "", false}, {"", "0", false}, {"false", "false", false}, {"", "1", true}, {"false", "true", true}, {"false", "perhaps", true},
		{"true", "", true}, {"true", "0", true}, {"true", "false", true}, {"true", "1", true},
	} {
		t.Setenv("RC_REQUIRE_MANUAL_CLEAR", tt.env)
		text := "controllers: [a:1]\ndevices: [gpu0]\n"
		if tt.file != "" {
			text += "require_manual_clear: " + tt.file + "\n"
		}
		config, err := load(t, text)
		if err != nil || config.RequireManualClear != tt.want {
			t.Errorf("file %q, environment %q: %v, %v", tt.file, tt.env, config.RequireManualClear, err)
		}
		c := newControl(t)
		mine := testConfig(dataDir(t), c)
		mine.RequireManualClear = config.RequireManualClear
		if h := newTestAgent(t, mine).Hello(); h.RequireManualClear != tt.want {
			t.Errorf("the hello says %v", h.RequireManualClear)
		}
	}
}
