package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of cgroups.
var (
	// ErrNoCgroup says that this process can have no cgroup for a job: no cgroup v2 hierarchy is mounted where it sees itself, or it may not make one.
	// Nothing was made.
	ErrNoCgroup = errors.New("no cgroup v2 to put jobs into")
	// ErrPopulated says that a cgroup cannot be removed yet, because a process is in it.
	ErrPopulated = errors.New("a process is still in the cgroup")
)

// ownerAttr is the extended attribute of a job's cgroup that says whose it is: installations that share a machine must not tidy up each other's.
const ownerAttr = "user.rc.job"

const (
	// cgroupPrefix and markLength let a job's cgroup be told from all others by its name: rc-JOB-MARK, the mark being random (crypto/rand.Text).
	cgroupPrefix = "rc-"
	markLength   = 26
	// jobNameLimit bounds what a cgroup's name takes of the job's id. The mark alone makes it unique.
	jobNameLimit = 60
)

// removePatience is how long an empty cgroup may refuse to go: the kernel lets the last process out a moment before it lets the cgroup go.
const removePatience = 200 * time.Millisecond

// MakeCgroup makes an empty cgroup for a job below the caller's own and returns its path. mark is the job's random mark, owner the job's directory, which
// JobCgroups tells later. The caller stays where it is. The error is ErrNoCgroup with what was tried.
func MakeCgroup(job, mark, owner string) (string, error) {
	places, err := cgroupPlaces()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCgroup, err)
	}
	if len(places) == 0 {
		return "", fmt.Errorf("%w: none is mounted that shows this process", ErrNoCgroup)
	}
	var problems []error
	for _, place := range places {
		path := filepath.Join(place, cgroupName(job, mark))
		if !onCgroupFS(place) {
			problems = append(problems, fmt.Errorf("%s is hidden by another mount", place))
			continue
		}
		if err := unix.Mkdir(path, 0o755); err != nil {
			problems = append(problems, fmt.Errorf("make %s: %w", path, err))
			continue
		}
		// A kernel that keeps no such attribute (before 5.7) cannot start a process in a cgroup either.
		if err := unix.Setxattr(path, ownerAttr, []byte(owner), 0); err != nil {
			problems = append(problems, fmt.Errorf("mark %s: %w", path, err), unix.Rmdir(path))
			continue
		}
		return path, nil
	}
	return "", fmt.Errorf("%w: %w", ErrNoCgroup, errors.Join(problems...))
}

// RemoveCgroup removes a job's cgroup with those that the job has made in it, and is content if there is none. ErrPopulated if a process is in one of
// them; empty ones may be gone then. It removes cgroups only, and takes up to 0.2 s if the kernel is slow.
func RemoveCgroup(path string) error {
	if !isJobCgroup(filepath.Base(path)) {
		return fmt.Errorf("remove cgroup: %s is not a job's", path)
	}
	for deadline := time.Now().Add(removePatience); ; time.Sleep(removePatience / 20) {
		populated, err := cgroupPopulated(path)
		if err != nil {
			return fmt.Errorf("remove cgroup: %w", err)
		}
		if populated {
			return fmt.Errorf("remove cgroup %s: %w", path, ErrPopulated)
		}
		err = removeBelow(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", path, err)
		}
	}
}

func removeBelow(path string) error {
	subs, err := subCgroups(path)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		if err := removeBelow(sub); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return unix.Rmdir(path)
}

func cgroupName(job, mark string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, job)
	return cgroupPrefix + plain[:min(len(plain), jobNameLimit)] + "-" + mark
}

func isJobCgroup(name string) bool {
	rest, ok := strings.CutPrefix(name, cgroupPrefix)
	at := strings.LastIndexByte(rest, '-')
	if !ok || at < 0 || len(rest)-at-1 != markLength {
		return false
	}
	for _, r := range rest[at+1:] {
		if (r < 'A' || r > 'Z') && (r < '2' || r > '7') {
			return false
		}
	}
	return true
}

// cgroupPlaces returns the directories in which the caller's own cgroup can be seen, none if it is in no mounted hierarchy of version 2.
func cgroupPlaces() ([]string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find own cgroup: %w", err)
	}
	mounts, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	return placesIn(mounts, string(own)), nil
}

// cgroupMount is a mounted cgroup v2 hierarchy, or a part of one.
type cgroupMount struct {
	root  string // the cgroup that is seen at point
	point string
}

func cgroupMounts() ([]cgroupMount, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroup mounts: %w", err)
	}
	return parseMounts(string(info)), nil
}

// parseMounts picks the cgroup v2 mounts from mountinfo, a hybrid host's included.
func parseMounts(info string) (mounts []cgroupMount) {
	for line := range strings.Lines(info) {
		// Optional fields end at a lone hyphen; behind it stands the type.
		head, tail, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(head), strings.Fields(tail)
		if ok && len(fields) >= 5 && len(kind) > 0 && kind[0] == "cgroup2" {
			mounts = append(mounts, cgroupMount{root: unescape(fields[3]), point: unescape(fields[4])})
		}
	}
	return mounts
}

// placesIn finds a process's cgroup, as told by its /proc/PID/cgroup, in the mounts.
func placesIn(mounts []cgroupMount, own string) (places []string) {
	path := ""
	for line := range strings.Lines(own) {
		if at, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = at
		}
	}
	// What begins with /.. lies outside the cgroup namespace, and a deleted one takes no children.
	if !strings.HasPrefix(path, "/") || outside(path) || strings.HasSuffix(path, " (deleted)") {
		return nil
	}
	for _, m := range mounts {
		if outside(m.root) {
			continue
		}
		below, ok := strings.CutPrefix(path, strings.TrimSuffix(m.root, "/"))
		if ok && (below == "" || below[0] == '/') {
			places = append(places, filepath.Join(m.point, below))
		}
	}
	return places
}

func outside(path string) bool { return path == "/.." || strings.HasPrefix(path, "/../") }

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}

func onCgroupFS(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}
