package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

func TestEveryLineOfAJobThatExitsAtOnceIsThere(t *testing.T) {
	for _, n := range []int{1, 2, 1000, 100_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := start(t, acting(t, fmt.Sprintf("lines %d", n)))
			wantEnd(t, await(t, h), Exited, 0, "")
			var want strings.Builder
			for i := 1; i <= n; i++ {
				fmt.Fprintln(&want, i)
			}
			all, _, _ := output(t, h)
			if all != want.String() {
				t.Fatalf("%d bytes of output, want %d", len(all), want.Len())
			}
			r, _ := h.Result()
			sum := sha256.Sum256([]byte(all))
			if r.OutputLength != int64(len(all)) || r.OutputDigest != hex.EncodeToString(sum[:]) {
				t.Errorf("length %d, digest %s", r.OutputLength, r.OutputDigest)
			}
			if r.FinishedAt.Before(r.StartedAt) || time.Since(r.StartedAt) > time.Minute {
				t.Errorf("started %v, finished %v", r.StartedAt, r.FinishedAt)
			}
		})
	}
}

func TestStreamsStayApartAndStdinIsEmpty(t *testing.T) {
	h := start(t, job(t, "cat; echo out; sleep 0.1; echo err >&2; sleep 0.1; echo out again"))
	wantEnd(t, await(t, h), Exited, 0, "")
	all, stdout, stderr := output(t, h)
	if all != "out\nerr\nout again\n" || stdout != "out\nout again\n" || stderr != "err\n" {
		t.Errorf("all %q, stdout %q, stderr %q", all, stdout, stderr)
	}
	h = start(t, acting(t, "alternate 2000"))
	wantEnd(t, await(t, h), Exited, 0, "")
	_, stdout, stderr = output(t, h)
	if strings.Count(stdout, "\n") != 1000 || strings.Count(stderr, "\n") != 1000 || !strings.HasPrefix(stderr, "1\n3\n5\n") {
		t.Errorf("%d and %d lines", strings.Count(stdout, "\n"), strings.Count(stderr, "\n"))
	}
}

func TestExitCodeIsTheJobsOwn(t *testing.T) {
	for line, want := range map[string]int{"exit 7": 7, "exit 255": 255, "kill -9 $$": 137, "kill -TERM $$": 143, "kill -SEGV $$": 139} {
		h := start(t, job(t, line))
		wantEnd(t, await(t, h), Exited, want, "")
	}
}

func TestEnvironmentIsExactlyWhatWasGiven(t *testing.T) {
	t.Setenv("RC_TEST_LEAK", "1")
	cfg := job(t, "env; pwd")
	cfg.Spec.Env = []string{"RC_JOB_ID=j-7", "A=b c", "EMPTY="}
	cfg.Spec.Command = []string{"env"}
	cfg.Spec.Cwd = t.TempDir()
	h := start(t, cfg)
	wantEnd(t, await(t, h), Exited, 0, "")
	all, _, _ := output(t, h)
	want := append(slices.Clone(cfg.Spec.Env), markName+"="+h.order.Mark)
	got := strings.Split(strings.TrimSpace(all), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
}

func TestSignalsAndPipesOfAJobAreAsUsual(t *testing.T) {
	// Ignored signals and non-blocking pipes would be inherited, and break programs far away.
	leak, err := unix.Open(os.DevNull, unix.O_RDONLY, 0) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(leak) }()
	h := start(t, job(t, "grep -E '^Sig(Blk|Ign)' /proc/self/status; grep flags /proc/self/fdinfo/1 /proc/self/fdinfo/2; cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l"))
	wantEnd(t, await(t, h), Exited, 0, "")
	all, _, _ := output(t, h)
	lines := strings.Split(strings.TrimSpace(all), "\n")
	if len(lines) != 6 {
		t.Fatalf("output %q", all)
	}
	for _, line := range lines[:2] {
		if f := strings.Fields(line); strings.Trim(f[1], "0") != "" {
			t.Errorf("%s", line)
		}
	}
	for _, line := range lines[2:4] {
		f := strings.Fields(line)
		var flags uint64
		if _, err := fmt.Sscanf(f[len(f)-1], "%o", &flags); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("%s: %v", line, err)
		}
	}
	if lines[4] != "0" {
		t.Errorf("oom score %s, want 0", lines[4])
	}
	if lines[5] != "4" { // stdin, stdout, stderr, and the directory that ls reads
		t.Errorf("%s descriptors open", lines[5])
	}
}

