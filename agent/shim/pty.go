package shim

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rcd/model"
)

// Size is that of a terminal, in characters.
type Size struct{ Cols, Rows uint16 }

// defaultSize is a terminal's until somebody says another: what programs expect of one that nobody looks at.
var defaultSize = Size{Cols: 80, Rows: 24}

// sizeOf returns the size that a job's environment asks for.
func sizeOf(env []string) Size {
	for _, entry := range env {
		if text, ok := strings.CutPrefix(entry, model.TTYSizeEnv+"="); ok {
			if cols, rows, ok := model.ParseTTYSize(text); ok {
				return Size{cols, rows}
			}
		}
	}
	return defaultSize
}

// openTerminal makes a pseudo terminal: our side, which does not block, and the job's. Neither becomes the terminal of this process, which leads a session
// and has none.
func openTerminal(size Size) (ours, jobs int, err error) {
	ours, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open terminal: /dev/ptmx: %w", err)
	}
	if jobs, err = openPeer(ours); err == nil {
		err = setSize(ours, size)
	}
	if err != nil {
		_ = unix.Close(ours)
		if jobs >= 0 {
			_ = unix.Close(jobs)
		}
		return -1, -1, fmt.Errorf("open terminal: %w", err)
	}
	// Without it, erasing a character of a typed line would take one byte of it.
	if t, err := unix.IoctlGetTermios(jobs, unix.TCGETS); err == nil {
		t.Iflag |= unix.IUTF8
		_ = unix.IoctlSetTermios(jobs, unix.TCSETS, t)
	}
	return ours, jobs, nil
}

// openPeer opens the job's side of a terminal.
func openPeer(ours int) (int, error) {
	if err := unix.IoctlSetPointerInt(ours, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock: %w", err)
	}
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	// By descriptor, for /dev/pts may be another file system's here.
	if fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ours), unix.TIOCGPTPEER, flags); errno == 0 {
		return int(fd), nil
	}
	// A kernel before 4.13, or a sandbox that does not know the call.
	n, err := unix.IoctlGetInt(ours, unix.TIOCGPTN)
	if err != nil {
		return -1, fmt.Errorf("number: %w", err)
	}
	path := "/dev/pts/" + strconv.Itoa(n)
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	return fd, nil
}

// setSize gives a terminal its size; the job hears of it by SIGWINCH if it is another one.
func setSize(fd int, size Size) error {
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows}); err != nil {
		return fmt.Errorf("set size: %w", err)
	}
	return nil
}
