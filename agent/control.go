package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A running agent listens in its data directory for the verbs of rcd agent: one
// connection, one line of JSON each way. Both sides pass over fields that they
// do not know. The version rises when a verb changes its meaning.
const (
	controlSocket  = "control.sock"
	controlVersion = 1
	controlTimeout = 10 * time.Second
	controlLimit   = 4 << 20 // of one line, in bytes: a status of 256 devices takes 100 KiB
	controlAtOnce  = 16      // connections; more wait
)

// The verbs.
const (
	doStatus = "status"
	doDrain  = "drain"  // take every device out of the pool; with Kill end the jobs
	doClose  = "close"  // begin nothing more of what was placed before a drain; refused while a job is there
	doCancel = "cancel" // forget a drain
)

type controlRequest struct {
	Version int    `json:"version"`
	Do      string `json:"do"`
	Kill    bool   `json:"kill,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

type controlAnswer struct {
	Version int `json:"version"`
	// Error says why nothing was done, for people.
	Error string `json:"error,omitempty"`
	// Busy: not closed, because a job is there.
	Busy bool `json:"busy,omitempty"`
	// Out are the devices of a cancelled drain.
	Out    []string `json:"out,omitempty"`
	Status *Status  `json:"status,omitempty"`
}

// openControl listens, and answers until the agent stops. An agent that nobody
// can ask still serves its jobs, so what goes wrong is only logged.
func (a *agent) openControl() {
	l, err := listenControl(a.config.DataDir)
	if err != nil {
		a.log.Error("rcd agent drain and status will not reach this agent", "error", err)
		return
	}
	a.wait.Go(func() { a.serveControl(l) })
}

func (a *agent) serveControl(l net.Listener) {
	defer os.Remove(filepath.Join(a.config.DataDir, controlSocket)) // if it stays, nobody answers there
	stop := context.AfterFunc(a.ctx, func() { l.Close() })
	defer stop()
	var wait sync.WaitGroup
	defer wait.Wait()
	slots := make(chan struct{}, controlAtOnce)
	for {
		conn, err := l.Accept()
		if err != nil {
			if a.ctx.Err() == nil {
				a.log.Error("control socket lost; restart the agent to drain it (its jobs go on)", "error", err)
			}
			return
		}
		select {
		case slots <- struct{}{}:
		case <-a.ctx.Done():
			conn.Close()
			return
		}
		wait.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			stop := context.AfterFunc(a.ctx, func() { conn.Close() })
			defer stop()
			if err := a.answerControl(conn); err != nil && a.ctx.Err() == nil {
				a.log.Warn("control connection", "error", err)
			}
		})
	}
}

func (a *agent) answerControl(conn net.Conn) error {
	if err := trusted(conn); err != nil {
		return err
	}
	var request controlRequest
	if err := readLine(conn, &request); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	answer := a.control(request)
	answer.Version = controlVersion
	if answer.Error == "" {
		status := a.status()
		answer.Status = &status
	}
	return writeLine(conn, answer)
}

// control does what is asked.
func (a *agent) control(r controlRequest) (answer controlAnswer) {
	var err error
	switch {
	case r.Version > controlVersion:
		err = fmt.Errorf("the agent that runs is of an earlier release; restart it (its jobs go on) and ask again")
	case r.Do == doStatus:
	case r.Do == doDrain:
		err = a.drainBegins(r.Kill, r.Reason)
	case r.Do == doClose:
		var closed bool
		closed, err = a.drains.close(a.idleAfter)
		answer.Busy = err == nil && !closed
	case r.Do == doCancel:
		answer.Out, err = a.drainCancelled()
	default:
		err = fmt.Errorf("the agent that runs does not know %q; restart it with this release (its jobs go on) and ask again", r.Do)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

// trusted refuses whoever may not end this agent's jobs anyway.
func trusted(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var who *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return controlErr
	}
	if err != nil {
		return fmt.Errorf("ask who connects: %w", err)
	}
	if who.Uid != 0 && int(who.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d refused", who.Uid)
	}
	return nil
}

// A socket's path has 107 bytes at most, and the data directory may be deeper
// than that: both sides name it through a descriptor of the directory.
func controlPath(dir string) (path string, done func(), err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open %q: %w", dir, err)
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(fd), controlSocket), func() { _ = unix.Close(fd) }, nil
}

// listenControl is for the holder of the directory's lock: a socket that is
// there was left by an agent that is gone.
func listenControl(dir string) (net.Listener, error) {
	path, done, err := controlPath(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an old control socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	l.SetUnlinkOnClose(false) // the path means nothing once the descriptor is closed
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("keep others from the control socket: %w", err)
	}
	return l, nil
}

var (
	// errNoAgent: nobody listens in the data directory.
	errNoAgent = errors.New("no agent runs")
	// errRefused: the agent has answered, and has done nothing.
	errRefused = errors.New("refused by the agent")
)

// ask has the agent of a data directory do something. errNoAgent and errRefused
// say that nothing was done; after another error it may have been, and asking
// again does no harm.
func ask(ctx context.Context, dir string, request controlRequest) (controlAnswer, error) {
	path, done, err := controlPath(dir)
	if err != nil {
		return controlAnswer{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return controlAnswer{}, errNoAgent
	}
	if err != nil {
		return controlAnswer{}, fmt.Errorf("reach the agent: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	request.Version = controlVersion
	var answer controlAnswer
	if err := writeLine(conn, request); err != nil {
		return answer, fmt.Errorf("ask the agent: %w", err)
	}
	if err := readLine(conn, &answer); err != nil {
		return answer, fmt.Errorf("the agent does not answer: %w", err)
	}
	if answer.Error != "" {
		return answer, fmt.Errorf("%w: %s", errRefused, answer.Error)
	}
	if answer.Status == nil {
		return answer, fmt.Errorf("%w: its answer has no status", errRefused)
	}
	return answer, nil
}

func writeLine(conn net.Conn, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	_, err = conn.Write(append(data, '\n'))
	return err
}

func readLine(conn net.Conn, v any) error {
	if err := conn.SetReadDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, controlLimit)).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}
