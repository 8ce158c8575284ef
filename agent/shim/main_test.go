package shim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/spool"
)

// The test binary is the shim, and is the job too where a shell would not do.
const (
	partName  = "RC_TEST_PART"
	chainName = "RC_TEST_CHAIN"
	// quickExit spares a binary built with -race the second that it sleeps before it exits.
	quickExit = "GORACE=atexit_sleep_ms=0"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "shim" {
		if os.Getenv(wedgeName) != "" {
			wedgeAtSignal()
		}
		misbehave()
		os.Exit(Main(os.Args[2:]))
	}
	if part := os.Getenv(partName); part != "" {
		os.Exit(play(part))
	}
	if os.Getenv(namespaceName) != "" {
		os.Exit(runInNamespace(m))
	}
	waitTogether()
	os.Exit(m.Run())
}

// waitTogether lets more tests run at a time than there are processors, unless it is said how many: those that are parallel mostly wait for a time to be over.
func waitTogether() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", "8")
	}
}

// play is a job. Parts of a comma list are a chain of processes, each the child of the one before.
func play(part string) int {
	if dir, ok := strings.CutPrefix(part, "agent "); ok {
		return playAgent(dir)
	}
	if arg, ok := strings.CutPrefix(part, "escapee"); ok {
		return playEscapees(arg)
	}
	if arg, ok := strings.CutPrefix(part, "comets "); ok {
		return playComets(arg)
	}
	head, rest, more := strings.Cut(part, ",")
	word, arg, _ := strings.Cut(head, " ")
	n, _ := strconv.Atoi(arg)
	env, attr := os.Environ(), &unix.SysProcAttr{}
	switch word {
	case "lines":
		w := bufio.NewWriterSize(os.Stdout, 8192)
		for i := 1; i <= n; i++ {
			fmt.Fprintln(w, i)
		}
		_ = w.Flush()
		return 0
	case "alternate": // one line each to stdout and stderr, in turn
		for i := range n {
			fmt.Fprintln([]*os.File{os.Stdout, os.Stderr}[i%2], i)
		}
		return 0
	case "orphans": // n children that live a little longer
		for range n {
			spawnPart("nap", env, attr)
		}
		return 3
	case "nap":
		time.Sleep(50 * time.Millisecond)
		return 0
	case "hungry": // uses up memory after SIGWINCH
		eatAtSignal(false)
	case "deaf": // SIGTERM does not end it
		signal.Ignore(unix.SIGTERM)
	case "setsid":
		attr.Setsid = true
	case "naked": // its child has lost the job's environment and session
		env, attr.Setsid = nil, true
	}
	// The first of a chain ends only when the last is up: the last closes what all have handed down as descriptor 3.
	first := os.Getenv(chainName) == ""
	var up, down *os.File
	if first {
		up, down, _ = os.Pipe()
	} else {
		down = os.NewFile(3, "chain")
	}
	if more {
		spawnPart(rest, env, attr, down)
	} else {
		fmt.Printf("ready\n%d\n", os.Getpid())
	}
	_ = down.Close()
	if first {
		_, _ = io.ReadAll(up)
	}
	if word == "leave" || arg == "leave" {
		return 7
	}
	time.Sleep(time.Minute)
	return 0
}

