package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupLimit bounds how many cgroups of one job are read for their processes. A job may make any number; those beyond are not named, but the job does
// not count as ended while anybody is in one, for the kernel says that of the whole.
const cgroupLimit = 4096

// cgroupPopulated tells whether any process is in the cgroup or one below it, also one that the caller cannot see; zombies do not count. false if the
// cgroup is gone.
func cgroupPopulated(path string) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(path, "cgroup.events"))
	if gone(err) {
		return false, cgroupGone(path)
	}
	if err != nil {
		return false, fmt.Errorf("read cgroup: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "populated "); ok {
			return strings.TrimSpace(value) != "0", nil
		}
	}
	return false, fmt.Errorf("read cgroup: %s/cgroup.events does not say whether it is populated", path)
}

// cgroupGone returns nil if the cgroup has been removed, and an error if the whole hierarchy is out of sight, where nothing is known about it.
func cgroupGone(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if onCgroupFS(dir) {
			return nil
		}
		return fmt.Errorf("look for cgroup %s: there is no cgroup v2 at %s", path, dir)
	}
}

// gone is true for what a cgroup that is being removed, or was, answers.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// cgroupPIDs returns the pids in the cgroup and all below it, in no order. 0 stands for each process outside the caller's pid namespace. A process that
// enters or leaves meanwhile may be missing.
func cgroupPIDs(path string) ([]int, error) {
	var pids []int
	todo := []string{path}
	for n := 0; len(todo) > 0 && n < cgroupLimit; n++ {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		threads := errors.Is(err, unix.EOPNOTSUPP)
		if threads { // a threaded cgroup names no processes
			raw, err = os.ReadFile(filepath.Join(dir, "cgroup.threads"))
		}
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read cgroup: %w", err)
		}
		for _, field := range bytes.Fields(raw) {
			pid, err := strconv.Atoi(string(field))
			if err != nil {
				return nil, fmt.Errorf("read cgroup %s: %w", dir, err)
			}
			if threads {
				pid = processOf(pid)
			}
			pids = append(pids, pid)
		}
		subs, err := subCgroups(dir)
		if err != nil {
			return nil, fmt.Errorf("read cgroup: %w", err)
		}
		todo = append(todo, subs...)
	}
	return pids, nil
}

// processOf returns the process that a thread belongs to, 0 if it cannot be seen.
func processOf(thread int) int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(value))
			return pid
		}
	}
	return 0
}

// subCgroups returns the cgroups right below one, none if it is gone.
func subCgroups(path string) (subs []string, err error) {
	entries, err := os.ReadDir(path)
	if gone(err) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() {
			subs = append(subs, filepath.Join(path, e.Name()))
		}
	}
	return subs, err
}

// killCgroup has the kernel end everybody in the cgroup and below it at once, whom they are forking just now included. It is not done if the caller or one
// of its ancestors is in there, whom no job may take along. A failure is answered by signals one by one, and by the look after.
func killCgroup(path string) {
	pids, err := cgroupPIDs(path)
	if err != nil {
		return
	}
	line := ownLine()
	for _, pid := range pids {
		if line[pid] {
			return
		}
	}
	// Since kernel 5.14, and not for threaded ones.
	_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
}

// ownLine returns the pids of the caller and its ancestors, and 1. Bounded, for what is read while it changes may hold a loop.
func ownLine() map[int]bool {
	line := map[int]bool{1: true}
	for pid := os.Getpid(); pid > 0 && len(line) < lineLimit; {
		line[pid] = true
		p, err := readStat(pid)
		if err != nil || line[p.Parent] {
			break
		}
		pid = p.Parent
	}
	return line
}

// JobCgroup is a cgroup that some installation on this machine made for a job.
type JobCgroup struct {
	Path      string
	Owner     string // the job's directory; empty if it cannot be read
	Populated bool   // a process is in it, or below
}

// JobCgroups returns the cgroups of jobs in every hierarchy of version 2 that the caller can see, in no order, those of other installations included. A
// cgroup that the caller itself runs in is left out, not those below it.
func JobCgroups() ([]JobCgroup, error) {
	mounts, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	places, err := cgroupPlaces()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool) // names, which are unique: a hierarchy may be mounted twice
	var list []JobCgroup
	for _, m := range mounts {
		if !onCgroupFS(m.point) {
			continue
		}
		err := filepath.WalkDir(m.point, func(path string, d fs.DirEntry, err error) error {
			switch {
			case gone(err):
				return nil
			case err != nil:
				return err
			case !d.IsDir() || !isJobCgroup(d.Name()) || contains(path, places):
				return nil
			case seen[d.Name()]:
				return fs.SkipDir
			}
			seen[d.Name()] = true
			c := JobCgroup{Path: path, Owner: ownerOf(path)}
			c.Populated, err = cgroupPopulated(path)
			if err != nil {
				return err
			}
			list = append(list, c)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look for cgroups of jobs: %w", err)
		}
	}
	return list, nil
}

// contains tells whether one of the places is path or below it.
func contains(path string, places []string) bool {
	for _, place := range places {
		if place == path || strings.HasPrefix(place, path+"/") {
			return true
		}
	}
	return false
}

func ownerOf(path string) string {
	raw := make([]byte, unix.PathMax)
	n, err := unix.Getxattr(path, ownerAttr, raw)
	if err != nil {
		return ""
	}
	return string(raw[:n])
}
