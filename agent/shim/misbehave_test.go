package shim

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// misbehaviourName makes a shim of this test binary fail in the way that its value says.
const misbehaviourName = "RC_TEST_MISBEHAVE"

// misbehave sees to what the environment wants of a shim: "no-cgroup", as on a host without; "die FILE [WORDS]", as if somebody had killed it as soon as
// the file is in its directory; "eat LIMIT", to use up memory at a SIGWINCH, if LIMIT is "address-space" after it was bounded.
func misbehave() {
	how, arg, _ := strings.Cut(os.Getenv(misbehaviourName), " ")
	switch how {
	case "no-cgroup":
		makeCgroup = func(string, string, string) (string, error) { return "", errors.New("as if there were none") }
	case "die":
		go dieAt(arg)
	case "eat":
		eatAtSignal(arg == "address-space")
	}
}

func eatAtSignal(bounded bool) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGWINCH)
	go func() {
		<-asked
		eat(bounded)
	}()
}

// dieAt ends this process the hard way.
func dieAt(point string) {
	dir := os.Args[3] // shim --dir DIR
	self, _ := proc.Self()
	for ; ; time.Sleep(50 * time.Microsecond) {
		if point != "job" {
			if found, _ := filepath.Glob(filepath.Join(dir, point)); len(found) > 0 {
				break
			}
			continue
		}
		var rec processRecord
		if readRecord(dir, processName, kindProcess, &rec) == nil && rec.StartedAt > 0 {
			break
		}
	}
	_ = proc.Signal(self, unix.SIGKILL)
}

// eat allocates until something ends this process.
func eat(bounded bool) {
	if bounded {
		const room = 256 << 20
		var size uint64
		if raw, err := os.ReadFile("/proc/self/statm"); err == nil {
			for _, c := range strings.Fields(string(raw))[0] {
				size = size*10 + uint64(c-'0')
			}
		}
		limit := size*uint64(os.Getpagesize()) + room
		_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit})
	}
	for hoard := [][]byte{}; ; {
		piece := make([]byte, 1<<20)
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = 1
		}
		hoard = append(hoard, piece)
	}
}
