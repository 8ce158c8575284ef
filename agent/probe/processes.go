package probe

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// Use is what is on a GPU, or on an instance of one, at a moment.
type Use struct {
	TotalBytes uint64 // 0: the GPU has no memory of its own
	UsedBytes  uint64
	// Exact: UsedBytes leaves out what the driver keeps for itself. An older
	// driver does not tell that apart.
	Exact     bool
	Processes []Process // sorted by PID
}

// hostPIDs is the inode of the host's PID namespace, which the kernel fixes
// (PROC_PID_INIT_INO).
const hostPIDs = 0xEFFFFFFC

// SeesHostPIDs reports whether this process numbers processes as the host does,
// and so as the driver does. Elsewhere a number that the driver names is
// another process's, or nobody's.
var SeesHostPIDs = sync.OnceValue(func() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link == "pid:["+strconv.Itoa(hostPIDs)+"]"
})

// commandOf returns the short name of a process, "" if it is not to be seen.
func commandOf(pid int) string {
	if !SeesHostPIDs() {
		return ""
	}
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(name)), "?")
}
