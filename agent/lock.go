package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

// ErrLocked says that another agent serves the data directory or the host.
var ErrLocked = errors.New("another agent runs here")

const (
	lockFile = "lock"
	// pidFile is where a supervisor looks for the process of a data directory.
	pidFile = "rcd.pid"
)

// lockPatience is how long a lock is tried for that no living process is known
// to hold: an agent that was killed in the middle of a fork leaves a child with
// all that it had open, until the child becomes a shim, and who drains a host
// without an agent keeps agents away for a moment.
const lockPatience = 5 * time.Second

// patiently calls try until it says that the lock is not an orphan, or the
// patience is over.
func patiently(try func() (orphan bool, err error)) error {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		if orphan, err := try(); !orphan || time.Now().After(deadline) {
			return err
		}
	}
}

// lockDir takes the data directory for this process and writes its pid file.
// The kernel releases the lock with the process. Without room for the pid file
// the lock holds all the same: jobs run here.
func lockDir(dir string, log *slog.Logger) (release func(), err error) {
	unlock, err := lockOnly(dir)
	if err != nil {
		return nil, err
	}
	remove, err := proc.WritePIDFile(filepath.Join(dir, pidFile))
	if err != nil {
		log.Error("who looks for this agent's process does not find it", "error", err)
		return unlock, nil
	}
	return func() { remove(); unlock() }, nil
}

// lockOnly is lockDir for a process that keeps agents away for a moment and is
// none itself.
func lockOnly(dir string) (release func(), err error) {
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = patiently(func() (orphan bool, err error) {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			who := "another process"
			id, alive := proc.ReadPIDFile(filepath.Join(dir, pidFile))
			if alive {
				who = fmt.Sprintf("process %d", id.PID)
			}
			return !alive, fmt.Errorf("%w: %s has data directory %s; stop it first", ErrLocked, who, dir)
		case err != nil:
			return false, fmt.Errorf("lock %q: %w", path, err)
		}
		return false, nil
	})
	if err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

// lockHost keeps a second agent with another data directory from serving the
// same host of the same cluster. The name is an abstract socket, which the
// kernel gives back with the process; the token is part of it, because one
// machine may carry hosts of several clusters.
func lockHost(host, token string) (release func(), err error) {
	addr := hostAddr(host, token)
	var listener *net.UnixListener
	err = patiently(func() (orphan bool, err error) {
		listener, err = net.ListenUnix("unix", addr)
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			who, alive := holder(addr)
			return !alive, fmt.Errorf("%w: %s serves host %s; stop it first", ErrLocked, who, host)
		case err != nil:
			return false, fmt.Errorf("lock host %s: %w", host, err)
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for { // who connects only wants to know the pid
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	return func() { listener.Close(); wait.Wait() }, nil
}

func hostAddr(host, token string) *net.UnixAddr {
	sum := sha256.Sum256([]byte(host + "\x00" + token))
	return &net.UnixAddr{Name: "@rcd-agent-" + hex.EncodeToString(sum[:16]), Net: "unix"}
}

// holder says which process listens, and whether it is known to be alive.
func holder(addr *net.UnixAddr) (who string, alive bool) {
	const unknown = "another process"
	conn, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return unknown, false // it may have ended just now
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return unknown, true
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil || peer.Pid == 0 {
		return unknown, true // in another PID namespace, say
	}
	id, err := proc.Identify(int(peer.Pid))
	return fmt.Sprintf("process %d", peer.Pid), err == nil && proc.Alive(id)
}

// machineID returns what names this machine across agents: the system's ID, or
// one that is made once and kept in the data directory.
func machineID(dataDir string, fresh func() string) (string, error) {
	if data, err := os.ReadFile("/etc/machine-id"); err == nil {
		if id := strings.TrimSpace(string(data)); id != "" && id != "uninitialized" {
			return id, nil
		}
	}
	path := filepath.Join(dataDir, "machine-id")
	data, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(data)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read machine ID: %w", err)
	}
	id := fresh()
	if err := writeDurably(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("keep machine ID: %w", err)
	}
	return id, nil
}
