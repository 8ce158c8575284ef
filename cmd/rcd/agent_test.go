package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is more than any machine needs.
const patience = 60 * time.Second

// supervised is a rcd in a process of its own, and the socket on which it says
// how it does.
type supervised struct {
	t    *testing.T
	cmd  *exec.Cmd
	conn *net.UnixConn

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

func (s *supervised) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *supervised) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// supervise starts the test binary as rcd, through a program of its own if
// under names one. Everything ends with the test.
func supervise(t *testing.T, under string, env []string, args ...string) *supervised {
	t.Helper()
	dir := t.TempDir()
	socket, rcd := filepath.Join(dir, "notify"), filepath.Join(dir, "rcd")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, rcd); err != nil { // the name counts: see TestMain
		t.Fatal(err)
	}
	argv := append([]string{rcd}, args...)
	if under != "" {
		argv = append([]string{under}, argv...)
	}
	s := &supervised{t: t, conn: conn, cmd: exec.Command(argv[0], argv[1:]...)}
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=600000"}, env...)
	s.cmd.Stdout, s.cmd.Stderr = s, s
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
		conn.Close()
		if t.Failed() {
			t.Log(s.text())
		}
	})
	return s
}

// logs waits for a line with text.
func (s *supervised) logs(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(s.text(), text); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("never logged: %s", text)
		}
	}
}

// hears waits for a notification with text, and returns it.
func (s *supervised) hears(text string) string {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			s.t.Fatalf("never said: %s (%v)", text, err)
		}
		if got := string(buf[:n]); strings.Contains(got, text) {
			return got
		}
	}
}

// ends waits for the end after a signal.
func (s *supervised) ends(sig syscall.Signal) error {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	s.hears("STOPPING=1")
	return s.cmd.Wait()
}

func writeConfig(t *testing.T, path, format string, args ...any) {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
}

const exampleConfig = "controllers: [127.0.0.1:1]\nhost: %s\ndata_dir: %q\ntoken: %s\ndevices: [gpu0]\nkill_grace: %s\n"

func TestAnAgentTellsItsSupervisorAndReloadsOnHangup(t *testing.T) {
	dir := t.TempDir()
	path, data := filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "data")
	writeConfig(t, path, exampleConfig, "box", data, "s3cret", "10s")
	s := supervise(t, "", nil, "agent", "--config", path)
	s.hears("READY=1")
	if got := s.hears("STATUS="); got != "STATUS=0 jobs on 0 of 1 devices\nWATCHDOG=1" {
		t.Errorf("status %q", got)
	}
	for range 3 { // the watchdog is fed on its own
		s.hears("WATCHDOG=1")
	}
	reload := func() {
		t.Helper()
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if got := s.hears("RELOADING=1"); !strings.Contains(got, "MONOTONIC_USEC=") {
			t.Errorf("said %q", got)
		}
		s.hears("READY=1")
	}
	writeConfig(t, path, exampleConfig, "other", data, "n3w", "20s")
	reload()
	s.logs("key=kill_grace from=10s to=20s")
	s.logs("key=host from=box to=other")
	s.logs("key=token")
	writeConfig(t, path, "controllers: [127.0.0.1:1]\nkill_grase: 20s\ndevices: [gpu0]\n")
	reload()
	s.logs("configuration not taken; the one before stays in force")
	s.logs(path + ":2: ")
	if strings.Contains(s.text(), "n3w") || strings.Contains(s.text(), "s3cret") {
		t.Error("the log has a token")
	}
	if err := s.ends(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestHangupReloadsAnAgentAlsoUnderNohup(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.yaml")
	writeConfig(t, path, exampleConfig, "nohup", filepath.Join(dir, "data"), "s3cret", "10s")
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip("nohup is not installed: install coreutils to see that an agent under it reloads")
	}
	s := supervise(t, nohup, nil, "agent", "--config", path)
	s.hears("READY=1")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.hears("RELOADING=1")
	s.hears("READY=1")
	if err := s.ends(syscall.SIGINT); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
}

func TestAControllerTellsItsSupervisor(t *testing.T) {
	dir := t.TempDir()
	s := supervise(t, "", []string{"RC_TOKENS=a:admin,w:worker", "RCD_CLUSTER_KEY=a-key-of-good-length-0123"},
		"serve", "--data", filepath.Join(dir, "c1"), "--id", "c1", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--bootstrap-expect", "1")
	s.hears("READY=1")
	if err := s.ends(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}
