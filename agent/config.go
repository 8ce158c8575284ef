package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcd/internal/yamlconf"
)

// What can be wrong with a configuration. The text says what to write instead.
var (
	ErrConfig  = errors.New("agent configuration refused")
	ErrNoToken = errors.New("no worker token")
)

// Defaults of the configuration.
const (
	DefaultDataDir   = "/var/lib/rc-agent"
	defaultKillGrace = 10 * time.Second
	defaultKeepJobs  = 1000
	defaultKeepBytes = 10 << 30
	// maxDevices bounds the devices of one host, as the lease table does.
	maxDevices = 256
)

// Config is a host's configuration with every default filled in.
type Config struct {
	Controllers []string // HOST:PORT of their --listen
	Token       string   // "" : Run takes $RC_TOKEN
	Host        string
	Devices     []Device
	DataDir     string
	// RequireManualClear: no device of this host returns to the pool by itself.
	RequireManualClear bool
	SpoolBound         int64 // bytes of output kept of one job; 0: the spool's default
	KillGrace          time.Duration
	// SheetDir is where usage sheets are; "" : none are looked for.
	SheetDir string
	// KeepJobs and KeepBytes bound what is kept of jobs whose outcome is acked.
	KeepJobs  int
	KeepBytes int64
	// Notices are keys that were understood and are not acted on.
	Notices []string
}

// Device is one device of the host.
type Device struct {
	Name       string
	MaxRuntime time.Duration // 0: no ceiling
	Labels     map[string]string
}

// fileConfig is the file as it is written. Keys of spec/agent.md that this
// version does not act on are taken, and named in a notice.
type fileConfig struct {
	Controllers        []string      `yaml:"controllers"`
	ControllerURL      any           `yaml:"controller_url"`
	Token              string        `yaml:"token"`
	Host               string        `yaml:"host"`
	Devices            []fileDevice  `yaml:"devices"`
	DataDir            string        `yaml:"data_dir"`
	RequireManualClear bool          `yaml:"require_manual_clear"`
	SpoolBound         int64         `yaml:"spool_bound"`
	KillGrace          time.Duration `yaml:"kill_grace"`
	KeepJobs           int           `yaml:"keep_jobs"`
	KeepBytes          int64         `yaml:"keep_bytes"`
	SheetDir           string        `yaml:"sheet_dir"`

	Hooks             any `yaml:"hooks"`
	HeartbeatInterval any `yaml:"heartbeat_interval"`
	PollWait          any `yaml:"poll_wait"`
	ProbeDir          any `yaml:"probe_dir"`
	ProbeInterval     any `yaml:"probe_interval"`
	ProbeTimeout      any `yaml:"probe_timeout"`
	VerifyDir         any `yaml:"verify_dir"`
	VerifyTimeout     any `yaml:"verify_timeout"`
	VerifyPassBudget  any `yaml:"verify_pass_budget"`
}

// fileDevice is a name or an object.
type fileDevice struct {
	Name          string            `yaml:"name"`
	Kind          string            `yaml:"kind"`
	MaxRuntime    time.Duration     `yaml:"max_runtime"`
	Labels        map[string]string `yaml:"labels"`
	OnAcquire     any               `yaml:"on_acquire"`
	OnRelease     any               `yaml:"on_release"`
	Timeout       any               `yaml:"timeout"`
	ReleaseLinger any               `yaml:"release_linger"`
}

// UnmarshalYAML takes the bare name too.
func (d *fileDevice) UnmarshalYAML(unmarshal func(any) error) error {
	if unmarshal(&d.Name) == nil {
		return nil
	}
	type object fileDevice
	return unmarshal((*object)(d))
}

// LoadConfig reads the configuration at path. Errors name the line where the
// parser knows it and wrap ErrConfig where the content is at fault. The token
// may be missing: Run looks for it.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read agent configuration: %w", err)
	}
	var file fileConfig
	if err := yamlconf.Decode(path, data, &file); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	config, err := file.config()
	if err != nil {
		return Config{}, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	return config, nil
}

