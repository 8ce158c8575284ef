package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// ending is how a job of a test is to end.
type ending struct {
	end    command.EndKind
	origin model.Origin
	parts  []string // of the reason
}

func (e ending) check(t *testing.T, o wire.Outcome) {
	t.Helper()
	if command.EndKind(o.End) != e.end || model.Origin(o.Origin) != e.origin {
		t.Errorf("end %d, origin %s, want end %d, origin %s: %q", o.End, model.Origin(o.Origin), e.end, e.origin, o.Reason)
	}
	for _, part := range e.parts {
		if !strings.Contains(o.Reason, part) {
			t.Errorf("reason %q does not say %q", o.Reason, part)
		}
	}
	if (o.ExitCode == nil) != (e.end == command.EndSupervisorDied) {
		t.Errorf("exit code %v", o.ExitCode)
	}
}

func TestAJobThatDoesNotStartSaysWhoseDoingItIs(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	startAgent(t, config)
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file("plain", "text", 0o600)
	cwd := func(dir string) func(*wire.StartJob) { return func(s *wire.StartJob) { s.Cwd = dir } }
	for i, tt := range []struct {
		name    string
		change  func(*wire.StartJob)
		command []string
		origin  model.Origin
		parts   []string
	}{
		{"a device of nobody", func(s *wire.StartJob) { s.Devices = []string{"box:gpu7"} }, sh("true"), model.OriginDevice, []string{"box:gpu7", "declare it"}},
		{"an environment that is ours", func(s *wire.StartJob) { s.Env = map[string]string{"RC_TOKEN": "x"} }, sh("true"), model.OriginJob, []string{"RC_TOKEN", "submit the job without it"}},
		{"no such command", nil, []string{"no-such-program-here"}, model.OriginJob, []string{"command not found", "install it on the host, or give its path"}},
		{"no such path", nil, []string{filepath.Join(dir, "none")}, model.OriginJob, []string{"no such file or directory", "the host has no such file"}},
		{"not executable", nil, []string{plain}, model.OriginJob, []string{"permission denied", "make it executable"}},
		{"no interpreter", nil, []string{file("script", "#!/no/such/sh\n", 0o700)}, model.OriginJob, []string{"or not the interpreter"}},
		{"no program", nil, []string{file("data", "\x01\x02", 0o700)}, model.OriginJob, []string{"exec format error", "first line like #!/bin/sh"}},
		{"too long", nil, []string{"true", strings.Repeat("x", 200<<10)}, model.OriginJob, []string{"argument list too long", "pass what is long in a file"}},
		{"no such directory", cwd(filepath.Join(dir, "none")), sh("true"), model.OriginJob, []string{"working directory", "submit the job with one that the host has"}},
		{"a directory that is a file", cwd(plain), sh("true"), model.OriginJob, []string{"is not a directory"}},
		{"a relative directory", cwd("work"), sh("true"), model.OriginJob, []string{"not absolute"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := uint64(i + 1)
			c.want(n, tt.change, tt.command...)
			ending{command.EndStartFailed, tt.origin, append(tt.parts, "start: ")}.check(t, c.outcome(t, n))
		})
	}
	t.Run("no room for its output", func(t *testing.T) { // the directory is there, and something is in the way
		job := filepath.Join(config.DataDir, jobsDir, "90-90")
		if err := errors.Join(os.Mkdir(job, 0o700), os.WriteFile(filepath.Join(job, "out"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		c.want(90, nil, sh("true")...)
		ending{command.EndStartFailed, model.OriginHost, []string{"start: ", "out"}}.check(t, c.outcome(t, 90))
	})
}

func TestAnAgentThatCannotStartShimsBlamesItself(t *testing.T) {
	for exec, want := range map[string]string{"/no/such/rcd": "install rcd on the host again", "/bin/true": "shim.log"} {
		c := newControl(t)
		a := newTestAgent(t, testConfig(dataDir(t), c))
		a.deps.Exec = exec
		a.Order(context.Background(), order(wire.OrderStart, 1, 10, "true"))
		ending{command.EndStartFailed, model.OriginAgent, []string{"start: ", want}}.check(t, a.awaitOutcome(t, key{1, 10}))
	}
}

func TestAFullDiskIsTheHosts(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	a := newTestAgent(t, config)
	jobs := filepath.Join(config.DataDir, jobsDir)
	if err := unix.Mount("tmpfs", jobs, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no small disk can be mounted here: ", err)
	}
	full := filepath.Join(jobs, "full")
	defer func() {
		_ = os.Remove(full)
		if err := unix.Unmount(jobs, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(full, make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	a.Order(context.Background(), order(wire.OrderStart, 1, 10, "true"))
	ending{command.EndStartFailed, model.OriginHost, []string{"no space left on device", "make room on the host's disk"}}.check(t, a.awaitOutcome(t, key{1, 10}))
	// With room again the next job runs.
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	a.Order(context.Background(), order(wire.OrderStart, 2, 11, "true"))
	ending{command.EndExited, model.OriginJob, nil}.check(t, a.awaitOutcome(t, key{2, 11}))
}

func TestADeviceThatIsNotFreeIsNamed(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	j := a.newJob(key{1, 10}, []string{"gpu0"})
	a.mu.Lock()
	a.jobs[j.key] = j
	a.mu.Unlock()
	a.Order(context.Background(), order(wire.OrderStart, 2, 11, "true"))
	eventually(t, "it waits", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return j.killing != "" })
	a.finish(j, wire.Outcome{End: uint8(command.EndKilled), Survivors: "processes of the job are left: pid 7 (x)"})
	o := a.awaitOutcome(t, key{2, 11})
	ending{command.EndStartFailed, model.OriginDevice, []string{"pid 7 (x)", "rc clear"}}.check(t, o)
	if o.Survivors == "" {
		t.Error("the device stays in the pool")
	}
}

func TestAJobThatRanSaysWhoseDoingItsEndIs(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	first := startAgent(t, config)
	n := uint64(0)
	run := func(change func(*wire.StartJob)) (job uint64, dir string) {
		n++
		c.want(n, change, sh("sleep 600")...)
		eventually(t, "running", func() bool { return c.isRunning(n) })
		return n, filepath.Join(config.DataDir, jobsDir, key{n, n}.name())
	}
	check := func(job uint64, e ending) {
		t.Helper()
		e.check(t, c.outcome(t, job))
	}
	shimOf := func(dir string) proc.ID {
		all, err := shims()
		if err != nil || all[dir].Zero() {
			t.Fatalf("shim of %s: %v", dir, err)
		}
		return all[dir]
	}
	killShim := func(dir string) {
		if err := proc.Signal(shimOf(dir), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}

	long, _ := run(func(s *wire.StartJob) { s.MaxRuntimeS = 1 })
	quiet, _ := run(func(s *wire.StartJob) { s.IdleTimeoutS, s.Devices = 1, []string{"box:gpu1"} })
	check(long, ending{command.EndKilled, model.OriginJob, []string{"max_runtime exceeded (1s)"}})
	check(quiet, ending{command.EndKilled, model.OriginJob, []string{"idle: no output for 1s"}})
	job, _ := run(nil)
	c.kill(job)
	check(job, ending{command.EndKilled, model.OriginUser, []string{reasonCancelled}})

	job, dir := run(nil)
	killShim(dir)
	check(job, ending{command.EndSupervisorDied, model.OriginAgent, []string{"supervisor_died", dir + "/shim.log", "submit the job again"}})

	job, dir = run(nil) // whoever follows its output must not make the directory again
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if text, end := c.output(t, model.JobID(job), 0, false); text != "" || end.Complete || end.Reason != reasonOutputGone {
		t.Errorf("output %q, end %+v", text, end)
	}
	check(job, ending{command.EndSupervisorDied, model.OriginHost, []string{"supervisor_died: the job's directory was deleted on the host"}})
	if o := c.outcome(t, job); o.Survivors != "" || o.OutputKnown {
		t.Errorf("outcome %+v", o)
	}

	job, _ = run(nil)
	c.mu.Lock()
	delete(c.desired, job) // the table has given its device to another
	c.mu.Unlock()
	run(nil)
	check(job, ending{command.EndKilled, model.OriginAgent, nil})

	// What the next agent finds.
	c.kill(n)
	c.outcome(t, n)
	job, dir = run(nil)
	tree := treeOf(t, config, filepath.Base(dir))
	first.stop()
	gone(t, tree)
	restartHost(t, filepath.Join(dir, "spec.cbor"))
	second := startAgent(t, config)
	check(job, ending{command.EndSupervisorDied, model.OriginHost, []string{"the host was restarted", "submit the job again"}})

	job, dir = run(nil)
	shim := shimOf(dir)
	second.stop()
	if err := Drain(context.Background(), config.DataDir, testLog(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shim gone", func() bool { return !proc.Alive(shim) })
	third := startAgent(t, config)
	check(job, ending{command.EndKilled, model.OriginAgent, []string{reasonDrained}})

	job, dir = run(nil)
	shim = shimOf(dir)
	third.stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its shim has seen it", func() bool { return !proc.Alive(shim) })
	fourth := startAgent(t, config)
	check(job, ending{command.EndSupervisorDied, model.OriginAgent, []string{"record lost", "submit it again"}})

	job, dir = run(nil)
	fourth.stop()
	if err := Drain(context.Background(), config.DataDir, testLog(t)); err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(dir, "result.cbor")
	if err := os.WriteFile(result, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	startAgent(t, config)
	check(job, ending{command.EndSupervisorDied, model.OriginHost, []string{"record lost", result, "rc clear"}})
}

// restartHost makes a job's record one of an earlier boot of the host.
func restartHost(t *testing.T, path string) {
	t.Helper()
	boot, err := proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	data := read(t, path)
	other := strings.Replace(data[:len(data)-crcSize], boot, strings.Repeat("0", len(boot)), 1)
	if other == data[:len(data)-crcSize] {
		t.Fatal("the record does not name the boot")
	}
	sealed := binary.BigEndian.AppendUint32([]byte(other), crc32.Checksum([]byte(other), castagnoli))
	if err := os.WriteFile(path, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
}
