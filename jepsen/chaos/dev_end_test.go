package chaos

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The pid file of a process comes some milliseconds after its start.
func TestCtrlCEndsAnAgentStartedAgainJustBefore(t *testing.T) {
	data := t.TempDir()
	for range 3 {
		d := startDev(t, data, "--controllers", "1")
		job := startSleeper(t, d)
		agent := d.line.Processes[len(d.line.Processes)-1]
		syscall.Kill(agent.PID, syscall.SIGKILL)
		eventually(t, "end of the agent", func() bool { return !alive(agent.PID) })
		again, ended := agent.restart(t)
		d.interrupt()
		select {
		case <-ended:
		case <-time.After(time.Second):
			again.Process.Kill()
			t.Fatalf("Ctrl-C left the agent that was started just before (process %d)", again.Process.Pid)
		}
		wantNothingLeft(t, d, job)
	}
}

// SIGHUP is what closing the terminal sends; to whom reads the output, too.
func TestClosingTheTerminalEndsEverything(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command(bin.RCD, "dev", "--controllers", "1", "--data", t.TempDir())
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	var said bytes.Buffer
	part := make([]byte, 4096)
	for !strings.Contains(said.String(), "then try") {
		n, err := read.Read(part)
		if err != nil {
			t.Fatalf("%v after %s", err, &said)
		}
		said.Write(part[:n])
	}
	children := childrenOf(t, cmd.Process.Pid)
	if len(children) != 2 {
		t.Fatalf("children %v, want a controller and an agent", children)
	}
	read.Close() // the reader goes first: a write must not end rcd dev either
	cmd.Process.Signal(syscall.SIGHUP)
	if err := cmd.Wait(); err != nil {
		t.Errorf("rcd dev after SIGHUP: %v", err)
	}
	for _, pid := range children {
		if alive(pid) {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("SIGHUP left process %d", pid)
		}
	}
}

// Whoever loses the race for a directory must not end what the winner starts.
func TestOfTwoDevsAtOnceOneKeepsTheCluster(t *testing.T) {
	for range 5 {
		data := t.TempDir()
		type outcome struct {
			stderr string
			err    error
		}
		ended := make(chan outcome, 2)
		var both [2]*exec.Cmd
		for i := range both {
			cmd := exec.Command(bin.RCD, "dev", "-o", "json", "--controllers", "1", "--data", data)
			var stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = io.Discard, &stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			both[i] = cmd
			t.Cleanup(func() { cmd.Process.Signal(syscall.SIGINT) }) // if the test ends early
			go func() { err := cmd.Wait(); ended <- outcome{stderr.String(), err} }()
		}
		loser := <-ended
		if loser.err == nil || !strings.Contains(loser.stderr, "another rcd dev") {
			t.Errorf("the loser: %v\n%s", loser.err, loser.stderr)
		}
		eventually(t, "agent of the winner", func() bool {
			_, err := os.Stat(filepath.Join(data, "agent", "rcd.pid"))
			return err == nil
		})
		for _, cmd := range both {
			cmd.Process.Signal(syscall.SIGINT) // to the ended one it does nothing
		}
		if winner := <-ended; winner.err != nil {
			t.Errorf("the winner: %v\n%s", winner.err, winner.stderr)
		}
	}
}

func wantNothingLeft(t *testing.T, d *devCluster, pids ...int) {
	t.Helper()
	for _, p := range d.line.Processes {
		pids = append(pids, p.PID)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

// childrenOf lists the processes that pid has started.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone
		}
		var child, parent int
		var state string
		_, rest, _ := strings.Cut(string(stat), ") ")
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil || parent != pid {
			continue
		}
		if _, err := fmt.Sscan(string(stat), &child); err == nil {
			children = append(children, child)
		}
	}
	return children
}
