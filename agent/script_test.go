package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// executableFile writes a shell script and returns its path.
func executableFile(t *testing.T, path, body string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func testScripts(t *testing.T) *scripts {
	boot, err := proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return newScripts("box", t.TempDir(), boot, (&gpus{}).cuda, testLog(t))
}

// identify returns the processes whose pids stand in a file, one a line.
func identifyScript(t *testing.T, path string) (ids []proc.ID) {
	t.Helper()
	for pid := range strings.FieldsSeq(read(t, path)) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		id, err := proc.Identify(n)
		if err != nil {
			t.Fatalf("process %d: %v", n, err)
		}
		t.Cleanup(func() { _ = proc.Signal(id, unix.SIGKILL) })
		ids = append(ids, id)
	}
	return ids
}

func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

func lines(path string) int {
	data, _ := os.ReadFile(path)
	return strings.Count(string(data), "\n")
}

func TestAScriptSeesItsDeviceAndNoCredentials(t *testing.T) {
	for _, name := range []string{"RC_TOKEN", "RC_TOKENS", "RCD_CLUSTER_KEY", "SOMETHING_OF_THE_AGENT"} {
		t.Setenv(name, "secret")
	}
	path := executableFile(t, filepath.Join(t.TempDir(), "script"), "cat; pwd; ps -o sid= -p $$ | grep -qw $$ && echo own session; env")
	end := testScripts(t).run(context.Background(), script{
		path: path, event: eventAcquire, device: "gpu7", tenant: tenant{"j-3", "ann"}, timeout: time.Minute, stdout: true, keep: 64 << 10,
	})
	if end.failure != "" || strings.Contains(end.tail, "secret") || !strings.HasPrefix(end.tail, "/\n") {
		t.Errorf("%+v", end)
	}
	for _, want := range []string{"RC_EVENT=acquire", "RC_DEVICE=box:gpu7", "RC_JOB_ID=j-3", "RC_SUBMITTER=ann", "CUDA_VISIBLE_DEVICES=7", "HOME=" + homeDir(), "own session"} {
		if !strings.Contains("\n"+end.tail+"\n", "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, end.tail)
		}
	}
}

func TestAScriptThatTakesTooLongEndsWithAllItsProcesses(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	path := executableFile(t, filepath.Join(dir, "script"), `echo last words
trap '' TERM
echo $$ >> `+pids+`
setsid sh -c 'echo $$ >> `+pids+`; exec sleep 600' &
(sh -c 'echo $$ >> `+pids+`; exec setsid sleep 600' &)
touch `+dir+`/all
while :; do sleep 600; done`)
	s := testScripts(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan scriptEnd)
	go func() {
		done <- s.run(ctx, script{path: path, device: "gpu0", timeout: time.Hour, stdout: true, keep: 100})
	}()
	eventually(t, "three processes", func() bool { return exists(dir, "all") && lines(pids) == 3 })
	ids := identifyScript(t, pids)
	if len(s.trees()) != 1 {
		t.Errorf("runs: %v", s.trees())
	}
	cancel(fmt.Errorf("timed out"))
	if end := <-done; end.failure != "timed out" || end.left != "" || !strings.HasPrefix(end.tail, "last words") {
		t.Errorf("%+v", end)
	}
	for _, id := range ids {
		if proc.Alive(id) {
			t.Errorf("process %v is left", id)
		}
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 0 || len(s.trees()) != 0 {
		t.Errorf("still on record: %v %v", entries, s.trees())
	}
}

func TestAScriptHasItsTimeAndNoMore(t *testing.T) {
	path := executableFile(t, filepath.Join(t.TempDir(), "script"), "exec sleep 600")
	end := testScripts(t).run(context.Background(), script{path: path, device: "gpu0", timeout: 500 * time.Millisecond, keep: 100})
	if end.failure != "timed out after 500ms" || end.left != "" {
		t.Errorf("%+v", end)
	}
}

func TestAScriptMayLeaveADaemonBehindAndIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	path := executableFile(t, filepath.Join(dir, "script"), "sh -c 'echo $$ > "+dir+"/pid; exec sleep 600' &\nuntil [ -s "+dir+"/pid ]; do sleep 0.01; done; echo started; echo and well >&2")
	end := testScripts(t).run(context.Background(), script{path: path, device: "gpu0", timeout: 2 * time.Minute, stdout: true, keep: 100})
	if end.failure != "" || end.tail != "started\nand well" {
		t.Errorf("%+v", end)
	}
	if ids := identifyScript(t, filepath.Join(dir, "pid")); len(ids) != 1 || !proc.Alive(ids[0]) {
		t.Errorf("the daemon has ended: %v", ids)
	}
}

