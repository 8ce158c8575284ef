package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

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

// lockDir takes the data directory for this process and writes its pid file.
// The kernel releases the lock with the process.
func lockDir(dir string) (release func(), err error) {
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			who := "another process"
			if id, alive := proc.ReadPIDFile(filepath.Join(dir, pidFile)); alive {
				who = fmt.Sprintf("process %d", id.PID)
			}
			return nil, fmt.Errorf("%w: %s has data directory %s; stop it first", ErrLocked, who, dir)
		}
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	remove, err := proc.WritePIDFile(filepath.Join(dir, pidFile))
	if err != nil {
		file.Close()
		return nil, err
	}
	return func() { remove(); file.Close() }, nil
}

// lockHost keeps a second agent with another data directory from serving the
// same host of the same cluster. The name is an abstract socket, which the
// kernel gives back with the process; the token is part of it, because one
// machine may carry hosts of several clusters.
func lockHost(host, token string) (release func(), err error) {
	sum := sha256.Sum256([]byte(host + "\x00" + token))
	name := "@rcd-agent-" + hex.EncodeToString(sum[:16])
	addr := &net.UnixAddr{Name: name, Net: "unix"}
	listener, err := net.ListenUnix("unix", addr)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %s serves host %s; stop it first", ErrLocked, holder(addr), host)
	}
	if err != nil {
		return nil, fmt.Errorf("lock host %s: %w", host, err)
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

// holder says which process listens.
func holder(addr *net.UnixAddr) string {
	const unknown = "another process"
	conn, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return unknown
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return unknown
	}
	var who *unix.Ucred
	if raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return unknown
	}
	return fmt.Sprintf("process %d", who.Pid)
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
