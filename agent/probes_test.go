package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/probe"
	"rcd/agent/proc"
	"rcd/wire"
)

// script writes an executable and returns its path.
func probeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	// Renamed into place: what is open for writing anywhere, and be it in a child
	// that was just forked, cannot be run.
	if err := os.WriteFile(path+".new", []byte("#!/bin/sh\n"+text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path+".new", 0o700), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	return path
}

// pidIn returns the process that a script has written down.
func pidIn(t *testing.T, path string) proc.ID {
	t.Helper()
	var id proc.ID
	eventually(t, "pid in "+path, func() bool {
		data, _ := os.ReadFile(path)
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return false
		}
		id, err = proc.Identify(pid)
		return err == nil || errors.Is(err, proc.ErrGone)
	})
	return id
}

// runFor runs a script as a probe with a deadline.
func runFor(t *testing.T, limit time.Duration, text string) probe.Run {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errors.New("too late"))
	defer cancel()
	return runProbe(ctx, probeFile(t, t.TempDir(), "probe", text), 100)
}

func TestAProbesWordAndItsFailures(t *testing.T) {
	t.Setenv("RC_TOKEN", "secret")
	t.Setenv("RC_JOB_ID", "j-1")
	t.Setenv("RCD_CLUSTER_KEY", "secret")
	t.Setenv("SITE", "here")
	for _, tt := range []struct{ name, text, output, err string }{
		{"what it prints", `echo '{"a":1}'; echo noise >&2`, `{"a":1}` + "\n", ""},
		{"the environment is the agent's without what is rc's", `echo "$SITE-$RC_TOKEN-$RC_JOB_ID-$RCD_CLUSTER_KEY"`, "here---\n", ""},
		{"stdin is empty, the directory is /", `cat; pwd`, "/\n", ""},
		{"a failure", "echo x\necho 'no\ndriver' >&2; exit 3", "x\n", "exit status 3: no driver"},
		{"a signal", "kill -9 $$", "", "signal: killed"},
		{"a long complaint", `i=0; while [ $i -lt 300 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`, "", "line 299"},
		{"too much", "while :; do echo 0123456789; done", strings.Repeat("0123456789\n", 10)[:101], "more than 100 bytes"},
		{"no end", "echo x; exec sleep 1000", "x\n", "too late"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit := time.Minute
			if tt.err == "too late" {
				limit = 300 * time.Millisecond
			}
			r := runFor(t, limit, tt.text)
			if tt.err != "too late" && string(r.Output) != tt.output || r.Left != nil {
				t.Errorf("output %q, left %v", r.Output, r.Left != nil)
			}
			if (r.Err == nil) != (tt.err == "") || r.Err != nil && (!strings.Contains(r.Err.Error(), tt.err) || len(r.Err.Error()) > 300) {
				t.Errorf("error %v, want %q", r.Err, tt.err)
			}
		})
	}
	if r := runProbe(context.Background(), filepath.Join(t.TempDir(), "none"), 100); r.Err == nil || r.Left != nil {
		t.Errorf("%+v", r)
	}
}

// Whoever installs a probe may have it open for a moment yet.
func TestAProbeThatIsJustBeingWrittenIsWaitedFor(t *testing.T) {
	path := probeFile(t, t.TempDir(), "probe", "echo a=b")
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(50*time.Millisecond, func() { writer.Close() })
	defer timer.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if r := runProbe(ctx, path, 100); r.Err != nil || string(r.Output) != "a=b\n" {
		t.Errorf("%q, %v", r.Output, r.Err)
	}
}

func TestNothingOfAProbeOutlivesIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for what, text := range map[string]string{
		"timeout":    "trap '' TERM; sleep 1000 & echo $! > %s; wait; sleep 1000",
		"stragglers": "sleep 1000 & echo $! > %s; echo '{}'",
		"deaf":       "(trap '' TERM HUP; sleep 1000 & echo $! > %s; wait) & sleep 1000",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, what)
			r := runFor(t, time.Second, fmt.Sprintf(text, path))
			if (what == "stragglers") != (r.Err == nil) || r.Left != nil {
				t.Errorf("error %v, left %v", r.Err, r.Left != nil)
			}
			if id := pidIn(t, path); proc.Alive(id) {
				t.Errorf("process %v is left", id)
				_ = proc.Signal(id, unix.SIGKILL)
			}
		})
	}
}

