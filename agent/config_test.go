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
require_manual_clear: true
spool_bound: 1048576
kill_grace: 3s
heartbeat_interval: 10s
poll_wait: 30s
hooks: {timeout: 5s}
sheet_dir: /srv/sheets
`)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Controllers: []string{"10.0.0.1:7401", "c2.example:7401"}, Token: "secret", Host: "box", DataDir: "/srv/rc",
		Devices:            []Device{{Name: "gpu0"}, {Name: "gpu1", MaxRuntime: time.Hour, Labels: map[string]string{"vram": "80G", "ecc": "true", "slot": "3"}}},
		RequireManualClear: true, SpoolBound: 1 << 20, KillGrace: 3 * time.Second, KeepJobs: defaultKeepJobs, KeepBytes: defaultKeepBytes,
		SheetDir: "/srv/sheets",
		Notices:  c.Notices,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	for _, key := range []string{"heartbeat_interval", "poll_wait", "hooks", "device gpu1"} {
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
