package agent

import (
	"errors"
	"fmt"
	"os"
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
	// What follows is as the ancestor has it, so that a host's scripts work on.
	DefaultProbeDir      = "/etc/rc/probe.d"
	DefaultVerifyDir     = "/etc/rc/verify.d"
	defaultProbeInterval = 5 * time.Minute
	defaultProbeTimeout  = 5 * time.Second
	defaultVerifyTimeout = 30 * time.Second
	defaultVerifyBudget  = 2 * time.Minute
	defaultHookTimeout   = time.Minute
	defaultLinger        = 30 * time.Second
	// maxDevices bounds the devices of one host, as the lease table does.
	maxDevices = 256
)

// Config is a host's configuration with every default filled in.
type Config struct {
	Controllers []string // HOST:PORT of their --listen
	Token       string   // "" : Run takes $RC_TOKEN
	Host        string
	// Auto: every GPU that the host has is a device, beside those in Devices.
	Auto    bool
	Devices []Device
	DataDir string
	// RequireManualClear: no device of this host returns to the pool by itself.
	RequireManualClear bool
	SpoolBound         int64 // bytes of output kept of one job; 0: the spool's default
	KillGrace          time.Duration
	Probes             Probes
	Verify             Verify
	// XIDs says of NVIDIA error numbers what they mean on this site, over the
	// table in agent/probe.
	XIDs map[uint64]XIDMeaning
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
	Simulated  bool
	// Bind is the UUID or PCI address of the GPU that the device is; "" : found
	// by the name's trailing integer the first time, and kept from then on.
	Bind  string
	Hooks Hooks
}

// Hooks are the scripts of one device; "" for none.
type Hooks struct {
	OnAcquire, OnRelease string
	Timeout              time.Duration // of one run
	Linger               time.Duration // from the last job to OnRelease
}

// Probes says where executables are that detect labels. Dir "" : none are run.
type Probes struct {
	Dir      string
	Interval time.Duration // from the end of a pass to the next
	Timeout  time.Duration // of one executable
}

// Verify says where executables are that look at a device after each job. Dir
// "" : none are run.
type Verify struct {
	Dir     string
	Timeout time.Duration // of one executable
	Budget  time.Duration // of all of one pass
	// NoGPU: what is left on a device's GPU is not looked at.
	NoGPU bool
}

// XIDMeaning says what an NVIDIA error number is evidence of.
type XIDMeaning string

// The meanings, as they are written in the configuration.
const (
	XIDDevice XIDMeaning = "device" // the GPU must be looked at
	XIDJob    XIDMeaning = "job"    // the job's own doing
	XIDIgnore XIDMeaning = "ignore" // neither
)

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
