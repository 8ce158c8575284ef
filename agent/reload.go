package agent

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Reload asks a running agent to take another configuration, already checked.
type Reload struct {
	Config Config
	// Done, if set, is called once the agent works with it.
	Done func()
}

// change is one key in which two configurations differ.
type change struct {
	key      string
	from, to string // for people; both "" if nobody may read them
	restart  bool   // counts at the next start only
}

// settings returns the configuration as it is in force now. What a reload
// changes while the agent runs must be read through it, each time; keys that
// need a restart are the same in a.config.
func (a *agent) settings() *Config { return a.live.Load() }

// reloads takes other configurations until the agent stops.
func (a *agent) reloads() {
	for {
		select {
		case r := <-a.deps.Reload:
			a.reload(r.Config)
			if r.Done != nil {
				r.Done()
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// reload puts in force what can be, and says of every change whether it is.
func (a *agent) reload(config Config) {
	if config.Token == "" {
		config.Token = tokenOfEnvironment()
	}
	now := *a.settings()
	all := changes(now, config)
	for _, c := range all {
		attrs := []any{"key", c.key}
		if c.from != "" || c.to != "" {
			attrs = append(attrs, "from", c.from, "to", c.to)
		}
		if c.restart {
			a.log.Warn("configuration changed; restart the agent for this key (its jobs go on)", attrs...)
		} else {
			a.log.Info("configuration changed and in force", attrs...)
		}
	}
	for _, n := range config.Notices {
		if !slices.Contains(now.Notices, n) {
			a.log.Warn("configuration", "notice", n)
		}
	}
	next := withLive(now, config)
	a.live.Store(&next)
	a.janitor.nudge()
	a.log.Info("configuration read again", "changes", len(all))
}

// withLive returns the configuration now with the keys of next that count at
// once.
func withLive(now, next Config) Config {
	now.SpoolBound, now.KillGrace, now.KeepJobs, now.KeepBytes = next.SpoolBound, next.KillGrace, next.KeepJobs, next.KeepBytes
	now.Probes.Dir, now.Probes.Timeout = next.Probes.Dir, next.Probes.Timeout
	now.SheetDir, now.Verify, now.XIDs, now.Notices = next.SheetDir, next.Verify, next.XIDs, next.Notices
	return now
}

// changes lists what differs, by key as it is written in the file.
func changes(now, next Config) []change {
	const live, restart = false, true
	var out []change
	add := func(key string, from, to any, restart bool) {
		if !reflect.DeepEqual(from, to) {
			out = append(out, change{key: key, from: shown(from), to: shown(to), restart: restart})
		}
	}
	add("controllers", now.Controllers, next.Controllers, restart)
	if now.Token != next.Token {
		out = append(out, change{key: "token", restart: true})
	}
	add("host", now.Host, next.Host, restart)
	add("data_dir", now.DataDir, next.DataDir, restart)
	add("require_manual_clear", now.RequireManualClear, next.RequireManualClear, restart)
	add("spool_bound", now.SpoolBound, next.SpoolBound, live)
	add("kill_grace", now.KillGrace, next.KillGrace, live)
	add("keep_jobs", now.KeepJobs, next.KeepJobs, live)
	add("keep_bytes", now.KeepBytes, next.KeepBytes, live)
	add("sheet_dir", now.SheetDir, next.SheetDir, live)
	add("probe_dir", now.Probes.Dir, next.Probes.Dir, live)
	add("probe_interval", now.Probes.Interval, next.Probes.Interval, restart)
	add("probe_timeout", now.Probes.Timeout, next.Probes.Timeout, live)
	add("verify_dir", now.Verify.Dir, next.Verify.Dir, live)
	add("verify_timeout", now.Verify.Timeout, next.Verify.Timeout, live)
	add("verify_pass_budget", now.Verify.Budget, next.Verify.Budget, live)
	add("verify_gpu", !now.Verify.NoGPU, !next.Verify.NoGPU, live)
	if len(now.XIDs)+len(next.XIDs) > 0 {
		add("xid", now.XIDs, next.XIDs, live)
	}
	add("devices (auto)", now.Auto, next.Auto, restart)
	for _, d := range next.Devices {
		key := "devices." + d.Name
		was := find(now.Devices, d.Name)
		if was == nil {
			add(key, "none", "declared", restart)
			continue
		}
		add(key+".max_runtime", was.MaxRuntime, d.MaxRuntime, restart)
		if len(was.Labels)+len(d.Labels) > 0 {
			add(key+".labels", was.Labels, d.Labels, restart)
		}
		add(key+".kind", deviceKind(*was), deviceKind(d), restart)
		add(key+".uuid or pci", was.Bind, d.Bind, restart)
		add(key+".on_acquire", was.Hooks.OnAcquire, d.Hooks.OnAcquire, restart)
		add(key+".on_release", was.Hooks.OnRelease, d.Hooks.OnRelease, restart)
		add(key+".timeout", was.Hooks.Timeout, d.Hooks.Timeout, restart)
		add(key+".release_linger", was.Hooks.Linger, d.Hooks.Linger, restart)
	}
	for _, d := range now.Devices {
		// With auto the agent has found devices that no file names.
		if find(next.Devices, d.Name) == nil && !now.Auto {
			add("devices."+d.Name, "declared", "none", restart)
		}
	}
	return out
}

func find(devices []Device, name string) *Device {
	i := slices.IndexFunc(devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &devices[i]
}

func deviceKind(d Device) string {
	if d.Simulated {
		return kindSimulated
	}
	return "hardware"
}

// shown is a value on one line of the log, maps in the order of their keys.
func shown(v any) string {
	switch v := v.(type) {
	case map[string]string:
		return pairs(v)
	case map[uint64]XIDMeaning:
		return pairs(v)
	}
	return fmt.Sprint(v)
}

func pairs[K cmp.Ordered, V any](m map[K]V) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%v=%v", k, m[k]))
	}
	return strings.Join(out, " ")
}

func tokenOfEnvironment() string { return strings.TrimSpace(os.Getenv("RC_TOKEN")) }