func TestStartFailureIsAResult(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name    string
		command []string
		cwd     string
		want    string
	}{
		{"no such program", []string{"no-such-program-here"}, "/", "start: no-such-program-here: command not found in PATH"},
		{"no such path", []string{missing}, "/", "start: run " + missing + ": no such file or directory"},
		{"not executable", []string{plain}, "/", "start: run " + plain + ": permission denied"},
		{"no such directory", []string{"true"}, missing, "start: working directory: "},
		{"directory is a file", []string{"true"}, plain, "start: working directory: "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, c.command)
			cfg.Spec.Cwd = c.cwd
			h := start(t, cfg)
			if h.Status().Phase != Ended {
				t.Fatalf("phase %s when Start returns", h.Status().Phase)
			}
			r := await(t, h)
			if !strings.HasPrefix(r.Reason, c.want) {
				t.Errorf("reason %q, want it to begin with %q", r.Reason, c.want)
			}
			wantEnd(t, r, StartFailed, -1, r.Reason)
			if all, _, _ := output(t, h); all != "" {
				t.Errorf("output %q", all)
			}
			// It stays so for whoever asks later.
			again, err := Start(cfg)
			if err != nil {
				t.Fatal(err)
			}
			wantEnd(t, await(t, again), StartFailed, -1, r.Reason)
			again.Close()
		})
	}
}

func TestSpecIsRefusedBeforeAnythingHappens(t *testing.T) {
	cases := []struct {
		name string
		edit func(*Spec)
		want error
	}{
		{"token", func(s *Spec) { s.Env = append(s.Env, "RC_TOKEN=x") }, ErrForbiddenEnv},
		{"tokens", func(s *Spec) { s.Env = append(s.Env, "RC_TOKENS=x") }, ErrForbiddenEnv},
		{"cluster key", func(s *Spec) { s.Env = append(s.Env, "RCD_CLUSTER_KEY=x") }, ErrForbiddenEnv},
		{"no name", func(s *Spec) { s.Env = append(s.Env, "novalue") }, ErrSpec},
		{"own mark", func(s *Spec) { s.Env = append(s.Env, "RC_JOB_MARK=x") }, ErrSpec},
		{"other job's id", func(s *Spec) { s.Env = []string{"RC_JOB_ID=j-8"} }, ErrSpec},
		{"no job id in env", func(s *Spec) { s.Env = nil }, ErrSpec},
		{"no job id", func(s *Spec) { s.JobID = "" }, ErrSpec},
		{"no command", func(s *Spec) { s.Command = nil }, ErrSpec},
		{"NUL", func(s *Spec) { s.Command = []string{"a\x00b"} }, ErrSpec},
		{"relative cwd", func(s *Spec) { s.Cwd = "tmp" }, ErrSpec},
		{"unknown stdio", func(s *Spec) { s.Stdio = "socket" }, ErrSpec},
		{"hold with a terminal", func(s *Spec) { s.Kind, s.Stdio = KindHold, StdioTTY }, ErrSpec},
		{"unknown kind", func(s *Spec) { s.Kind = "cron" }, ErrSpec},
		{"negative", func(s *Spec) { s.MaxRuntime = -1 }, ErrSpec},
		{"tiny bound", func(s *Spec) { s.OutputBound = 1 }, ErrSpec},
	}
	for _, c := range cases {
		cfg := job(t, "true")
		c.edit(&cfg.Spec)
		if _, err := Start(cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
		if _, err := os.Stat(cfg.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left a directory", c.name)
		}
	}
}

func TestWatchdogs(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, line   string
		runtime      time.Duration
		idle         time.Duration
		code         int
		reason       string
		least, most  time.Duration
		wantedOutput string
	}{
		{"runtime", "exec sleep 60", time.Second, 0, 143, "max_runtime exceeded (1s)", time.Second, time.Minute, ""},
		{"idle", "echo x; exec sleep 60", 0, 300 * time.Millisecond, 143, "idle: no output for 300ms", 300 * time.Millisecond, time.Minute, "x\n"},
		{"output keeps it from idle", "for i in 1 2 3 4 5 6 7 8; do echo $i >&2; sleep 0.3; done; exit 4", 0, 2 * time.Second, 4, "", 2 * time.Second, time.Minute, "1\n2\n3\n4\n5\n6\n7\n8\n"},
		{"in time", "exit 0", time.Minute, time.Minute, 0, "", 0, 30 * time.Second, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := job(t, c.line)
			cfg.Spec.MaxRuntime, cfg.Spec.IdleTimeout = c.runtime, c.idle
			h := start(t, cfg)
			r := await(t, h)
			outcome := Killed
			if c.reason == "" {
				outcome = Exited
			}
			wantEnd(t, r, outcome, c.code, c.reason)
			if ran := r.FinishedAt.Sub(r.StartedAt); ran < c.least || ran > c.most {
				t.Errorf("ran %v, want %v to %v", ran, c.least, c.most)
			}
			if all, _, _ := output(t, h); all != c.wantedOutput {
				t.Errorf("output %q", all)
			}
		})
	}
}

