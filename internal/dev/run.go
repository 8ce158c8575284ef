package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// Config is what rcd dev was asked for.
type Config struct {
	Binary      string // path of rcd
	Controllers int
	Devices     int
	DataDir     string // "" makes a temporary one
	JSON        bool   // one line when ready; the data is always kept
	Stdout      io.Writer
	Stderr      io.Writer
}

// readyLimit bounds the start, from that of the last process.
const readyLimit = 60 * time.Second

var errRunning = errors.New("this data directory is in use")

// Run starts the cluster, announces it, and returns nil when ctx has ended and
// everything that served the data directory is gone.
func Run(ctx context.Context, config Config) (err error) {
	dir, temporary := config.DataDir, false
	if dir == "" {
		dir, err = os.MkdirTemp("", "rcd-dev-")
		temporary = true
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	p, err := loadPlan(dir, config.Controllers, config.Devices)
	if err != nil {
		return err
	}
	processes, err := p.processes(config.Binary, dir)
	if err != nil {
		return err
	}
	for _, process := range processes {
		if id, ok := proc.ReadPIDFile(filepath.Join(process.DataDir, proc.PIDFile)); ok {
			return fmt.Errorf("%w: process %d serves %s; end it first", errRunning, id.PID, process.DataDir)
		}
	}
	defer func() {
		stopErr := stopAll(processes)
		if temporary && !config.JSON && stopErr == nil {
			stopErr = os.RemoveAll(dir)
		}
		err = errors.Join(err, stopErr)
	}()
	for _, process := range processes {
		if err := process.start(); err != nil {
			return err
		}
	}
	fmt.Fprintf(config.Stderr, "rcd dev: starting %d controllers and an agent with %d devices in %s\n", config.Controllers, config.Devices, dir)
	if err := waitReady(ctx, p, processes); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("%w; the logs are in %s", err, dir)
	}
	if err := announce(config, p, processes); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Fprintln(config.Stderr, "rcd dev: ending jobs and processes")
	return nil
}

// lock takes the data directory for this rcd dev: the loser of two must not end
// what the winner has started. The kernel gives it back with the process.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("%w: another rcd dev keeps a cluster in %s", errRunning, dir)
	}
	return func() { file.Close() }, nil
}

// processes lists the controllers and then the agent, not started yet.
func (p plan) processes(binary, dir string) ([]*Process, error) {
	base := map[string]string{}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR", "RCD_LOG_LEVEL"} {
		if v, ok := os.LookupEnv(name); ok {
			base[name] = v
		}
	}
	var all []*Process
	for _, c := range p.Controllers {
		data := filepath.Join(dir, c.ID)
		env := maps.Clone(base)
		env["RC_TOKENS"] = p.AdminToken + ":admin," + p.WorkerToken + ":worker"
		env["RCD_CLUSTER_KEY"] = p.ClusterKey
		all = append(all, &Process{
			Role: "controller", ID: c.ID, Listen: c.Listen, HTTP: c.HTTP, DataDir: data, Env: env, Cwd: dir,
			Argv: []string{binary, "serve", "--data", data, "--id", c.ID, "--listen", c.Listen, "--http", c.HTTP,
				"--bootstrap-expect", fmt.Sprint(len(p.Controllers)), "--join", p.join()},
		})
	}
	data := filepath.Join(dir, "agent")
	path, err := p.agentConfig(dir, data)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(base)
	env["RC_TOKEN"] = p.WorkerToken
	all = append(all, &Process{
		Role: "agent", ID: devHost, DataDir: data, Env: env, Cwd: dir,
		Argv: []string{binary, "agent", "--config", path},
	})
	for _, process := range all {
		if err := os.MkdirAll(process.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("make a data directory: %w", err)
		}
	}
	return all, nil
}

// waitReady returns when every device is ready, by the word of any controller.
// It gives up early when a process that it started has ended by itself.
func waitReady(ctx context.Context, p plan, processes []*Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	client := &http.Client{Timeout: 2 * time.Second}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		for _, process := range processes {
			select {
			case <-process.exited:
				return fmt.Errorf("%s ended before the cluster was ready", process.ID)
			default:
			}
		}
		if last = devicesReady(ctx, client, p); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster was not ready in time: %w", last)
		case <-tick.C:
		}
	}
}

func devicesReady(ctx context.Context, client *http.Client, p plan) error {
	ready := 0
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Controllers[0].HTTP+"/v1/devices", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+p.AdminToken)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /v1/devices: %s", response.Status)
	}
	var views []struct {
		Device struct {
			State string `json:"state"`
		} `json:"device"`
	}
	if err := json.NewDecoder(response.Body).Decode(&views); err != nil {
		return err
	}
	for _, v := range views {
		// A kept cluster may come back with a busy or a quarantined device:
		// what counts is that its agent is in contact.
		if v.Device.State != "unknown" {
			ready++
		}
	}
	if ready < p.Devices {
		return fmt.Errorf("%d of %d devices are there", ready, p.Devices)
	}
	return nil
}

func announce(config Config, p plan, processes []*Process) error {
	env := p.environment()
	if config.JSON {
		line, err := json.Marshal(struct {
			Env       map[string]string `json:"env"`
			Processes []*Process        `json:"processes"`
		}{env, processes})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(config.Stdout, "%s\n", line)
		return err
	}
	for _, process := range processes {
		fmt.Fprintf(config.Stderr, "  %-10s %-4s pid %-8d %s\n", process.Role, process.ID, process.PID, process.HTTP)
	}
	fmt.Fprintln(config.Stderr, "rcd dev: ready; Ctrl-C ends it. In another terminal:")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if _, err := fmt.Fprintf(config.Stdout, "export %s=%s\n", name, env[name]); err != nil {
			return err
		}
	}
	fmt.Fprintf(config.Stderr, "rcd dev: then try: rc run -d %s:gpu0 -- echo hello\n", devHost)
	return nil
}
