package agent

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rcd/wire"
)

// labelList returns labels sorted by key.
func labelList(labels map[string]string) []wire.LabelKV {
	out := make([]wire.LabelKV, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, wire.LabelKV{Key: k, Value: labels[k]})
	}
	return out
}

// detectedLabels returns the facts about the host that every device of it has,
// sorted by key. A fact that cannot be had is left out.
func detectedLabels() []wire.LabelKV {
	out := []wire.LabelKV{{Key: "cpus", Value: strconv.Itoa(runtime.NumCPU())}}
	if total, ok := memTotal(); ok {
		out = append(out, wire.LabelKV{Key: "mem_total_bytes", Value: strconv.FormatUint(total, 10)})
	}
	var fs unix.Statfs_t
	if unix.Statfs("/", &fs) == nil {
		out = append(out, wire.LabelKV{Key: "disk_free_bytes", Value: strconv.FormatUint(fs.Bavail*uint64(fs.Bsize), 10)})
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		release, _, _ := bytes.Cut(name.Release[:], []byte{0})
		out = append(out, wire.LabelKV{Key: "kernel", Value: string(release)})
	}
	slices.SortFunc(out, func(x, y wire.LabelKV) int { return cmp.Compare(x.Key, y.Key) })
	return out
}

func memTotal() (uint64, bool) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, "MemTotal:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		return kib * 1024, err == nil
	}
	return 0, false
}
