package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process is not there: it ended, or another one has its pid now.
var ErrGone = errors.New("no such process")

// ID names one process for as long as the host is up. The zero ID names none.
type ID struct {
	PID   int
	Start uint64 // clock ticks since boot, field 22 of /proc/PID/stat
}

// Zero tells whether the ID names no process.
func (id ID) Zero() bool { return id.PID == 0 }

func (id ID) String() string { return fmt.Sprintf("%d@%d", id.PID, id.Start) }

// Identify returns the identity of the process that has pid at this moment, zombies included. ErrGone if there is none.
func Identify(pid int) (ID, error) {
	p, err := readStat(pid)
	if err != nil {
		return ID{}, err
	}
	return p.ID, nil
}

// Self returns the identity of the calling process.
func Self() (ID, error) { return Identify(os.Getpid()) }

// Alive tells whether that very process still runs. A zombie does not run, unless threads of it live on behind an ended main thread.
func Alive(id ID) bool {
	p, err := readStat(id.PID)
	return err == nil && p.Start == id.Start && p.running()
}

// Exists tells whether that very process is still in the process table, be it as a zombie.
func Exists(id ID) bool {
	now, err := Identify(id.PID)
	return err == nil && !id.Zero() && now == id
}

// BootID returns a text that differs after each start of the host: the kernel's boot id, else the boot time.
func BootID() (string, error) {
	if raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		if id := strings.TrimSpace(string(raw)); id != "" {
			return id, nil
		}
	}
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if at, ok := strings.CutPrefix(line, "btime "); ok {
			return "btime-" + strings.TrimSpace(at), nil
		}
	}
	return "", errors.New("read boot id: neither /proc/sys/kernel/random/boot_id nor btime in /proc/stat")
}

// Signal sends sig to that very process. ErrGone if it is not there any more; no other process is ever signalled in its place: the pidfd is
// opened first and the start time compared after, so whatever the pidfd holds is either the named process or an ended one.
func Signal(id ID, sig unix.Signal) error {
	if id.PID <= 0 {
		return ErrGone
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	switch {
	case err == nil:
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		// A kernel before 5.3, or a sandbox that forbids the call: check and signal back to back.
		return signalChecked(id, sig)
	default:
		return fmt.Errorf("open pidfd of %s: %w", id, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !Exists(id) {
		return ErrGone
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return ErrGone
		}
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			return signalChecked(id, sig)
		}
		return fmt.Errorf("send %s to %s: %w", unix.SignalName(sig), id, err)
	}
	return nil
}

func signalChecked(id ID, sig unix.Signal) error {
	if !Exists(id) {
		return ErrGone
	}
	if err := unix.Kill(id.PID, sig); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return ErrGone
		}
		return fmt.Errorf("send %s to %s: %w", unix.SignalName(sig), id, err)
	}
	return nil
}

// SetOOMScore sets how readily the kernel kills pid when memory runs out: -1000 never, 0 normal, 1000 first. 0 means the calling process.
// Lowering needs CAP_SYS_RESOURCE; callers treat a failure as "left as it was".
func SetOOMScore(pid, score int) error {
	who := "self"
	if pid != 0 {
		who = strconv.Itoa(pid)
	}
	if err := os.WriteFile("/proc/"+who+"/oom_score_adj", []byte(strconv.Itoa(score)), 0); err != nil {
		return fmt.Errorf("set oom score: %w", err)
	}
	return nil
}
