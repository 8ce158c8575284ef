package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"rcd/internal/ident"
)

// plan is what must stay the same each time a kept cluster is started.
type plan struct {
	Controllers []planned `json:"controllers"`
	Devices     int       `json:"devices"`
	ClusterKey  string    `json:"cluster_key"`
	AdminToken  string    `json:"admin_token"`
	WorkerToken string    `json:"worker_token"`
}

type planned struct {
	ID     string `json:"id"`
	Listen string `json:"listen"`
	HTTP   string `json:"http"`
}

const (
	planFile = "dev.json"
	devHost  = "dev"
)

var (
	errControllers = errors.New("--controllers must be 1, 3 or 5")
	errDevices     = errors.New("--devices must be between 1 and 64")
	errOtherSize   = errors.New("this data directory holds a cluster of another size")
)

// loadPlan reads the plan of a kept cluster, or makes a new one and stores it.
func loadPlan(dir string, controllers, devices int) (plan, error) {
	if controllers != 1 && controllers != 3 && controllers != 5 {
		return plan{}, errControllers
	}
	if devices < 1 || devices > 64 {
		return plan{}, errDevices
	}
	path := filepath.Join(dir, planFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		p, err := newPlan(controllers, devices)
		if err != nil {
			return plan{}, err
		}
		return p, storePlan(path, p)
	}
	if err != nil {
		return plan{}, fmt.Errorf("read the cluster's plan: %w", err)
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return plan{}, fmt.Errorf("read the cluster's plan %s: %w; remove the directory to begin anew", path, err)
	}
	if len(p.Controllers) != controllers {
		return plan{}, fmt.Errorf("%w: it has %d controllers; use --controllers %d or another --data", errOtherSize, len(p.Controllers), len(p.Controllers))
	}
	if p.Devices != devices {
		p.Devices = devices
		return p, storePlan(path, p)
	}
	return p, nil
}

func newPlan(controllers, devices int) (plan, error) {
	addrs, err := freeAddrs(2 * controllers)
	if err != nil {
		return plan{}, err
	}
	p := plan{
		Devices:     devices,
		ClusterKey:  ident.New(),
		AdminToken:  "admin-" + ident.New(),
		WorkerToken: "worker-" + ident.New(),
	}
	for i := range controllers {
		p.Controllers = append(p.Controllers, planned{
			ID:     fmt.Sprintf("c%d", i+1),
			Listen: addrs[2*i],
			HTTP:   addrs[2*i+1],
		})
	}
	return p, nil
}

// freeAddrs finds loopback addresses that nothing listens on now. All are held
// open until the last is found, so that no two are the same.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

func storePlan(path string, p plan) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("store the cluster's plan: %w", err)
	}
	return nil
}

func (p plan) join() string {
	var pairs []string
	for _, c := range p.Controllers {
		pairs = append(pairs, c.ID+"="+c.Listen)
	}
	return strings.Join(pairs, ",")
}

// environment is what rc needs to talk to the cluster.
func (p plan) environment() map[string]string {
	var urls []string
	for _, c := range p.Controllers {
		urls = append(urls, "http://"+c.HTTP)
	}
	return map[string]string{
		"RC_CONTROLLER": strings.Join(urls, ","),
		"RC_TOKEN":      p.AdminToken,
	}
}

// agentConfig writes the agent's configuration and returns its path.
func (p plan) agentConfig(dir, dataDir string) (string, error) {
	var b strings.Builder
	b.WriteString("controllers:\n")
	for _, c := range p.Controllers {
		fmt.Fprintf(&b, "  - %s\n", c.Listen)
	}
	fmt.Fprintf(&b, "host: %s\ndata_dir: %q\ndevices:\n", devHost, dataDir)
	for i := range p.Devices {
		fmt.Fprintf(&b, "  - name: gpu%d\n    kind: simulated\n    labels: {vram: 80G, simulated: \"true\"}\n", i)
	}
	path := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return "", fmt.Errorf("write the agent's configuration: %w", err)
	}
	return path, nil
}
