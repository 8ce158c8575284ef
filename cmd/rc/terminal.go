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

// input is rc's stdin, read so that a read can be ended.
type input struct {
	fd   int
	wake [2]int // a pipe whose end frees a blocked read
}

// terminal is the one that rc's stdin is on.
type terminal struct {
	input
	saved unix.Termios
}

// rawTerminal is the terminal that is not as it was, for the way out that
// passes every defer.
var rawTerminal atomic.Pointer[terminal]

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, getTermios)
	return err == nil
}

// openInput takes stdin.
func openInput() (*input, error) {
	i := &input{fd: int(os.Stdin.Fd())}
	if err := unix.Pipe(i.wake[:]); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	unix.CloseOnExec(i.wake[0])
	unix.CloseOnExec(i.wake[1])
	return i, nil
}

func (i *input) close() {
	_ = unix.Close(i.wake[0])
	_ = unix.Close(i.wake[1])
}

// openTerminal takes stdin, which must be a terminal, and leaves it as it is.
func openTerminal() (*terminal, error) {
	settings, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), getTermios)
	if err != nil {
		return nil, fmt.Errorf("stdin is no terminal: %w", err)
	}
	i, err := openInput()
	if err != nil {
		return nil, err
	}
	return &terminal{input: *i, saved: *settings}, nil
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
	t.input.close()
}

// size returns the terminal's, false if it has none.
func (t *terminal) size() (cols, rows uint16, ok bool) {
	w, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 0, 0, false
	}
	return w.Col, w.Row, true
}

// read returns what comes next, or ctx's error soon after that ends. io.EOF: no
// more comes, or the terminal is gone.
func (i *input) read(ctx context.Context, p []byte) (int, error) {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(i.wake[1], []byte{0})
	})
	defer func() {
		if !stop() {
			<-woken // else it might write to what the pipe's number has become
		}
	}()
	for {
		fds := []unix.PollFd{{Fd: int32(i.fd), Events: unix.POLLIN}, {Fd: int32(i.wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return 0, fmt.Errorf("wait for stdin: %w", err)
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if fds[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(i.fd, p)
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
