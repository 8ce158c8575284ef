package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// unreported are the fields that no change is told of, and why.
var unreported = map[string]string{
	"Config.Notices": "are logged by themselves",
	"Device.Name":    "is another device then",
}

// fieldsOf calls f with every field of a configuration, and with one that is
// not as in base.
func fieldsOf(base Config, f func(name string, other Config)) {
	visit := func(name string, pick func(*Config) reflect.Value) {
		for i := range pick(&base).NumField() {
			other := base
			other.Devices = []Device{base.Devices[0], base.Devices[1]}
			v := pick(&other)
			field := name + "." + v.Type().Field(i).Name
			switch v := v.Field(i); v.Kind() {
			case reflect.String:
				v.SetString(v.String() + "x")
			case reflect.Bool:
				v.SetBool(!v.Bool())
			case reflect.Int, reflect.Int64:
				v.SetInt(v.Int() + int64(time.Second))
			case reflect.Map:
				m := reflect.MakeMap(v.Type())
				m.SetMapIndex(reflect.ValueOf(7).Convert(v.Type().Key()), reflect.New(v.Type().Elem()).Elem())
				v.Set(m)
			case reflect.Slice:
				v.Set(v.Slice(0, v.Len()-1))
			case reflect.Struct:
				continue // visited by itself
			default:
				panic(field + " is of a kind that this test does not know")
			}
			f(field, other)
		}
	}
	visit("Config", func(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() })
	visit("Probes", func(c *Config) reflect.Value { return reflect.ValueOf(&c.Probes).Elem() })
	visit("Verify", func(c *Config) reflect.Value { return reflect.ValueOf(&c.Verify).Elem() })
	visit("Device", func(c *Config) reflect.Value { return reflect.ValueOf(&c.Devices[1]).Elem() })
	visit("Hooks", func(c *Config) reflect.Value { return reflect.ValueOf(&c.Devices[1].Hooks).Elem() })
}

func TestEveryKeyIsReportedAndTheOnesSaidToBeInForceAre(t *testing.T) {
	base := Config{Controllers: []string{"a:1", "b:1"}, Devices: []Device{{Name: "gpu0"}, {Name: "gpu1"}}, Notices: []string{"n"}}
	if all := changes(base, base); len(all) != 0 {
		t.Errorf("no change: %v", all)
	}
	seen := 0
	fieldsOf(base, func(name string, other Config) {
		seen++
		all := changes(base, other)
		if (len(all) > 0) == (unreported[name] != "") && name != "Device.Name" {
			t.Errorf("%s: %d changes; tell of it in changes, or say in unreported why not", name, len(all))
		}
		for _, left := range changes(withLive(base, other), other) {
			if !left.restart {
				t.Errorf("%s: %s is said to be in force and is not", name, left.key)
			}
		}
		applied := 0
		for _, c := range all {
			if !c.restart {
				applied++
			}
		}
		if got := changes(base, withLive(base, other)); len(got) != applied {
			t.Errorf("%s: %v in force, %d said", name, got, applied)
		}
	})
	if seen < 25 {
		t.Errorf("only %d fields", seen)
	}
}

// TestWhatAReloadChangesIsReadThroughSettings keeps a value that is said to be
// in force from being taken once and kept.
func TestWhatAReloadChangesIsReadThroughSettings(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	old := regexp.MustCompile(`\bconfig\.(SpoolBound|KillGrace|KeepJobs|KeepBytes|Probes|Verify|XIDs)\b`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "config") || file == "reload.go" {
			continue
		}
		if found := old.FindString(read(t, file)); found != "" {
			t.Errorf("%s reads %s: read it through settings() each time, or have changes() say that it needs a restart", file, found)
		}
	}
}

// reloadable is a running agent, its log and the way to reload it.
type reloadable struct {
	t      *testing.T
	mu     sync.Mutex // guards lines
	lines  bytes.Buffer
	reload chan Reload
}

func (r *reloadable) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(p)
}

// log returns what was logged since the last call.
func (r *reloadable) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.lines.Reset()
	return r.lines.String()
}