func TestWhoHasLeftTheSessionDoesNotHoldUpAProbe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	r := runFor(t, time.Minute, "setsid sh -c 'echo $$ > "+path+"; exec sleep 300' &\nuntil [ -s "+path+" ]; do :; done\necho '{}'")
	id := pidIn(t, path)
	defer func() { _ = proc.Signal(id, unix.SIGKILL) }()
	if string(r.Output) != "{}\n" || r.Err != nil {
		t.Errorf("output %q, %v", r.Output, r.Err)
	}
}

// label returns a detected label, "" if it is not among them.
func label(labels []wire.LabelKV, key string) string {
	i := slices.IndexFunc(labels, func(l wire.LabelKV) bool { return l.Key == key })
	if i < 0 {
		return ""
	}
	return labels[i].Value
}

// probing returns a configuration with probes that run often.
func probing(t *testing.T, c *control) Config {
	config := testConfig(dataDir(t), c)
	config.Probes = Probes{Dir: t.TempDir(), Interval: 20 * time.Millisecond, Timeout: 30 * time.Second}
	return config
}

// toldLabel returns the last word on a label of gpu0 that the leader has heard.
func (c *control) toldLabel(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range slices.Backward(c.facts) {
		for _, d := range f.Labels {
			if d.Name == "gpu0" {
				return label(d.Detected, key)
			}
		}
	}
	return ""
}

func TestWhatProbesSayReachesTheLeaderAndGoesAgain(t *testing.T) {
	c := newControl(t)
	config := probing(t, c)
	probeFile(t, config.Probes.Dir, "10-site", `echo '{"rack":"r7","serial":9007199254740993,"gpu0.fan":3,"gpu1.fan":4,"cpus":"many"}'`)
	startAgent(t, config)
	eventually(t, "labels", func() bool {
		return c.toldLabel("rack") == "r7" && c.toldLabel("serial") == "9007199254740993" && c.toldLabel("fan") == "3" && c.toldLabel("cpus") == "many" && c.toldLabel("kernel") != ""
	})
	probeFile(t, config.Probes.Dir, "10-site", `exit 1`)
	probeFile(t, config.Probes.Dir, "20-more", `echo '{"more":1}'`)
	eventually(t, "the other's label", func() bool { return c.toldLabel("more") == "1" })
	if c.toldLabel("rack") != "r7" || c.toldLabel("fan") != "3" {
		t.Error("a probe that fails has lost its labels")
	}
	probeFile(t, config.Probes.Dir, "10-site", `echo '{}'`)
	eventually(t, "labels gone", func() bool {
		return c.toldLabel("rack") == "" && c.toldLabel("fan") == "" && c.toldLabel("cpus") != "many" && c.toldLabel("more") == "1"
	})
}

// TestAProbeThatFailsAfterARestartKeepsWhatTheClusterHas looks at every word of
// the second agent: at no time does the leader hear that the label is gone.
func TestAProbeThatFailsAfterARestartKeepsWhatTheClusterHas(t *testing.T) {
	c := newControl(t)
	config := probing(t, c)
	probeFile(t, config.Probes.Dir, "10-site", `echo '{"rack":"r7","gpu0.fan":3}'`)
	first := startAgent(t, config)
	eventually(t, "labels", func() bool { return c.toldLabel("rack") == "r7" })
	first.stop()
	probeFile(t, config.Probes.Dir, "10-site", `sleep 1.2; exit 1`) // longer than the registration waits
	probeFile(t, config.Probes.Dir, "20-more", `echo '{"more":1}'`)
	c.mu.Lock()
	hellos, facts := len(c.hellos), len(c.facts)
	c.mu.Unlock()
	startAgent(t, config)
	eventually(t, "the other's label", func() bool { return c.toldLabel("more") == "1" })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hellos[hellos:] {
		if d := h.Devices[0]; !d.KeepDetected && (label(d.Detected, "rack") != "r7" || label(d.Detected, "fan") != "3") {
			t.Errorf("a hello takes labels away: %+v", d)
		}
	}
	for _, f := range c.facts[facts:] {
		for _, d := range f.Labels {
			if label(d.Detected, "rack") != "r7" || d.Name == "gpu0" && label(d.Detected, "fan") != "3" {
				t.Errorf("labels are taken away: %+v", d)
			}
		}
	}
}

