package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// environ returns the environment that the process was started with, one NUL after each entry. ErrGone if it ended; any other error means that
// nothing is known about it.
func environ(pid int) ([]byte, error) {
	env, err := readEnviron("/proc/" + strconv.Itoa(pid) + "/environ")
	if len(env) > 0 || err != nil && !errors.Is(err, ErrGone) {
		return env, err
	}
	// A first thread that has ended has none, and the process may go on without it.
	if p, gone := readStat(pid); gone != nil || p.state != 'Z' || !p.running() {
		return env, err
	}
	return threadEnviron(pid)
}

// threadEnviron returns the environment of a process as any of its threads has it. Without one it is empty: all are on their way out.
func threadEnviron(pid int) ([]byte, error) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(tasks)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("read environment: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // what is there of it
	for _, name := range names {
		env, err := readEnviron(tasks + "/" + name + "/environ")
		if len(env) > 0 || err != nil && !errors.Is(err, ErrGone) {
			return env, err
		}
	}
	return nil, nil
}

func readEnviron(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	switch {
	case err == nil:
		return raw, nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return nil, ErrGone
	}
	return nil, fmt.Errorf("read environment: %w", err)
}

// hasEntry tells whether the environment holds exactly this NAME=VALUE.
func hasEntry(env []byte, entry string) bool {
	for len(env) > 0 {
		one, rest, _ := bytes.Cut(env, []byte{0})
		if string(one) == entry {
			return true
		}
		env = rest
	}
	return false
}

// valueOf returns the value of a name in an environment, empty if it is not there.
func valueOf(env []byte, name string) string {
	for len(env) > 0 {
		one, rest, _ := bytes.Cut(env, []byte{0})
		if n, v, ok := bytes.Cut(one, []byte{'='}); ok && string(n) == name {
			return string(v)
		}
		env = rest
	}
	return ""
}
