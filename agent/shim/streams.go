package shim

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// streams are the two sides of a job's standard streams, -1 where there is none. They are raw descriptors: os.Pipe would make the job's side non-blocking,
// and programs do not expect that of their stdout.
type streams struct {
	jobs []int // the job's stdin, stdout and stderr, closed here once it runs

	stdin          int // what we write the job's input to; does not block
	stdout, stderr int // what we read; of a terminal there is only stdout
	// peer holds the job's side of a terminal open until the tree is gone: a terminal that nobody else has open just now is not at its end.
	peer int
}

// openStreams makes the streams of a job. size is that of its terminal.
func openStreams(stdio Stdio, size Size) (streams, error) {
	s := streams{stdin: -1, stdout: -1, stderr: -1, peer: -1}
	var err error
	switch stdio {
	case StdioTTY:
		err = s.terminal(size)
	case StdioPipe:
		err = s.pipes(s.inputPipe)
	default:
		err = s.pipes(s.noInput)
	}
	if err != nil {
		s.closeJobs()
		s.closeOurs()
	}
	return s, err
}

func (s *streams) terminal(size Size) (err error) {
	if s.stdout, s.peer, err = openTerminal(size); err != nil {
		return err
	}
	// A descriptor each for the reader and the writer, who end at different times.
	if s.stdin, err = unix.FcntlInt(uintptr(s.stdout), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open terminal: %w", err)
	}
	return nil
}

func (s *streams) pipes(input func() error) error {
	if err := input(); err != nil {
		return err
	}
	for _, ours := range []*int{&s.stdout, &s.stderr} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("make pipe: %w", err)
		}
		*ours, s.jobs = pipe[0], append(s.jobs, pipe[1])
	}
	return nil
}

func (s *streams) noInput() error {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	s.jobs = append(s.jobs, null)
	return nil
}

func (s *streams) inputPipe() error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	s.jobs, s.stdin = append(s.jobs, pipe[0]), pipe[1]
	if err := unix.SetNonblock(s.stdin, true); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	return nil
}

// files returns what the job gets as descriptors 0, 1 and 2.
func (s *streams) files() []uintptr {
	if s.peer >= 0 {
		fd := uintptr(s.peer)
		return []uintptr{fd, fd, fd}
	}
	var files []uintptr
	for _, fd := range s.jobs {
		files = append(files, uintptr(fd))
	}
	return files
}

// attributes puts the job in a session of its own, which the terminal is that of.
func (s *streams) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: s.peer >= 0, Ctty: 0}
}

func (s *streams) closeJobs() {
	for _, fd := range s.jobs {
		_ = unix.Close(fd)
	}
	s.jobs = nil
}

// closeOurs is for a job that does not come to run.
func (s *streams) closeOurs() {
	for _, fd := range []*int{&s.stdin, &s.stdout, &s.stderr} {
		shut(fd)
	}
	s.hangUp()
}

// hangUp lets a terminal come to its end, once nobody of the job has it.
func (s *streams) hangUp() { shut(&s.peer) }

func shut(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
	}
}
