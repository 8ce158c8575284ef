package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Keyboard is the side of a pseudo terminal on which a person would sit.
type Keyboard struct {
	*os.File
	far *os.File
}

// NewKeyboard makes a pseudo terminal of the given size; it is closed with the
// test.
func NewKeyboard(t testing.TB, cols, rows uint16) *Keyboard {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { near.Close() })
	number, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	far, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	k := &Keyboard{File: near, far: far}
	k.Resize(t, cols, rows)
	return k
}

// Join makes the terminal the stdin of cmd, and the one that it is on.
func (k *Keyboard) Join(cmd *exec.Cmd) {
	cmd.Stdin = k.far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
}

// Resize gives the terminal another size, of which who is on it is told.
func (k *Keyboard) Resize(t testing.TB, cols, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(k.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows}); err != nil {
		t.Fatal(err)
	}
}

// Settings are those of the terminal, to compare.
func (k *Keyboard) Settings(t testing.TB) string {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(k.far.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%+v", *s)
}
