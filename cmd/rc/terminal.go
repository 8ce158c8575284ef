package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the one that rc's stdin is on.
type terminal struct {
	fd    int
	saved unix.Termios
	wake  [2]int // a pipe whose end frees a blocked read
}

// rawTerminal is the terminal that is not as it was, for the way out that
// passes every defer.
var rawTerminal atomic.Pointer[terminal]

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, getTermios)
	return err == nil
}

// openTerminal takes stdin, which must be a terminal, and leaves it as it is.
func openTerminal() (*terminal, error) {
	t := &terminal{fd: int(os.Stdin.Fd())}
	settings, err := unix.IoctlGetTermios(t.fd, getTermios)
	if err != nil {
		return nil, fmt.Errorf("stdin is no terminal: %w", err)
	}
	t.saved = *settings
	if err := unix.Pipe(t.wake[:]); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	unix.CloseOnExec(t.wake[0])
	unix.CloseOnExec(t.wake[1])
	return t, nil
}

// raw has every key go to the job as it is, until restore.
func (t *terminal) raw() error {
	s := t.saved
	s.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	s.Oflag &^= unix.OPOST
	s.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	s.Cflag = s.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	s.Cc[unix.VMIN], s.Cc[unix.VTIME] = 1, 0
	rawTerminal.Store(t)
	if err := unix.IoctlSetTermios(t.fd, setTermios, &s); err != nil {
		return fmt.Errorf("set the terminal: %w", err)
	}
	return nil
}

// restoreTerminal puts the terminal back as it was, if it is not.
func restoreTerminal() {
	if t := rawTerminal.Swap(nil); t != nil {
		_ = unix.IoctlSetTermios(t.fd, setTermios, &t.saved)
	}
}

// close lets go of the terminal, restored.
func (t *terminal) close() {
	restoreTerminal()
	_ = unix.Close(t.wake[0])
	_ = unix.Close(t.wake[1])
}

// size returns the terminal's, false if it has none.
func (t *terminal) size() (cols, rows uint16, ok bool) {
	w, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 0, 0, false
	}
	return w.Col, w.Row, true
}

// read returns what is typed, or ctx's error soon after that ends. io.EOF: the
// terminal is gone.
func (t *terminal) read(ctx context.Context, p []byte) (int, error) {
	defer context.AfterFunc(ctx, func() { _, _ = unix.Write(t.wake[1], []byte{0}) })()
	for {
		fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}, {Fd: int32(t.wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return 0, fmt.Errorf("wait for the terminal: %w", err)
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if fds[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(t.fd, p)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case n <= 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// resized returns a channel that gets a value when the terminal's size has
// changed, and how to end that.
func resized() (<-chan struct{}, func()) {
	signals, out, done := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGWINCH)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-signals:
				select {
				case out <- struct{}{}:
				default:
				}
			case <-done:
				return
			}
		}
	})
	return out, func() {
		signal.Stop(signals)
		close(done)
		work.Wait()
	}
}
