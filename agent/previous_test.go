package agent

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/fsm/command"
	"rcd/wire"
)

var previous = flag.String("agent.previous", "HEAD~1", "the commit whose agent and shims the present agent takes over from")

// TestJobsOfThePreviousCommitAreTakenOver builds rcd as of an earlier commit,
// has its agent start jobs under its shims, and goes on with the present agent.
func TestJobsOfThePreviousCommitAreTakenOver(t *testing.T) {
	if !*long {
		t.Skip("it builds another commit; run it with -agent.long")
	}
	old := buildCommit(t, *previous)
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.Devices = nil
	for i := range 4 {
		config.Devices = append(config.Devices, Device{Name: fmt.Sprintf("gpu%d", i)})
	}
	process := startOld(t, old, config)

	dir := t.TempDir()
	until := func(name string) string {
		return "until [ -e " + filepath.Join(dir, name) + " ]; do sleep 0.02; done; "
	}
	done := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	on := func(n int, limit int64) func(*wire.StartJob) {
		return func(s *wire.StartJob) { s.Devices, s.MaxRuntimeS = []string{fmt.Sprintf("box:gpu%d", n)}, limit }
	}
	c.want(1, on(0, 0), sh("echo one; "+until("first")+"echo two; exit 7")...)
	c.want(2, on(1, 0), sh("exec 2>/dev/null; trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.02; done")...)
	c.want(3, on(2, 0), sh("echo alone; "+until("third")+"exit 5")...)
	c.want(4, on(3, 3600), sh(until("fourth")+"exit 3")...)
	eventually(t, "all running under the earlier commit", func() bool {
		return c.isRunning(1) && c.isRunning(2) && c.isRunning(3) && c.isRunning(4)
	})
	eventually(t, "the trap set", func() bool { text, _, err := c.tryOutput("j-2", 0, false); return err == nil && text == "up\n" })
	process.end(unix.SIGKILL)
	done("third")
	eventually(t, "job 3 over with nobody there", func() bool {
		_, err := os.Stat(filepath.Join(config.DataDir, jobsDir, "3-3", "result.cbor"))
		return err == nil
	})

	c.extend(4, 7200)
	startAgent(t, config)
	if o := c.outcome(t, 3); o.ExitCode == nil || *o.ExitCode != 5 {
		t.Errorf("the job that ended meanwhile: %+v", o)
	}
	c.kill(2)
	if o := c.outcome(t, 2); o.End != uint8(command.EndKilled) || o.ExitCode == nil || *o.ExitCode != 9 {
		t.Errorf("the job that was killed: %+v", o)
	}
	done("first")
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 7 || o.Survivors != "" {
		t.Errorf("the job that went on: %+v", o)
	}
	for job, want := range map[uint64]string{1: "one\ntwo\n", 2: "up\nbye\n", 3: "alone\n"} {
		if text, err := wholeOutput(t, c, job); text != want || err != nil {
			t.Errorf("output of job %d: %q, %v", job, text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(config.DataDir, jobsDir, "4-4", "limit.cbor")); err != nil {
		t.Logf("a shim of %s takes no longer limit", *previous)
	} else {
		eventually(t, "the longer limit told", func() bool { return c.limitOf(4) == 7200 })
	}
	done("fourth")
	if o := c.outcome(t, 4); o.ExitCode == nil || *o.ExitCode != 3 {
		t.Errorf("the job with a limit: %+v", o)
	}
}

// buildCommit builds rcd as of a commit, or skips the test without one.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	archive := exec.Command("git", "archive", "--format=tar", commit)
	archive.Dir = ".." // a folder of the repository archives itself only
	tar, err := archive.Output()
	if err != nil {
		t.Skipf("commit %s is not here (a shallow clone, or no repository): %v", commit, err)
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(tar)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", commit, err, out)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "rcd"), "./cmd/rcd")
	build.Dir = dir
	build.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GOFLAGS=") }), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return filepath.Join(dir, "rcd")
}

// startOld runs `rcd agent` of another build with the same configuration.
func startOld(t *testing.T, binary string, config Config) *agentProcess {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "controllers: [%s]\ntoken: %s\nhost: %s\ndata_dir: %q\nkill_grace: 1s\ndevices:\n", config.Controllers[0], config.Token, config.Host, config.DataDir)
	for _, d := range config.Devices {
		fmt.Fprintf(&text, "  - %s\n", d.Name)
	}
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return runProcess(t, exec.Command(binary, "agent", "--config", path))
}
