package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// JobIDName is the environment variable that names the job a process belongs to.
const JobIDName = "RC_JOB_ID"

// Check is what a look for the remains of jobs found.
type Check struct {
	// Checked is false when an environment could not be read: then nothing is proven, whatever Found says.
	Checked bool
	// Found are the processes that carry a job, or are in the cgroup of one, and stand in none of the known trees, with their command lines. One with the
	// zero ID stands for those in a cgroup that are out of sight.
	Found []Process
	// Unreadable names the first process that could not be read, and how many more there are, for the log.
	Unreadable string
}

// exitPatience is how long a look waits for processes that are on their way out and can no longer be asked whose they are.
const exitPatience = time.Second

// Survivors looks at every process of the host for one that carries a non-empty RC_JOB_ID, or is in a job's cgroup, and belongs to none of the known
// trees: the proof that a device can be given out again. The processes named by a target's Above count as known too; so do the caller and its ancestors, which may
// run in a job themselves. Of processes that cannot be seen, for they are in another PID namespace, those count that are in the cgroup of a job whose
// directory is right below jobs, or is not known: another installation's are no business of this host's devices. It takes up to a second if processes are just ending.
func Survivors(known []Target, jobs string) (Check, error) {
	for deadline := time.Now().Add(exitPatience); ; time.Sleep(lastPause) {
		check, leaving, err := lookForSurvivors(known, jobs)
		if err != nil || len(leaving) == 0 {
			return check, err
		}
		if time.Now().After(deadline) {
			// Stuck in its exit, with its devices perhaps still open.
			check.Checked = false
			if check.Unreadable == "" {
				check.Unreadable = fmt.Sprintf("process %d (%s), which hangs in its exit", leaving[0].PID, leaving[0].Command)
			}
			return check, nil
		}
	}
}

func lookForSurvivors(known []Target, jobs string) (check Check, leaving []Process, err error) {
	list, closed, err := visible()
	if err != nil {
		return Check{}, nil, err
	}
	excluded := make(map[ID]bool)
	for _, t := range known {
		members, err := Find(t)
		if err != nil {
			return Check{}, nil, err
		}
		for _, p := range members {
			excluded[p.ID] = true
		}
		excluded[t.Above] = true
	}
	s := scan{list: list, byPID: make(map[int]int, len(list))}
	for i, p := range list {
		s.byPID[p.PID] = i
	}
	own := s.selfAndAncestors()
	inCgroups, unseen, err := s.cgroupsBeyond(known, jobs)
	if err != nil {
		return Check{}, nil, err
	}
	check.Found, check.Checked = unseen, true
	unread := 0
	for _, p := range list {
		if excluded[p.ID] || own[p.PID] || p.kernelThread() {
			continue
		}
		if inCgroups[p.PID] {
			check.Found = append(check.Found, p)
			continue
		}
		env, err := environ(p.PID)
		switch {
		case errors.Is(err, ErrGone):
		case errors.Is(err, os.ErrPermission):
			check.Checked = false
			if unread++; check.Unreadable == "" {
				check.Unreadable = fmt.Sprintf("process %d (%s)", p.PID, p.Command)
			}
		case err != nil:
			return Check{}, nil, err
		case valueOf(env, JobIDName) != "":
			check.Found = append(check.Found, p)
		case p.exiting() && len(env) == 0:
			leaving = append(leaving, p)
		}
	}
	if unread > 1 {
		check.Unreadable += fmt.Sprintf(" and %d more", unread-1)
	}
	if closed > 0 {
		check.Checked, check.Unreadable = false, fmt.Sprintf("%d of other users", closed)
	}
	if why := hidden(); why != "" {
		check.Checked, check.Unreadable = false, why
	}
	check.Found = Describe(check.Found)
	return check, leaving, nil
}

// cgroupsBeyond returns who is in the cgroup of a job that is none of the known ones: the pids that the scan saw, and one process for each cgroup that has
// members out of sight and no others, and may be of a job whose directory was below jobs.
func (s *scan) cgroupsBeyond(known []Target, jobs string) (pids map[int]bool, unseen []Process, err error) {
	cgroups, err := JobCgroups()
	if err != nil {
		return nil, nil, err
	}
	ours := make(map[string]bool) // by name: the hierarchy may be mounted twice
	for _, t := range known {
		if t.Cgroup != "" {
			ours[filepath.Base(t.Cgroup)] = true
		}
	}
	pids = make(map[int]bool)
	for _, c := range cgroups {
		within := slices.ContainsFunc(strings.Split(c.Path, "/"), func(name string) bool { return ours[name] })
		if !c.Populated || within {
			continue
		}
		members, err := cgroupPIDs(c.Path)
		if err != nil {
			return nil, nil, err
		}
		visible := false
		for _, pid := range members {
			if _, ok := s.byPID[pid]; ok {
				visible, pids[pid] = true, true
			}
		}
		if !visible && (c.Owner == "" || filepath.Dir(c.Owner) == jobs) {
			unseen = append(unseen, unseenIn(c.Path))
		}
	}
	return pids, unseen, nil
}