func TestAFirstPassThatTakesLongDoesNotTakeAwayWhatProbesSaid(t *testing.T) {
	c := newControl(t)
	config := probing(t, c)
	kept := probesRecord{Words: map[string]probe.Word{"10-site": {"rack": "r7", "gpu0.fan": "3", "gone0.x": "1"}}}
	if err := writeRecord(filepath.Join(config.DataDir, probesFile), kindProbes, kept); err != nil {
		t.Fatal(err)
	}
	a := newTestAgent(t, config)
	a.keeper.hear(a.keeper.sources[0], host("kernel", "6.1"), nil)
	a.keeper.goOn()
	if d := a.Hello().Devices[0]; label(d.Detected, "rack") != "r7" || label(d.Detected, "fan") != "3" || len(d.Detected) != 3 {
		t.Errorf("%+v", d)
	}
}

func TestAnAgentThatStopsLeavesNoProbe(t *testing.T) {
	c := newControl(t)
	config := probing(t, c)
	path := filepath.Join(t.TempDir(), "pid")
	probeFile(t, config.Probes.Dir, "slow", "trap '' TERM; echo $$ > "+path+"; while :; do sleep 1; done")
	r := startAgent(t, config)
	id := pidIn(t, path)
	r.stop()
	if proc.Alive(id) {
		t.Errorf("probe %v is left", id)
	}
}

func TestAHungProbeKeepsNothingElseBack(t *testing.T) {
	c := newControl(t)
	config := probing(t, c)
	probeFile(t, config.Probes.Dir, "10-hung", "exec sleep 1000")
	probeFile(t, config.Probes.Dir, "20-good", `echo '{"good":1}'`)
	config.Probes.Timeout = 1500 * time.Millisecond
	startAgent(t, config)
	c.want(1, nil, "true") // neither the session nor a job waits for it
	c.outcome(t, 1)
	eventually(t, "labels", func() bool { return c.toldLabel("good") == "1" && c.toldLabel("kernel") != "" })
}

func TestASourceThatDoesNotAnswerKeepsOthersBackForTenSeconds(t *testing.T) {
	keeping(t, func(b *bench) {
		time.Sleep(lateFacts)
		b.want(t, "10: early=word kernel=6.1 mem_free=100G")
		time.Sleep(time.Minute)
		b.want(t, "10: early=word kernel=6.1 mem_free=100G", "50: early=late kernel=6.1 mem_free=100G")
	}, Source{Name: "late", Every: time.Hour, Timeout: time.Hour, Last: host("early", "word"), Detect: func(context.Context) (Labels, error) {
		time.Sleep(50 * time.Second)
		return host("early", "late"), nil
	}})
}

func TestMoreLabelsThanTheTableTakesCostTheLastOnesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := Labels{"": {"cpus": "later"}, "gpu0": {}}
		for n := range maxLabels {
			many["gpu0"][fmt.Sprintf("k%03d", n)] = "x"
		}
		k := newKeeper([]Device{{Name: "gpu0"}, {Name: "gpu1"}}, []Source{{}, {}}, slog.New(slog.DiscardHandler), func() {})
		k.hear(k.sources[0], host("cpus", "4", "kernel", "6.1"), nil)
		k.hear(k.sources[1], many, nil)
		got := k.detected("gpu0")
		if len(got) != maxLabels || label(got, "cpus") != "later" || label(got, "kernel") != "6.1" || label(got, "k253") != "x" || label(got, "k254") != "" {
			t.Errorf("%d labels: %v", len(got), got)
		}
		if got := k.detected("gpu1"); len(got) != 2 {
			t.Errorf("the other device has %v", got)
		}
	})
}

func TestAHelloHasRoomForAnyNumberOfLabels(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.Devices = nil
	for n := range maxDevices {
		config.Devices = append(config.Devices, Device{Name: fmt.Sprint("gpu", n)})
	}
	a := newTestAgent(t, config)
	large := map[string]string{}
	for n := range maxLabels / 4 {
		large[fmt.Sprint("k", n)] = strings.Repeat("x", 1000)
	}
	a.keeper.hear(a.keeper.sources[0], Labels{"": large}, nil)
	bytes, kept := 0, 0
	for _, d := range a.Hello().Devices {
		bytes += labelBytes(d.Detected)
		if d.KeepDetected {
			kept++
			if d.Detected != nil {
				t.Error("both kept and told")
			}
		}
	}
	if bytes > helloLabels || kept == 0 || kept == maxDevices {
		t.Errorf("%d bytes, %d devices keep their labels", bytes, kept)
	}
	if f := a.Facts(); len(f.Labels) != maxDevices || len(f.Labels[maxDevices-1].Detected) != len(large) {
		t.Errorf("%d devices told", len(f.Labels))
	}
}
