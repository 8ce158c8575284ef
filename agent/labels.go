package agent

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rcd/wire"
)

const (
	hostEvery   = 10 * time.Second
	hostTimeout = 5 * time.Second
	// helloLabels bounds the detected labels of a hello, in bytes: it is one
	// message, and one command of the log, with much else in it.
	helloLabels = 256 << 10
)

// labelBytes returns about what labels take in a message.
func labelBytes(labels []wire.LabelKV) (n int) {
	for _, l := range labels {
		n += len(l.Key) + len(l.Value) + 8
	}
	return n
}

// labelList returns labels sorted by key.
func labelList(labels map[string]string) []wire.LabelKV {
	out := make([]wire.LabelKV, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, wire.LabelKV{Key: k, Value: labels[k]})
	}
	return out
}

// hostFacts detects what every device of the host has: what the kernel tells
// for nothing.
var hostFacts = Source{Name: "host", Every: hostEvery, Timeout: hostTimeout,
	Detect: func(context.Context) (Labels, error) { return Labels{"": hostLabels()}, nil }}

// hostLabels returns the facts of the host. One that cannot be had is left out.
func hostLabels() map[string]string {
	out := map[string]string{"cpus": strconv.Itoa(runtime.NumCPU()), "arch": runtime.GOARCH, "os": runtime.GOOS}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		if kib, ok := memInfo(data, "MemTotal"); ok {
			out["mem_total"] = mib(kib)
			out["mem_total_bytes"] = strconv.FormatUint(kib*1024, 10)
		}
		if kib, ok := memInfo(data, "MemAvailable"); ok {
			out["mem_free"] = mib(kib)
		}
	}
	var fs unix.Statfs_t
	if unix.Statfs("/", &fs) == nil {
		out["disk_free_bytes"] = strconv.FormatUint(fs.Bavail*uint64(fs.Bsize), 10)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		release, _, _ := bytes.Cut(name.Release[:], []byte{0})
		out["kernel"] = string(release)
	}
	return out
}

// mib writes an amount as vram is written, so that mem_free>=16G compares.
func mib(kib uint64) string { return fmt.Sprintf("%dM", kib/1024) }

// memInfo returns a line of /proc/meminfo, in KiB.
func memInfo(data []byte, name string) (uint64, bool) {
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		return kib, err == nil
	}
	return 0, false
}
