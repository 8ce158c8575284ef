package shim

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"rcd/agent/proc"
)

const cgroupFile = "cgroup.cbor"

// kindCgroup is the record of a job's cgroup.
const kindCgroup = 5

// cgroupRecord says where the job's own cgroup is. It is a file of its own, and no field of the process record, because an agent of an earlier release
// refuses one with a field that it does not know. No file: the job has none.
type cgroupRecord struct {
	Path string `cbor:"1,keyasint"`
}

// makeCgroup is replaced by tests of hosts without one.
var makeCgroup = proc.MakeCgroup

// enclose makes the cgroup that the job is born into, and puts down where it is. The job goes without where there can be none: a host without cgroup v2,
// or an agent that may not make one.
func (s *supervisor) enclose() {
	path, err := makeCgroup(s.order.Spec.JobID, s.order.Mark, s.dir)
	if err != nil {
		s.log.Warn("the job runs without a cgroup: should this shim die, a process that left session and environment would not be found", "error", err)
		return
	}
	if err := writeRecord(s.dir, cgroupFile, kindCgroup, cgroupRecord{Path: path}, replace); err != nil {
		s.log.Error("the job runs without a cgroup", "error", errors.Join(err, proc.RemoveCgroup(path)))
		return
	}
	s.cgroup = path
}

// fork starts the main process inside the job's cgroup, so that no child of it can ever be outside. If the kernel refuses that, or the program cannot be
// run, nothing has run, and it is tried once more the plain way.
func (s *supervisor) fork(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if s.cgroup == "" {
		return syscall.ForkExec(path, argv, attr)
	}
	dir, err := os.Open(s.cgroup)
	if err == nil {
		defer func() { _ = dir.Close() }()
		inside, sys := *attr, *attr.Sys
		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
		inside.Sys = &sys
		var pid int
		if pid, err = syscall.ForkExec(path, argv, &inside); err == nil {
			return pid, nil
		}
	}
	pid, plainErr := syscall.ForkExec(path, argv, attr)
	if plainErr == nil {
		s.log.Warn("the job runs outside its cgroup", "cgroup", s.cgroup, "error", err)
	}
	return pid, plainErr
}

// disband removes the cgroup of a job that has ended. What cannot go now goes with the directory, or when an agent starts.
func (s *supervisor) disband() {
	if s.cgroup == "" {
		return
	}
	if err := proc.RemoveCgroup(s.cgroup); err != nil {
		s.log.Error("remove the job's cgroup", "error", err)
	}
}

// cgroupOf returns the cgroup of the job in a directory, "" if it has none.
func cgroupOf(dir string) (string, error) {
	var rec cgroupRecord
	err := readRecord(dir, cgroupFile, kindCgroup, &rec)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return rec.Path, err
}

// removeCgroupOf removes the cgroup of a job that has ended, if it is still there. An error if a process is in it.
func removeCgroupOf(dir string) error {
	path, err := cgroupOf(dir)
	if errors.Is(err, ErrCorrupt) || path == "" && err == nil {
		return nil // RemoveCgroups finds it by its owner
	}
	if err != nil {
		return err
	}
	return proc.RemoveCgroup(path)
}

// removeCgroupsByMark removes the cgroup of a job whose shim has died. It is found by its name, for a shim may die before it has put down or marked what it
// has made.
func removeCgroupsByMark(mark string) error {
	paths, err := cgroupsByMark(mark)
	if err != nil {
		return err
	}
	var problems []error
	for _, path := range paths {
		problems = append(problems, proc.RemoveCgroup(path))
	}
	return errors.Join(problems...)
}

func cgroupsByMark(mark string) (paths []string, err error) {
	list, err := proc.JobCgroups()
	for _, c := range list {
		if strings.HasSuffix(c.Path, "-"+mark) {
			paths = append(paths, c.Path)
		}
	}
	return paths, err
}

// RemoveCgroups removes what interrupted ends have left: the empty cgroups of jobs whose directory was right below jobs and is gone, or holds a result. Those
// of running jobs, of other installations and those with a process in them are left alone. jobs is the path that the jobs were started with. An error
// means that some may be left, which costs nothing but the place.
func RemoveCgroups(jobs string, log *slog.Logger) error {
	list, err := proc.JobCgroups()
	if err != nil {
		return err
	}
	var problems []error
	for _, c := range list {
		if c.Populated || filepath.Dir(c.Owner) != jobs || !over(c.Owner) {
			continue
		}
		if err := proc.RemoveCgroup(c.Path); err != nil && !errors.Is(err, proc.ErrPopulated) {
			problems = append(problems, err)
			continue
		}
		log.Info("removed what was left of a job", "cgroup", c.Path)
	}
	return errors.Join(problems...)
}

// over tells whether a directory holds no job that may still be about to run.
func over(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, specName)); errors.Is(err, os.ErrNotExist) {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, resultName))
	return err == nil
}
