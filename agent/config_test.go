package agent

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadConfig(path)
}

func TestConfigTakesTheKeysOfTheSpec(t *testing.T) {
	t.Setenv("RC_REQUIRE_MANUAL_CLEAR", "")
	c, err := load(t, `
controllers: [10.0.0.1:7401, c2.example:7401]
token: " secret "
host: box
data_dir: /srv/rc
devices:
  - gpu0
  - name: gpu1
    max_runtime: 1h
    labels: {vram: 80G, ecc: true, slot: 3}
    kind: simulated
    on_acquire: /bin/true
    release_linger: 1s
  - {name: gpu2, uuid: GPU-1}
  - auto
require_manual_clear: true
spool_bound: 1048576
kill_grace: 3s
heartbeat_interval: 10s
poll_wait: 30s
hooks: {timeout: 5s}
probe_dir: /srv/probe.d
probe_interval: 1m
verify_timeout: 1s
verify_gpu: false
xid: {31: device}
sheet_dir: /srv/sheets
`)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Controllers: []string{"10.0.0.1:7401", "c2.example:7401"}, Token: "secret", Host: "box", DataDir: "/srv/rc",
		Devices: []Device{
			{Name: "gpu0", Hooks: Hooks{Timeout: 5 * time.Second, Linger: 30 * time.Second}},
			{Name: "gpu1", MaxRuntime: time.Hour, Labels: map[string]string{"vram": "80G", "ecc": "true", "slot": "3"}, Simulated: true,
				Hooks: Hooks{OnAcquire: "/bin/true", Timeout: 5 * time.Second, Linger: time.Second}},
			{Name: "gpu2", Bind: "GPU-1", Hooks: Hooks{Timeout: 5 * time.Second, Linger: 30 * time.Second}},
		},
		Auto:               true,
		Probes:             Probes{Dir: "/srv/probe.d", Interval: time.Minute, Timeout: 5 * time.Second},
		Verify:             Verify{Dir: DefaultVerifyDir, Timeout: time.Second, Budget: 2 * time.Minute, NoGPU: true},
		XIDs:               map[uint64]XIDMeaning{31: XIDDevice},
		RequireManualClear: true, SpoolBound: 1 << 20, KillGrace: 3 * time.Second, KeepJobs: defaultKeepJobs, KeepBytes: defaultKeepBytes,
		SheetDir: "/srv/sheets",
		Notices:  c.Notices,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	for _, key := range []string{"heartbeat_interval", "poll_wait"} {
		if !slices.ContainsFunc(c.Notices, func(n string) bool { return strings.Contains(n, key) }) {
			t.Errorf("no notice about %s in %q", key, c.Notices)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	t.Setenv("RC_REQUIRE_MANUAL_CLEAR", "maybe")
	c, err := load(t, "controllers: [a:1]\ndevices: [gpu0]\nkill_grace: 0s\n")
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	if c.Host != host || c.DataDir != DefaultDataDir || c.SheetDir != DefaultSheetDir || c.KillGrace != 10*time.Second || !c.RequireManualClear || c.Token != "" || len(c.Notices) != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestConfigMistakesAreNamed(t *testing.T) {
	const rest = "controllers: [a:1]\ndevices: [gpu0]\n"
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key with its line", rest + "devcies: []\n", ":3: "},
		{"unknown key of a device with its line", "controllers: [a:1]\ndevices:\n  - name: gpu0\n    lables: {}\n", ":4: "},
		{"one URL is not enough", "controller_url: http://a\ndevices: [gpu0]\n", "controllers: [HOST:PORT"},
		{"no controllers", "devices: [gpu0]\n", "controllers: [HOST:PORT"},
		{"no port", "controllers: [a]\ndevices: [gpu0]\n", `"a" is not HOST:PORT`},
		{"no devices", "controllers: [a:1]\n", "no devices"},
		{"a device twice", "controllers: [a:1]\ndevices: [gpu0, gpu0]\n", "listed twice"},
		{"a device without a name", "controllers: [a:1]\ndevices: [{max_runtime: 1h}]\n", "without a name"},
		{"a colon in a name", "controllers: [a:1]\ndevices: [\"a:b\"]\n", "no colon"},
		{"a ceiling below a second", "controllers: [a:1]\ndevices: [{name: a, max_runtime: 10ms}]\n", "below 1s"},
		{"a duration that is none", "controllers: [a:1]\ndevices: [{name: a, max_runtime: soon}]\n", "soon"},
		{"an unknown kind", "controllers: [a:1]\ndevices: [{name: a, kind: fpga}]\n", "simulated"},
		{"a blank hook", "controllers: [a:1]\ndevices: [{name: a, on_release: \" \"}]\n", "path of an executable"},
		{"a GPU named twice over", "controllers: [a:1]\ndevices: [{name: a, uuid: GPU-1, pci: \"0:1:0\"}]\n", "leave one out"},
		{"an unknown meaning of an XID", rest + "xid: {31: shrug}\n", "write device, job or ignore"},
		{"a host with a colon", rest + "host: a:b\n", "no colon"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text)
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}