func TestTheEndOfWhatAScriptSaysIsKept(t *testing.T) {
	path := executableFile(t, filepath.Join(t.TempDir(), "script"), `i=0; while [ $i -lt 20000 ]; do echo "line $i of many"; i=$((i+1)); done; printf 'é\033[31mthe end\000' >&2; exit 3`)
	end := testScripts(t).run(context.Background(), script{path: path, device: "gpu0", timeout: time.Minute, stdout: true, keep: 4096})
	if len(end.tail) > 4096 || len(end.tail) < 4000 || !strings.HasSuffix(end.tail, "line 19999 of many\né [31mthe end") || end.failure != "exited 3" {
		t.Errorf("%d bytes, %q, ending in %q", len(end.tail), end.failure, end.tail[max(0, len(end.tail)-50):])
	}
	if said := end.said(100); len(said) != 100 || !strings.HasPrefix(said, "exited 3: ") || !strings.HasSuffix(said, "the end") {
		t.Errorf("%d bytes: %q", len(said), said)
	}
}

// TestWhatWasWrittenIsReadThoughTheWriterStays: whoever inherits a script's
// output keeps the pipe open.
func TestWhatWasWrittenIsReadThoughTheWriterStays(t *testing.T) {
	for range 200 {
		said, pipe, err := newTail(10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pipe.WriteString("some last words"); err != nil {
			t.Fatal(err)
		}
		if got := said.end(); got != "last words" {
			t.Fatalf("read %q", got)
		}
		said.close()
		pipe.Close()
	}
}

func TestAScriptThatDoesNotRunSaysWhy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rubbish"), []byte("no program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	busy, err := os.OpenFile(executableFile(t, filepath.Join(dir, "busy"), "echo ran"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(50*time.Millisecond, func() { busy.Close() })
	defer timer.Stop()
	executableFile(t, filepath.Join(dir, "signal"), "kill -9 $$")
	for name, want := range map[string]string{"none": "no such file", "rubbish": "exec format error", "signal": "exited 137", "busy": ""} {
		end := testScripts(t).run(context.Background(), script{path: filepath.Join(dir, name), device: "gpu0", timeout: time.Minute, keep: 10})
		if !strings.Contains(end.failure, want) || (want == "") != (end.failure == "") {
			t.Errorf("%s: %+v, want %q", name, end, want)
		}
	}
}

// A look at the process table may come at any moment.
func TestAScriptIsKnownBeforeItRuns(t *testing.T) {
	known := -1
	var s *scripts
	s = newScripts("box", t.TempDir(), "boot", func([]string) map[string]string {
		known = len(s.trees()) // its environment is made just before it starts
		return nil
	}, testLog(t))
	end := s.run(context.Background(), script{path: executableFile(t, filepath.Join(t.TempDir(), "a"), "exit 0"), timeout: time.Minute})
	if end.failure != "" || known != 1 || len(s.trees()) != 0 {
		t.Errorf("%d scripts known before, %d after, %+v", known, len(s.trees()), end)
	}
}

func TestAScriptIsNoSurvivorOfAJob(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	dir := t.TempDir()
	path := executableFile(t, filepath.Join(dir, "script"), "echo $$ > "+dir+"/pid; until [ -e "+dir+"/go ]; do sleep 0.02; done")
	done := make(chan scriptEnd)
	go func() {
		done <- a.scripts.run(context.Background(), script{path: path, device: "gpu0", tenant: tenant{"j-1", "ann"}, timeout: time.Minute})
	}()
	eventually(t, "script runs", func() bool { return lines(filepath.Join(dir, "pid")) == 1 })
	id := identifyScript(t, filepath.Join(dir, "pid"))[0]
	found := func(trees []proc.Target) bool {
		check, err := proc.Survivors(trees, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range check.Found {
			if p.ID == id {
				return true
			}
		}
		return false
	}
	if known, _ := a.trees(); found(known) || !found(nil) {
		t.Errorf("it counts as a survivor: %v, and if it is not known: %v", found(known), found(nil))
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if end := <-done; end.failure != "" {
		t.Errorf("%+v", end)
	}
}

func TestRecordsOfScriptsThatHaveEndedAreForgotten(t *testing.T) {
	s := testScripts(t)
	for name, text := range map[string]string{"A": "another-boot gpu0\n", "B": s.boot + " gpu0\n", "C": "torn", "D": ""} {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if stuck := s.endLeft(); len(stuck) != 0 {
		t.Errorf("stuck: %v", stuck)
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
