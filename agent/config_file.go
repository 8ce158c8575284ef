package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// autoDevices stands among the devices for every GPU of the host.
const autoDevices = "auto"

// fileConfig is the file as it is written.
type fileConfig struct {
	Controllers        []string              `yaml:"controllers"`
	ControllerURL      any                   `yaml:"controller_url"`
	Token              string                `yaml:"token"`
	Host               string                `yaml:"host"`
	Devices            fileDevices           `yaml:"devices"`
	DataDir            string                `yaml:"data_dir"`
	RequireManualClear bool                  `yaml:"require_manual_clear"`
	SpoolBound         int64                 `yaml:"spool_bound"`
	KillGrace          time.Duration         `yaml:"kill_grace"`
	KeepJobs           int                   `yaml:"keep_jobs"`
	KeepBytes          int64                 `yaml:"keep_bytes"`
	SheetDir           string                `yaml:"sheet_dir"`
	ProbeDir           string                `yaml:"probe_dir"`
	ProbeInterval      time.Duration         `yaml:"probe_interval"`
	ProbeTimeout       time.Duration         `yaml:"probe_timeout"`
	VerifyDir          string                `yaml:"verify_dir"`
	VerifyTimeout      time.Duration         `yaml:"verify_timeout"`
	VerifyPassBudget   time.Duration         `yaml:"verify_pass_budget"`
	VerifyGPU          *bool                 `yaml:"verify_gpu"`
	Hooks              fileHooks             `yaml:"hooks"`
	XIDs               map[uint64]XIDMeaning `yaml:"xid"`

	HeartbeatInterval any `yaml:"heartbeat_interval"`
	PollWait          any `yaml:"poll_wait"`
}

// fileHooks are the defaults of all devices.
type fileHooks struct {
	Timeout       time.Duration `yaml:"timeout"`
	ReleaseLinger time.Duration `yaml:"release_linger"`
}

// fileDevices is a list, or the word auto.
type fileDevices []fileDevice

// UnmarshalYAML takes the bare word too.
func (d *fileDevices) UnmarshalYAML(unmarshal func(any) error) error {
	var word string
	if unmarshal(&word) == nil {
		*d = fileDevices{{Name: word}}
		return nil
	}
	return unmarshal((*[]fileDevice)(d))
}

// fileDevice is a name or an object.
type fileDevice struct {
	Name          string            `yaml:"name"`
	Kind          string            `yaml:"kind"`
	UUID          string            `yaml:"uuid"`
	PCI           string            `yaml:"pci"`
	MaxRuntime    time.Duration     `yaml:"max_runtime"`
	Labels        map[string]string `yaml:"labels"`
	OnAcquire     *string           `yaml:"on_acquire"`
	OnRelease     *string           `yaml:"on_release"`
	Timeout       time.Duration     `yaml:"timeout"`
	ReleaseLinger time.Duration     `yaml:"release_linger"`
}

// UnmarshalYAML takes the bare name too.
func (d *fileDevice) UnmarshalYAML(unmarshal func(any) error) error {
	if unmarshal(&d.Name) == nil {
		return nil
	}
	type object fileDevice
	return unmarshal((*object)(d))
}

// kindSimulated is a device that stands for none: nothing but a lock and a log.
const kindSimulated = "simulated"

func (f *fileConfig) config() (Config, error) {
	c := Config{
		Controllers: f.Controllers, Token: strings.TrimSpace(f.Token), Host: f.Host,
		RequireManualClear: f.RequireManualClear || manualClearAsked(), SpoolBound: f.SpoolBound,
		KillGrace: orDefault(f.KillGrace, defaultKillGrace), KeepJobs: orDefault(f.KeepJobs, defaultKeepJobs),
		KeepBytes: orDefault(f.KeepBytes, defaultKeepBytes),
		Probes:    Probes{Interval: orDefault(f.ProbeInterval, defaultProbeInterval), Timeout: orDefault(f.ProbeTimeout, defaultProbeTimeout)},
		Verify:    Verify{Timeout: orDefault(f.VerifyTimeout, defaultVerifyTimeout), Budget: orDefault(f.VerifyPassBudget, defaultVerifyBudget), NoGPU: f.VerifyGPU != nil && !*f.VerifyGPU},
		XIDs:      f.XIDs, Notices: f.notices(),
	}
	if err := f.check(); err != nil {
		return Config{}, err
	}
	for _, dir := range []struct {
		to                  *string
		key, set, otherwise string
	}{
		{&c.DataDir, "data_dir", f.DataDir, DefaultDataDir},
		{&c.SheetDir, "sheet_dir", f.SheetDir, DefaultSheetDir},
		{&c.Probes.Dir, "probe_dir", f.ProbeDir, DefaultProbeDir},
		{&c.Verify.Dir, "verify_dir", f.VerifyDir, DefaultVerifyDir},
	} {
		abs, err := filepath.Abs(cmp.Or(dir.set, dir.otherwise))
		if err != nil {
			return Config{}, fmt.Errorf("%s: %w", dir.key, err)
		}
		*dir.to = abs
	}
	if c.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			return Config{}, fmt.Errorf("host is not set and the hostname is not known: %w", err)
		}
		c.Host = name
	}
	for _, d := range f.Devices {
		if d.Name == autoDevices {
			c.Auto = true
			continue
		}
		c.Devices = append(c.Devices, d.device(f.Hooks))
	}
	return c, nil
}

