package dev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Process is one process of the cluster, as the JSON line names it: argv, env
// and cwd are all that is needed to start it again.
type Process struct {
	Role    string            `json:"role"` // controller | agent
	ID      string            `json:"id"`   // the Raft peer's, or the host
	PID     int               `json:"pid"`
	Listen  string            `json:"listen"`
	HTTP    string            `json:"http"`
	DataDir string            `json:"data_dir"`
	Argv    []string          `json:"argv"`
	Env     map[string]string `json:"env"` // complete
	Cwd     string            `json:"cwd"`

	cmd    *exec.Cmd
	exited chan struct{}
}

// start runs the process in a process group of its own, so that a Ctrl-C at
// the terminal reaches only rcd dev, which then ends the rest in order.
func (p *Process) start() error {
	log, err := os.OpenFile(filepath.Join(filepath.Dir(p.DataDir), p.ID+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.ID, err)
	}
	defer log.Close()
	p.cmd = exec.Command(p.Argv[0], p.Argv[1:]...)
	p.cmd.Dir = p.Cwd
	p.cmd.Stdout, p.cmd.Stderr = log, log
	for k, v := range p.Env {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.ID, err)
	}
	p.PID = p.cmd.Process.Pid
	p.exited = make(chan struct{})
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is in its log
	}()
	return nil
}
