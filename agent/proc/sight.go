package proc

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// flagKernelThread is PF_KTHREAD of the kernel.
const flagKernelThread = 0x200000

// kernelThread is true for a thread of the kernel: nobody's job, without an environment and without a program. No process can pretend to be one.
func (p Process) kernelThread() bool { return p.flags&flagKernelThread != 0 }

// capPtrace is the number of CAP_SYS_PTRACE, with which every process can be seen and read.
const capPtrace = 19

// hidden tells why processes may run that List does not see, "" if there is no reason: /proc can be mounted so that those of other users are not listed
// or cannot be looked at, and a look that does not see them proves nothing.
func hidden() string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "" // of no /proc at all, the look itself tells
	}
	value, group := hidePID(string(mounts))
	if value == "" {
		return ""
	}
	status, err := os.ReadFile("/proc/self/status")
	if err == nil && hasCapability(status, capPtrace) {
		return ""
	}
	groups, err := os.Getgroups()
	if err == nil && value != "4" && value != "ptraceable" && (group == os.Getegid() || slices.Contains(groups, group)) {
		return ""
	}
	return fmt.Sprintf("those of other users, for /proc is mounted with hidepid=%s", value)
}

// hidePID returns the option of the mount on /proc that hides processes, "" if it has none, and the group that sees them all the same. The last mount on
// a path is the one that is seen.
func hidePID(mounts string) (value string, group int) {
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || fields[4] != "/proc" || len(super) < 3 {
			continue
		}
		value, group = "", 0
		for option := range strings.SplitSeq(super[2], ",") {
			switch name, v, _ := strings.Cut(option, "="); name {
			case "hidepid":
				value = v
			case "gid":
				group, _ = strconv.Atoi(v)
			}
		}
		switch value {
		case "0", "off":
			value = ""
		}
	}
	return value, group
}

// hasCapability tells whether a /proc/PID/status says that a capability is in effect.
func hasCapability(status []byte, number uint) bool {
	for line := range bytes.Lines(status) {
		if text, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			set, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 16, 64)
			return err == nil && set&(1<<number) != 0
		}
	}
	return false
}

// Alone tells whether the calling process is the first of its PID namespace and nobody else runs in it, as seen now: nothing of an earlier life can be.
func Alone() bool {
	if os.Getpid() != 1 || hidden() != "" {
		return false
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != "1" {
		return false // /proc shows another namespace
	}
	list, closed, err := visible()
	return err == nil && len(list) == 1 && closed == 0
}