func (d fileDevice) device(hooks fileHooks) Device {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return Device{
		Name: d.Name, MaxRuntime: max(0, d.MaxRuntime), Labels: d.Labels, Simulated: d.Kind == kindSimulated, Bind: cmp.Or(d.UUID, d.PCI),
		Hooks: Hooks{
			OnAcquire: text(d.OnAcquire), OnRelease: text(d.OnRelease),
			Timeout: orDefault(d.Timeout, orDefault(hooks.Timeout, defaultHookTimeout)),
			Linger:  orDefault(d.ReleaseLinger, orDefault(hooks.ReleaseLinger, defaultLinger)),
		},
	}
}

// orDefault takes zero and less for "not set", as the ancestor does.
func orDefault[T int | int64 | time.Duration](set, otherwise T) T {
	if set <= 0 {
		return otherwise
	}
	return set
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
	for number, meaning := range f.XIDs {
		if meaning != XIDDevice && meaning != XIDJob && meaning != XIDIgnore {
			return fmt.Errorf("xid %d: %q is not known; write %s, %s or %s", number, meaning, XIDDevice, XIDJob, XIDIgnore)
		}
	}
	if len(f.Devices) == 0 {
		return errors.New("no devices: list at least one under devices, or write devices: auto for every GPU of the host")
	}
	if len(f.Devices) > maxDevices {
		return fmt.Errorf("%d devices, at most %d on one host", len(f.Devices), maxDevices)
	}
	seen := map[string]bool{}
	for _, d := range f.Devices {
		if seen[d.Name] {
			return fmt.Errorf("device %q is listed twice", d.Name)
		}
		if err := d.check(); err != nil {
			return err
		}
		seen[d.Name] = true
	}
	return nil
}

func (d *fileDevice) check() error {
	blank := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	switch {
	case d.Name == "":
		return errors.New("a device without a name")
	case strings.ContainsAny(d.Name, ": \t\n/,"):
		return fmt.Errorf("device %q: a name has no colon, comma, slash or space", d.Name)
	case d.Kind != "" && d.Kind != kindSimulated:
		return fmt.Errorf("device %q: kind %q is not known; write %s or leave it out", d.Name, d.Kind, kindSimulated)
	case d.Kind == kindSimulated && d.UUID+d.PCI != "":
		return fmt.Errorf("device %q: a simulated device has no uuid and no pci", d.Name)
	case d.UUID != "" && d.PCI != "":
		return fmt.Errorf("device %q: uuid and pci both say which GPU it is; leave one out", d.Name)
	case d.MaxRuntime > 0 && d.MaxRuntime < time.Second:
		return fmt.Errorf("device %q: max_runtime %v is below 1s", d.Name, d.MaxRuntime)
	case blank(d.OnAcquire), blank(d.OnRelease):
		return fmt.Errorf("device %q: a hook is the path of an executable; leave the key out for none", d.Name)
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
	var out []string
	for _, k := range []struct {
		name  string
		value any
		why   string
	}{
		{"controller_url", f.ControllerURL, "is not used: controllers is"},
		{"heartbeat_interval", f.HeartbeatInterval, "is not used: the protocol sets the pace"},
		{"poll_wait", f.PollWait, "is not used: nothing polls"},
	} {
		if k.value != nil {
			out = append(out, k.name+" "+k.why)
		}
	}
	return out
}
