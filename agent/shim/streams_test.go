package shim

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// needsTerminal skips where there are no pseudo terminals.
func needsTerminal(t *testing.T) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this machine gives no pseudo terminals: /dev/ptmx: %v", err)
	}
	_ = unix.Close(fd)
}

// on connects a job by a terminal or a pipe.
func on(t *testing.T, stdio Stdio, cfg Config) Config {
	t.Helper()
	if stdio == StdioTTY {
		needsTerminal(t)
	}
	cfg.Spec.Stdio = stdio
	return cfg
}

func TestEveryLineOfAnAttachedJobThatExitsAtOnceIsThere(t *testing.T) {
	for _, stdio := range []Stdio{StdioPipe, StdioTTY} {
		for _, n := range []int{1, 10, 1000, 100_000} {
			t.Run(fmt.Sprint(stdio, n), func(t *testing.T) {
				h := start(t, on(t, stdio, acting(t, fmt.Sprintf("lines %d", n))))
				r := await(t, h)
				wantEnd(t, r, Exited, 0, "")
				eol := "\n"
				if stdio == StdioTTY {
					eol = "\r\n" // as a terminal has it
				}
				var want strings.Builder
				for i := 1; i <= n; i++ {
					fmt.Fprint(&want, i, eol)
				}
				if _, stdout, _ := output(t, h); stdout != want.String() || r.OutputLength != int64(want.Len()) {
					t.Fatalf("%d bytes of output, %d in the result, want %d", len(stdout), r.OutputLength, want.Len())
				}
			})
		}
	}
}

func TestAJobOnATerminalHasOne(t *testing.T) {
	cfg := on(t, StdioTTY, job(t, `tty -s && echo yes; stty size; echo err >&2; exec 0</dev/tty && echo controlling; exit 3`))
	for size, want := range map[string]string{"": "24 80", "120x40": "40 120", "nonsense": "24 80"} {
		cfg.Dir = t.TempDir() + "/job"
		cfg.Spec.Env = append(cfg.Spec.Env[:2:2], "RC_TTY_SIZE="+size)
		h := start(t, cfg)
		wantEnd(t, await(t, h), Exited, 3, "")
		all, stdout, _ := output(t, h)
		if got := strings.ReplaceAll(stdout, "\r\n", "\n"); got != "yes\n"+want+"\nerr\ncontrolling\n" || all != stdout {
			t.Errorf("size %q: %q", size, got)
		}
	}
}

func TestATerminalThatNobodyHasOpenIsNotAtItsEnd(t *testing.T) {
	h := start(t, on(t, StdioTTY, job(t, `echo one; exec <&- >&- 2>&-; sleep 0.3; echo two >/dev/tty; exit 4`)))
	wantEnd(t, await(t, h), Exited, 4, "")
	if all, _, _ := output(t, h); all != "one\r\ntwo\r\n" {
		t.Errorf("output %q", all)
	}
}

func TestStragglersOnATerminalGoAndTheirLastWordIsThere(t *testing.T) {
	h := start(t, on(t, StdioTTY, job(t, `(trap 'echo bye; exit' HUP TERM; echo ready; while :; do sleep 0.02; done) & sleep 0.3; exit 7`)))
	wantEnd(t, await(t, h), Exited, 7, "")
	if all, _, _ := output(t, h); !strings.HasPrefix(all, "ready\r\n") || !strings.HasSuffix(all, "bye\r\n") { // some shells tell of the hang-up in between
		t.Errorf("output %q", all)
	}
}

func TestKillEndsAJobOnATerminal(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"wait,wait", "setsid,leave,deaf", "naked,wait,setsid,leave,deaf"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			cfg := on(t, StdioTTY, acting(t, part))
			h := start(t, cfg)
			awaitOutput(t, h, 7)
			h.Kill("cancelled")
			wantEnd(t, await(t, h), Killed, 143, "cancelled")
		})
	}
}

func TestATerminalThatCannotBeHadIsAFailedStart(t *testing.T) {
	cfg := on(t, StdioTTY, config(t, []string{"no-such-program-here"}))
	h := start(t, cfg)
	r := await(t, h)
	wantEnd(t, r, StartFailed, -1, "start: no-such-program-here: command not found in PATH "+os.Getenv("PATH")+"; install it on the host, or give its path")
}

func TestWatchdogsEndAttachedJobs(t *testing.T) {
	t.Parallel()
	for _, stdio := range []Stdio{StdioPipe, StdioTTY} {
		cfg := on(t, stdio, job(t, "exec sleep 60"))
		cfg.Spec.MaxRuntime = time.Second
		wantEnd(t, await(t, start(t, cfg)), Killed, 143, "max_runtime exceeded (1s)")
		cfg = on(t, stdio, job(t, "echo x; exec sleep 60"))
		cfg.Spec.IdleTimeout = 300 * time.Millisecond
		wantEnd(t, await(t, start(t, cfg)), Killed, 143, "idle: no output for 300ms")
	}
}
