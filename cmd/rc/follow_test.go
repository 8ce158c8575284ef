package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// follow runs a command that does not end, interrupts it once it has printed N
// lines, and keeps what it printed in the files out and err. Ctrl-C must end it
// with 130.
func follow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: follow N COMMAND ARGS…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), awaitWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[1], args[2:]...)
	cmd.Env = os.Environ()
	for _, name := range []string{"RC_CONTROLLER", "RC_TOKEN", "RC_SUBMITTER", "RC_CONFIG", "TZ"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	var out strings.Builder
	lines := bufio.NewScanner(stdout)
	for n := 0; lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if n++; n == want {
			ts.Check(cmd.Process.Signal(syscall.SIGINT))
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		ts.Fatalf("ended with %v, having printed %s%s", err, &out, &stderr)
	}
	for name, text := range map[string]string{"out": out.String(), "err": stderr.String()} {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}