// take reloads and returns what was logged.
func (r *reloadable) take(config Config) string {
	r.t.Helper()
	r.log()
	done := make(chan struct{})
	r.reload <- Reload{Config: config, Done: func() { close(done) }}
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		r.t.Fatal("the reload was not taken")
	}
	return r.log()
}

func TestAReloadSaysWhatIsInForceAndWhatNeedsARestart(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.KillGrace = 10 * time.Minute
	r := &reloadable{t: t, reload: make(chan Reload)}
	startAgentWith(t, config, func(d *Deps) {
		d.Logger, d.Reload = slog.New(slog.NewTextHandler(r, nil)), r.reload
	})

	next := config
	next.KillGrace, next.Token, next.Host = 50*time.Millisecond, "another-secret", "other"
	said := r.take(next)
	for _, want := range []string{
		`level=INFO msg="configuration changed and in force" key=kill_grace from=10m0s to=50ms`,
		`level=WARN msg="configuration changed; restart the agent for this key (its jobs go on)" key=host from=box to=other`,
		`level=WARN msg="configuration changed; restart the agent for this key (its jobs go on)" key=token` + "\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the log lacks %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "another-secret") || strings.Contains(said, token) {
		t.Errorf("the log has a secret:\n%s", said)
	}
	// A job that begins now is ended with the new grace, and the host is the old one.
	c.want(1, nil, sh("trap '' TERM; echo up; while :; do sleep 1; done")...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	eventually(t, "deaf to TERM", func() bool { text, _ := c.output(t, "j-1", 0, false); return text != "" })
	c.kill(1)
	if o := c.outcome(t, 1); o.Reason != reasonCancelled {
		t.Errorf("outcome %+v", o)
	}
	if said := r.take(next); strings.Contains(said, "kill_grace") || !strings.Contains(said, "key=host") {
		t.Errorf("read again without another change, it says:\n%s", said)
	}
	if said := r.take(config); !strings.Contains(said, "kill_grace") || strings.Contains(said, "restart") {
		t.Errorf("back to the first configuration, it says:\n%s", said)
	}
}

func TestAReloadLeavesDevicesAndTheirHooksAsTheyAre(t *testing.T) {
	now := Config{Devices: []Device{{Name: "gpu0"}, {Name: "gpu1", Labels: map[string]string{"a": "1"}}}}
	next := Config{Devices: []Device{{Name: "gpu1", Labels: map[string]string{"a": "2"}, Hooks: Hooks{OnAcquire: "/new"}}, {Name: "gpu2"}}}
	var said []string
	for _, c := range changes(now, next) {
		said = append(said, fmt.Sprintf("%s %s>%s %v", c.key, c.from, c.to, c.restart))
	}
	want := []string{"devices.gpu1.labels a=1>a=2 true", "devices.gpu1.on_acquire >/new true", "devices.gpu2 none>declared true", "devices.gpu0 declared>none true"}
	if !reflect.DeepEqual(said, want) {
		t.Errorf("said %q\nwant %q", said, want)
	}
	got := withLive(now, next)
	if len(got.Devices) != 2 || got.Devices[1].Hooks.OnAcquire != "" || got.Devices[1].Labels["a"] != "1" || now.Devices[1].Hooks.OnAcquire != "" {
		t.Errorf("devices %+v, and the ones before %+v", got.Devices, now.Devices)
	}
	now.Auto, next.Auto = true, true
	for _, c := range changes(now, next) {
		if c.key == "devices.gpu0" {
			t.Error("a device that was found by itself is said to be taken away")
		}
	}
}

func TestTheTokenOfTheEnvironmentIsNoChange(t *testing.T) {
	t.Setenv("RC_TOKEN", token)
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.Token = ""
	r := &reloadable{t: t, reload: make(chan Reload)}
	startAgentWith(t, config, func(d *Deps) {
		d.Logger, d.Reload = slog.New(slog.NewTextHandler(r, nil)), r.reload
	})
	if said := r.take(config); !strings.Contains(said, "changes=0") {
		t.Errorf("nothing has changed, and it says:\n%s", said)
	}
	if os.Getenv("RC_TOKEN") != token {
		t.Error("the environment has changed")
	}
}
