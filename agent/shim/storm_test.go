package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// playComets is a job that stays, and starts some processes ("comets N FILE") of which each starts itself anew, in a session of its own, and ends: none lives
// for longer than a millisecond, less than a look at the process table takes. They go on for as long as FILE is there, and write into it.
func playComets(arg string) int {
	words := strings.Fields(arg)
	n, _ := strconv.Atoi(words[0])
	fd, err := unix.Open(words[1], unix.O_WRONLY, 0)
	path, pathErr := unix.BytePtrFromString(words[1])
	if err != nil || pathErr != nil {
		return 1
	}
	runtime.LockOSThread()
	for range n {
		if pid, _, _ := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); pid == 0 {
			fly(uintptr(fd), uintptr(unsafe.Pointer(path)))
		}
	}
	fmt.Println("ready")
	time.Sleep(time.Minute)
	runtime.KeepAlive(path)
	return 0
}

// fly runs in a copy of the process that has no other thread, so nothing of the runtime may be asked for: raw calls only.
//
//go:norace
func fly(fd, path uintptr) {
	var beat byte = 'x'
	pause := unix.Timespec{Nsec: int64(time.Millisecond) / 5}
	for {
		if _, _, gone := unix.RawSyscall6(unix.SYS_FACCESSAT, ^uintptr(99), path, 0, 0, 0, 0); gone != 0 { // AT_FDCWD is -100
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_PWRITE64, fd, uintptr(unsafe.Pointer(&beat)), 1, 0, 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
		if pid, _, failed := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); pid != 0 && failed == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}

// flies tells whether any comet is alive.
func flies(t *testing.T, file string) bool {
	t.Helper()
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	for range 100 { // one comes round every few milliseconds
		if info, err := os.Stat(file); err == nil && info.Size() > 0 {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

func startComets(t *testing.T, shimEnv ...string) (h *Handle, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := acting(t, "comets 12 "+file)
	cfg.shimEnv = append(cfg.shimEnv, shimEnv...)
	h = start(t, cfg)
	t.Cleanup(func() { _ = os.Remove(file) })
	awaitOutput(t, h, 6)
	if !flies(t, file) {
		t.Fatal("the storm is over before it is fought")
	}
	return h, file
}

func TestForkStormInACgroupIsEnded(t *testing.T) {
	for _, shimDies := range []bool{false, true} {
		t.Run(fmt.Sprintf("shim dies %v", shimDies), func(t *testing.T) {
			t.Parallel()
			needsCgroup(t)
			h, file := startComets(t)
			if shimDies {
				if err := proc.Signal(shimOf(h), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			} else {
				h.Kill("cancelled")
			}
			if r := await(t, h); !r.Clean() {
				t.Errorf("survivors %+v, unverified %q", r.Survivors, r.Unverified)
			}
			if flies(t, file) {
				t.Error("the storm goes on")
			}
		})
	}
}

// No look at the process table catches any of them, but the kernel says that the shim has children.
func TestProcessesTooFastToBeSeenAreNotTakenForNobody(t *testing.T) {
	t.Parallel()
	h, file := startComets(t, misbehaviourName+"=no-cgroup")
	h.Kill("cancelled")
	r := await(t, h)
	if left := flies(t, file); left == r.Clean() {
		t.Errorf("the storm goes on: %v; survivors %+v, unverified %q", left, r.Survivors, r.Unverified)
	} else if !left {
		t.Log("on this machine they were caught")
	}
}