func TestHoldWaitsForKillOrItsTime(t *testing.T) {
	t.Parallel()
	cfg := config(t, nil)
	cfg.Spec.Kind, cfg.Spec.IdleTimeout = KindHold, 50*time.Millisecond // a hold has no output to be idle about
	h := start(t, cfg)
	if s := h.Status(); s.Phase != Running || !s.Job.Zero() || s.StartedAt.IsZero() {
		t.Fatalf("status %+v", s)
	}
	time.Sleep(200 * time.Millisecond)
	if s := h.Status(); s.Phase != Running {
		t.Fatalf("status %+v", s)
	}
	h.Kill("")
	wantEnd(t, await(t, h), Killed, 143, "cancelled")

	cfg = config(t, nil)
	cfg.Spec.Kind, cfg.Spec.MaxRuntime = KindHold, 100*time.Millisecond
	h = start(t, cfg)
	wantEnd(t, await(t, h), Killed, 143, "max_runtime exceeded (100ms)")
}

func TestNoZombiesHoweverManyOrphans(t *testing.T) {
	cfg := acting(t, "orphans 60")
	cfg.Spec.Grace = 5 * time.Second
	h := start(t, cfg)
	shim := shimOf(h)
	wantEnd(t, await(t, h), Exited, 3, "")
	if err := h.Remove(); err != nil { // waits for the shim
		t.Fatal(err)
	}
	if now, err := proc.Identify(shim.PID); err == nil && now == shim {
		t.Error("the shim is a zombie")
	}
	if _, err := os.Stat(h.dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory is still there")
	}
}

func TestDeepDirectoriesHaveASocketToo(t *testing.T) {
	cfg := job(t, "echo ready; exec sleep 60")
	cfg.Dir = filepath.Join(t.TempDir(), strings.Repeat("deep", 30), strings.Repeat("er", 50), "job")
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	h.Kill("enough")
	wantEnd(t, await(t, h), Killed, 143, "enough")
}

func TestOutputBoundLeavesAGapAndTheWholeDigest(t *testing.T) {
	cfg := acting(t, "lines 300000")
	cfg.Spec.OutputBound = 1 << 20
	h := start(t, cfg)
	r := await(t, h)
	wantEnd(t, r, Exited, 0, "")
	digest := sha256.New()
	for i := 1; i <= 300_000; i++ {
		fmt.Fprintln(digest, i)
	}
	if r.OutputDigest != hex.EncodeToString(digest.Sum(nil)) {
		t.Error("wrong digest")
	}
	reader, err := h.OpenOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	gaps, at := 0, int64(0)
	for {
		rec, err := reader.Next()
		if err != nil {
			break
		}
		if rec.Offset != at {
			t.Fatalf("record at %d, want %d", rec.Offset, at)
		}
		if rec.Gap != nil {
			gaps++
		}
		at = rec.End()
	}
	if gaps != 1 || at != r.OutputLength {
		t.Errorf("%d gaps, read to %d of %d", gaps, at, r.OutputLength)
	}
}