func (f *fileConfig) config() (Config, error) {
	c := Config{
		Controllers: f.Controllers, Token: strings.TrimSpace(f.Token), Host: f.Host, DataDir: f.DataDir,
		RequireManualClear: f.RequireManualClear || manualClearAsked(), SpoolBound: f.SpoolBound,
		KillGrace: f.KillGrace, KeepJobs: f.KeepJobs, KeepBytes: f.KeepBytes, Notices: f.notices(),
	}
	if err := f.check(); err != nil {
		return Config{}, err
	}
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	abs, err := filepath.Abs(c.DataDir)
	if err != nil {
		return Config{}, fmt.Errorf("data_dir: %w", err)
	}
	c.DataDir = abs
	if c.SheetDir = f.SheetDir; c.SheetDir == "" {
		c.SheetDir = DefaultSheetDir
	}
	if c.SheetDir, err = filepath.Abs(c.SheetDir); err != nil {
		return Config{}, fmt.Errorf("sheet_dir: %w", err)
	}
	if c.KillGrace <= 0 {
		c.KillGrace = defaultKillGrace
	}
	if c.KeepJobs <= 0 {
		c.KeepJobs = defaultKeepJobs
	}
	if c.KeepBytes <= 0 {
		c.KeepBytes = defaultKeepBytes
	}
	if c.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			return Config{}, fmt.Errorf("host is not set and the hostname is not known: %w", err)
		}
		c.Host = name
	}
	for _, d := range f.Devices {
		c.Devices = append(c.Devices, Device{Name: d.Name, MaxRuntime: max(0, d.MaxRuntime), Labels: d.Labels})
	}
	return c, nil
}

func (f *fileConfig) check() error {
	if len(f.Controllers) == 0 {
		if f.ControllerURL != nil {
			return errors.New("controller_url alone is not enough: this agent speaks to the controllers' --listen ports; write controllers: [HOST:PORT, …]")
		}
		return errors.New("no controllers: write controllers: [HOST:PORT, …] with their --listen addresses")
	}
	for _, addr := range f.Controllers {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return fmt.Errorf("controller %q is not HOST:PORT", addr)
		}
	}
	if strings.ContainsAny(f.Host, ": \t\n/") {
		return fmt.Errorf("host %q: a host has no colon, slash or space", f.Host)
	}
	if len(f.Devices) == 0 {
		return errors.New("no devices: list at least one under devices")
	}
	if len(f.Devices) > maxDevices {
		return fmt.Errorf("%d devices, at most %d on one host", len(f.Devices), maxDevices)
	}
	seen := map[string]bool{}
	for _, d := range f.Devices {
		switch {
		case d.Name == "":
			return errors.New("a device without a name")
		case strings.ContainsAny(d.Name, ": \t\n/,"):
			return fmt.Errorf("device %q: a name has no colon, comma, slash or space", d.Name)
		case seen[d.Name]:
			return fmt.Errorf("device %q is listed twice", d.Name)
		case d.Kind != "" && d.Kind != "simulated":
			return fmt.Errorf("device %q: kind %q is not known; write simulated or leave it out", d.Name, d.Kind)
		case d.MaxRuntime > 0 && d.MaxRuntime < time.Second:
			return fmt.Errorf("device %q: max_runtime %v is below 1s", d.Name, d.MaxRuntime)
		}
		seen[d.Name] = true
	}
	return nil
}

// manualClearAsked reads the environment as the ancestor does: text that is no
// boolean counts as yes, because it was meant to say something.
func manualClearAsked() bool {
	switch strings.ToLower(strings.TrimSpace(os.Getenv("RC_REQUIRE_MANUAL_CLEAR"))) {
	case "", "0", "f", "false", "n", "no", "off":
		return false
	}
	return true
}

// notices names what the file sets and nobody acts on.
func (f *fileConfig) notices() []string {
	keys := []struct {
		name  string
		value any
		why   string
	}{
		{"controller_url", f.ControllerURL, "is not used: controllers is"},
		{"heartbeat_interval", f.HeartbeatInterval, "is not used: the protocol sets the pace"},
		{"poll_wait", f.PollWait, "is not used: nothing polls"},
		{"hooks", f.Hooks, notYet},
		{"probe_dir", f.ProbeDir, notYet},
		{"probe_interval", f.ProbeInterval, notYet},
		{"probe_timeout", f.ProbeTimeout, notYet},
		{"verify_dir", f.VerifyDir, notYet},
		{"verify_timeout", f.VerifyTimeout, notYet},
		{"verify_pass_budget", f.VerifyPassBudget, notYet},
	}
	var out []string
	for _, k := range keys {
		if k.value != nil {
			out = append(out, k.name+" "+k.why)
		}
	}
	for _, d := range f.Devices {
		if slices.ContainsFunc([]any{d.OnAcquire, d.OnRelease, d.Timeout, d.ReleaseLinger}, func(v any) bool { return v != nil }) {
			out = append(out, "hooks of device "+d.Name+" "+notYet)
		}
	}
	return out
}

const notYet = "is not acted on by this version"
