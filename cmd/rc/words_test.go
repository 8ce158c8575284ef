package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"rcd/client"
)

// TestAWordThatIsNotUTF8IsRefused: the parser takes words through JSON, and so
// do controllers. Another file would be copied, removed or written.
func TestAWordThatIsNotUTF8IsRefused(t *testing.T) {
	for _, words := range [][]string{
		{"cp", "a\xff", "box:gpu0:b"}, {"cp", "a", "box:gpu0:\xff"}, {"run", "-d", "box:gpu0", "--", "rm", "\xff"},
		{"exec", "j-1", "--env", "A=\xff", "--", "true"}, {"logs", "-o", "json", "\xff"},
	} {
		cmd := exec.Command("rc", words...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.Env = append(os.Environ(), "RC_CONTROLLER=http://127.0.0.1:1") // nobody is asked
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(stderr.String(), `\xff`) || !strings.Contains(stderr.String(), "is not UTF-8") {
			t.Errorf("%q: %v: %s", words, err, stderr.String())
		}
	}
}

// TestTalkNeverDrivesTheTerminal: names come from anywhere, and errors hold them.
func TestTalkNeverDrivesTheTerminal(t *testing.T) {
	for _, words := range [][]string{
		{"cp", "a\x1b[31m\u202e\n", "box:gpu0:b"}, {"context", "use", "\x1b[31m\u202e"}, {"run", "-d", "\x1b[31m\u202e", "--timeout", "\x1b[31m"},
	} {
		cmd := exec.Command("rc", words...)
		cmd.Env = append(os.Environ(), "RC_CONTROLLER=http://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		if err == nil || strings.ContainsFunc(strings.TrimSuffix(string(out), "\n"), drives) || !strings.Contains(string(out), `x1b[31m`) {
			t.Errorf("%q: %v: %q", words, err, out)
		}
	}
}

// TestAnOutageHasALineForEachController for people, and is one line in a sentence.
func TestAnOutageHasALineForEachController(t *testing.T) {
	var out bytes.Buffer
	a := &app{stderr: &out}
	err := fmt.Errorf("look: %w", &client.OutageError{Waited: 30 * time.Second, Failures: []client.Failure{
		{Address: "http://a:8080", Err: errors.New("refused")}, {Address: "http://b:8080\x1b", Err: errors.New("silent")}}})
	if code := a.fail(err); code != exitUnreachable || !strings.HasPrefix(out.String(), "rc: unreachable: no controller answered within 30s\n  http://a:8080: refused\n  http://b:8080\\x1b: silent\nCheck ") {
		t.Errorf("exit code %d: %q", code, out.String())
	}
	if line := sentence(err); strings.Contains(line, "\n") || !strings.Contains(line, "(http://a:8080: refused; ") || !strings.Contains(line, "). Check ") {
		t.Errorf("%q", line)
	}
}
