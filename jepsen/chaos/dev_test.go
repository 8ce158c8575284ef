package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// devLine is what rcd dev -o json prints.
type devLine struct {
	Env       map[string]string `json:"env"`
	Processes []devProcess      `json:"processes"`
}

type devProcess struct {
	Role    string            `json:"role"`
	ID      string            `json:"id"`
	PID     int               `json:"pid"`
	Listen  string            `json:"listen"`
	HTTP    string            `json:"http"`
	DataDir string            `json:"data_dir"`
	Argv    []string          `json:"argv"`
	Env     map[string]string `json:"env"`
	Cwd     string            `json:"cwd"`
}

// devCluster is a running rcd dev.
type devCluster struct {
	t    *testing.T
	cmd  *exec.Cmd
	line devLine
}

func startDev(t *testing.T, data string, args ...string) *devCluster {
	t.Helper()
	cmd := exec.Command(bin.RCD, append([]string{"dev", "-o", "json", "--data", data}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &devCluster{t: t, cmd: cmd}
	t.Cleanup(func() { d.interrupt() })
	text, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("rcd dev printed no line: %v", err)
	}
	if err := json.Unmarshal(text, &d.line); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return d
}

// interrupt is Ctrl-C; it waits for the end.
func (d *devCluster) interrupt() {
	if d.cmd.ProcessState != nil {
		return
	}
	d.cmd.Process.Signal(syscall.SIGINT)
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("rcd dev after Ctrl-C: %v", err)
	}
}

func (d *devCluster) rc(args ...string) (string, error) {
	cmd := exec.Command(bin.RC, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.t.TempDir(), "USER=ann"}
	for k, v := range d.line.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// alive reports whether a pid is a running process, a zombie not counted.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestDevNamesEveryProcessAndRestartsNone(t *testing.T) {
	data := t.TempDir()
	d := startDev(t, data, "--devices", "3")
	if n := len(d.line.Processes); n != 4 {
		t.Fatalf("%d processes, want three controllers and an agent: %+v", n, d.line.Processes)
	}
	peers, err := d.rc("raft", "peers", "-o", "json")
	if err != nil {
		t.Fatalf("%v\n%s", err, peers)
	}
	var ids []Peer
	if err := json.Unmarshal([]byte(peers), &ids); err != nil || len(ids) != 3 {
		t.Fatalf("rc raft peers -o json: %v\n%s", err, peers)
	}
	known := map[string]bool{}
	for _, p := range ids {
		known[p.ID] = true
	}
	var victim devProcess
	for _, p := range d.line.Processes {
		if !alive(p.PID) || p.DataDir == "" || len(p.Argv) == 0 || len(p.Env) == 0 || p.Cwd == "" {
			t.Errorf("%s is not described in full: %+v", p.ID, p)
		}
		if p.Role == "controller" {
			if !known[p.ID] || p.Listen == "" || p.HTTP == "" {
				t.Errorf("%s is no raft peer, or has no address: %+v", p.ID, p)
			}
			victim = p
		}
	}
	syscall.Kill(victim.PID, syscall.SIGKILL)
	if out, err := d.rc("run", "--select", "vram>=40G", "--", "echo", "still here"); err != nil || !strings.Contains(out, "still here") {
		t.Errorf("a run without one controller: %v\n%s", err, out)
	}
	if alive(victim.PID) || !fileNames(victim.DataDir, victim.PID) {
		t.Errorf("%s was started again by itself", victim.ID)
	}

	// A test starts it again from what the line says; Ctrl-C ends that, too.
	again, ended := victim.restart(t)
	eventually(t, "the restarted controller", func() bool {
		out, err := d.rc("raft", "status", "--node", victim.ID)
		return err == nil && strings.Contains(out, "follower")
	})
	job := startSleeper(t, d)
	d.interrupt()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the restarted controller: %v", err)
		}
	case <-time.After(time.Minute):
		again.Process.Kill()
		t.Error("Ctrl-C left the restarted controller")
	}
	for _, p := range d.line.Processes {
		if alive(p.PID) {
			t.Errorf("Ctrl-C left %s (process %d)", p.ID, p.PID)
		}
	}
	if alive(job) {
		t.Errorf("Ctrl-C left the job's process %d", job)
	}
	if _, err := os.Stat(filepath.Join(data, "c1", "identity.json")); err != nil {
		t.Errorf("--data was not kept: %v", err)
	}

	// And the kept data is gone on from.
	d = startDev(t, data, "--devices", "3")
	out, err := d.rc("jobs")
	if err != nil || !strings.Contains(out, "still here") {
		t.Errorf("the history is gone: %v\n%s", err, out)
	}
}

// restart runs the process again as a test would, from what the line says.
func (p devProcess) restart(t *testing.T) (cmd *exec.Cmd, ended <-chan error) {
	t.Helper()
	cmd = exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir = p.Cwd
	for k, v := range p.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	return cmd, end
}

// fileNames reports whether the pid file still names the process that died,
// which nobody has replaced.
func fileNames(dir string, pid int) bool {
	text, err := os.ReadFile(filepath.Join(dir, "rcd.pid"))
	return err == nil && strings.HasPrefix(string(text), fmt.Sprint(pid)+" ")
}

// startSleeper runs a job that would sleep for long and returns its pid.
func startSleeper(t *testing.T, d *devCluster) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(bin.RC, "run", "-d", "dev:gpu0", "--", "sh", "-c", "echo $$ >"+path+"; exec sleep 600")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "USER=ann"}
	for k, v := range d.line.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var pid int
	eventually(t, "the sleeping job", func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(text), &pid)
		return err == nil
	})
	return pid
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 3000 {
		if holds() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no %s within a minute", what)
}
