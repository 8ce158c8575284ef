package proc

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// commandLimit bounds the command line that is kept of a process, in bytes: enough for a person to know it by.
const commandLimit = 200

// Process is one line of the process table.
type Process struct {
	ID
	Parent  int
	Group   int
	Session int
	Command string // the kernel's short name; Describe puts the command line here

	state   byte
	threads int
	flags   uint64
}

// flagExiting is PF_EXITING of the kernel.
const flagExiting = 0x4

// exiting is true for a process on its way out. It has given up its memory, and with it its environment, but perhaps not yet its open devices.
func (p Process) exiting() bool { return p.flags&flagExiting != 0 }

// running is false for a zombie. A zombie whose other threads live on still runs, still holds its memory and its devices.
func (p Process) running() bool {
	if p.state == 'Z' || p.state == 'X' {
		return p.threads > 1
	}
	return true
}

// List returns every process that runs at this moment and that the caller may look at, zombies left out, in no order. A process that starts or ends
// meanwhile may be missing.
func List() ([]Process, error) {
	list, _, err := visible()
	return list, err
}

// visible is List that also returns how many processes may not be looked at.
func visible() (list []Process, closed int, err error) {
	table, closed, err := readTable()
	return slices.DeleteFunc(table, func(p Process) bool { return !p.running() }), closed, err
}

// readTable is visible with the zombies.
func readTable() (list []Process, closed int, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	list = make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := readStat(pid)
		if errors.Is(err, ErrGone) {
			continue
		}
		if errors.Is(err, os.ErrPermission) { // another user's, listed but closed: nobody whom the caller could end
			closed++
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		list = append(list, p)
	}
	return list, closed, nil
}

// zombiePause lies between two looks at zombies that nobody takes.
const zombiePause = 100 * time.Millisecond

// OnlyZombies tells whether a process has children and all of them have ended, the same ones at two looks 0.1 s apart: those that a tracer keeps from
// their parent. A living child makes it false, and so do children that come and go.
func OnlyZombies(parent ID) (bool, error) {
	before, err := zombiesOf(parent)
	if err != nil || len(before) == 0 {
		return false, err
	}
	time.Sleep(zombiePause)
	after, err := zombiesOf(parent)
	return err == nil && maps.Equal(before, after), err
}

// zombiesOf returns the children of a process if all of them are zombies.
func zombiesOf(parent ID) (map[ID]bool, error) {
	table, _, err := readTable()
	if err != nil {
		return nil, err
	}
	zombies := make(map[ID]bool)
	for _, p := range table {
		if p.Parent != parent.PID || p.Start < parent.Start {
			continue
		}
		if p.running() {
			return nil, nil
		}
		zombies[p.ID] = true
	}
	return zombies, nil
}

// Describe replaces each short name by the command line, where there is one.
func Describe(list []Process) []Process {
	for i := range list {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", list[i].PID))
		if err != nil || len(raw) == 0 {
			continue
		}
		if len(raw) > commandLimit {
			raw = raw[:commandLimit]
		}
		line := strings.ToValidUTF8(string(bytes.ReplaceAll(bytes.TrimRight(raw, "\x00"), []byte{0}, []byte{' '})), "?")
		if line = strings.TrimSpace(line); line != "" {
			list[i].Command = line
		}
	}
	return list
}

// readStat parses /proc/PID/stat. The name stands in parentheses and may itself hold blanks and parentheses, so fields count from the last one.
func readStat(pid int) (Process, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return Process{}, ErrGone
		}
		return Process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return parseStat(pid, raw)
}

func parseStat(pid int, raw []byte) (Process, error) {
	open, shut := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if open < 0 || shut < open {
		return Process{}, fmt.Errorf("read process %d: stat line %.80q has no name", pid, raw)
	}
	// From here on the first field is number 3 of proc(5).
	fields := bytes.Fields(raw[shut+1:])
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("read process %d: stat line has %d fields", pid, len(fields)+2)
	}
	p := Process{Command: strings.ToValidUTF8(string(raw[open+1:shut]), "?"), state: fields[0][0]}
	p.PID = pid
	for _, f := range []struct {
		at int
		to *int
	}{{1, &p.Parent}, {2, &p.Group}, {3, &p.Session}, {17, &p.threads}} {
		n, err := strconv.Atoi(string(fields[f.at]))
		if err != nil {
			return Process{}, fmt.Errorf("read process %d: field %d: %w", pid, f.at+3, err)
		}
		*f.to = n
	}
	for _, f := range []struct {
		at int
		to *uint64
	}{{6, &p.flags}, {19, &p.Start}} {
		n, err := strconv.ParseUint(string(fields[f.at]), 10, 64)
		if err != nil {
			return Process{}, fmt.Errorf("read process %d: field %d: %w", pid, f.at+3, err)
		}
		*f.to = n
	}
	return p, nil
}