// playAgent starts a job and then waits to be killed.
func playAgent(dir string) int {
	h, err := Start(Config{Dir: dir, Exec: "/proc/self/exe", Spec: Spec{
		JobID: "j-7", Command: []string{"/bin/sh", "-c", "echo ready; read x < release; exit 7"}, Cwd: filepath.Dir(dir),
		Env: []string{"PATH=" + os.Getenv("PATH"), "RC_JOB_ID=j-7"},
	}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("started", h.Status().Job.PID)
	time.Sleep(time.Minute)
	return 0
}

func spawnPart(part string, env []string, attr *unix.SysProcAttr, hand ...*os.File) {
	cmd := exec.Command("/proc/self/exe")
	for _, e := range env {
		if !strings.HasPrefix(e, partName+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, partName+"="+part, chainName+"=1", quickExit)
	cmd.ExtraFiles = hand
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attr, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

func executable(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// job returns a config for a shell line.
func job(t *testing.T, line string) Config {
	t.Helper()
	return config(t, []string{"/bin/sh", "-c", line})
}

// acting returns a config for a part of play.
func acting(t *testing.T, part string) Config {
	t.Helper()
	cfg := config(t, []string{executable(t)})
	cfg.Spec.Env = append(cfg.Spec.Env, partName+"="+part, quickExit)
	return cfg
}

func config(t *testing.T, command []string) Config {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "job")
	t.Cleanup(func() {
		if t.Failed() {
			raw, _ := os.ReadFile(filepath.Join(dir, logName))
			t.Logf("shim.log:\n%s", raw)
		}
	})
	return Config{
		Dir: dir, Exec: executable(t), shimEnv: []string{quickExit}, Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
		Spec: Spec{
			JobID: "j-7", Lease: 9, Kind: KindJob, Command: command, Cwd: "/",
			Env: []string{"PATH=" + os.Getenv("PATH"), "RC_JOB_ID=j-7"}, Grace: 500 * time.Millisecond,
		},
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("agent: %s", bytes.TrimSpace(p))
	return len(p), nil
}

func start(t *testing.T, cfg Config) *Handle {
	t.Helper()
	h, err := Start(cfg)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { finish(t, h) })
	return h
}

// closed holds the handles that a test let go of: what they held is another handle's to end.
var closed sync.Map

func letGo(h *Handle) {
	h.Close()
	closed.Store(h, true)
}

// finish leaves nothing running, whatever the test found.
func finish(t *testing.T, h *Handle) {
	h.Kill("test is over")
	if _, dropped := closed.Load(h); !dropped {
		select {
		case <-h.Done():
		case <-time.After(30 * time.Second):
		}
	}
	h.Close()
	wantNobody(t, h)
	if err := removeCgroupOf(h.dir); err != nil { // some tests write a result that is not the shim's
		t.Error(err)
	}
}

// wantNobody fails if anything of the job is left. A shim whose result is known may still be on its way out.
func wantNobody(t *testing.T, h *Handle) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	alive := ours(t, h)
	for len(alive) > 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		alive = ours(t, h)
	}
	if len(alive) > 0 {
		t.Errorf("left running: %v", alive)
	}
}

// ours returns what runs of a job, its shim included, found by other means than the package's own.
func ours(t *testing.T, h *Handle) (found []int) {
	t.Helper()
	list, err := proc.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if bytes.Contains(env, []byte(markName+"="+h.order.Mark)) || bytes.Contains(line, []byte("\x00"+h.dir+"\x00")) {
			found = append(found, p.PID)
		}
	}
	return found
}

func shimOf(h *Handle) proc.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shim
}

func await(t *testing.T, h *Handle) Result {
	t.Helper()
	select {
	case <-h.Done():
	case <-time.After(60 * time.Second):
		t.Fatalf("no end after 60 s: %+v", h.Status())
	}
	result, err := h.Result()
	if err != nil {
		t.Fatalf("Result: %v", err)
	}
	return result
}

// output reads what a job wrote, by stream, and all of it in order.
func output(t *testing.T, h *Handle) (all, stdout, stderr string) {
	t.Helper()
	r, err := h.OpenOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	var streams [3]bytes.Buffer
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return streams[0].String(), streams[spool.Stdout].String(), streams[spool.Stderr].String()
		}
		if err != nil {
			t.Fatalf("read output: %v", err)
		}
		if rec.Gap != nil {
			t.Fatalf("gap %+v", *rec.Gap)
		}
		streams[0].Write(rec.Data)
		streams[rec.Stream].Write(rec.Data)
	}
}

// awaitOutput waits until the job has said so much.
func awaitOutput(t *testing.T, h *Handle, length int64) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for status := h.Status(); ; {
		if status.Output >= length {
			return status
		}
		next, err := h.Wait(ctx, status)
		if err != nil || (next.Phase == Ended && next.Output < length) {
			t.Fatalf("waiting for %d bytes of output: %+v, %v", length, next, err)
		}
		status = next
	}
}

// last returns the last process of a chain, which it has told in its output.
func last(t *testing.T, h *Handle) proc.ID {
	t.Helper()
	awaitOutput(t, h, 7)
	r, err := spool.Open(filepath.Join(h.dir, outputName), 6)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	rec, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(rec.Data)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := proc.Identify(pid)
	if err != nil {
		return proc.ID{} // gone already
	}
	return id
}

func wantEnd(t *testing.T, r Result, outcome Outcome, code int, reason string) {
	t.Helper()
	got := "none"
	if r.ExitCode != nil {
		got = strconv.Itoa(*r.ExitCode)
	}
	if r.Outcome != outcome || got != strconv.Itoa(code) || r.Reason != reason || !r.Clean() {
		t.Fatalf("ended %s, exit code %s, reason %q, survivors %+v %s; want %s, %d, %q", r.Outcome, got, r.Reason, r.Survivors, r.Unverified,
			outcome, code, reason)
	}
}
