package proc

import (
	"errors"
	"os"
)

// Target says which processes belong to one job. Whoever meets any of the rules belongs to it, and so do all descendants of whoever does.
type Target struct {
	// Root is the job's main process, the leader of its session. Everybody in that session belongs to the job. After Root has ended the session
	// number keeps its meaning while anybody is left in it, for the kernel does not give out a pid that is in use as a session. Once nobody is, it may
	// come to be a stranger's: so without Root one of those in it must be known for the job's by another rule, if there is another. If none is, they are
	// in doubt, unless Above runs, which would be above them.
	Root ID
	// Above is a child subreaper with nothing else below it: all its descendants belong to the job, itself not.
	Above ID
	// Marks are NAME=VALUE entries; a process that carries all of them in its environment belongs to the job.
	Marks []string
	// Since is the earliest start time that Marks are believed for, in ticks since boot: what is older cannot be of this job, and belongs for
	// instance to a job of the same number in another installation that this one itself runs in. Zero: Root's start.
	Since uint64
	// Cgroup is the path of the job's own cgroup, empty if it has none: everybody in it or below it belongs to the job, whatever they have done to their
	// session, parent and environment. One that is gone is an empty one.
	Cgroup string
}

// lineLimit bounds a line of ancestors.
const lineLimit = 1000

// Find returns who runs in the tree at this moment, in no order. The calling process and its ancestors are never part of it, nor is who is in doubt. One
// scan can miss a process that is being forked during the scan; KillTree looks again. With a cgroup nobody is missed: if the kernel says that somebody is
// in it whom the scan did not see, and it saw nobody else, there is one process with the zero ID whose Command says so.
func Find(t Target) ([]Process, error) {
	found, _, err := find(t, nil)
	return found, err
}

// find is Find that also returns who is in doubt. known are members that were found before.
func find(t Target, known map[ID]Process) (found, doubtful []Process, err error) {
	list, err := List()
	if err != nil {
		return nil, nil, err
	}
	s := scan{target: t, list: list, byPID: make(map[int]int, len(list)), children: make(map[int][]int, len(list)), in: make(map[int]bool)}
	for i, p := range list {
		s.byPID[p.PID] = i
		s.children[p.Parent] = append(s.children[p.Parent], i)
	}
	s.never = s.selfAndAncestors()
	s.bySession()
	s.byDescent()
	if err := s.byMarks(); err != nil {
		return nil, nil, err
	}
	// Late, so that whoever was seen and is in the cgroup now was in it then.
	unseen, err := s.byCgroup()
	if err != nil {
		return nil, nil, err
	}
	doubtful = s.byLostSession(known)
	for i := range s.list {
		if s.in[i] {
			found = append(found, s.list[i])
		}
	}
	if len(found) == 0 && unseen {
		found = append(found, unseenIn(t.Cgroup))
	}
	return found, doubtful, nil
}

// unseenIn stands for processes that are in a cgroup and not to be seen: just forked, or in another pid namespace.
func unseenIn(cgroup string) Process {
	return Process{Command: "processes out of sight in cgroup " + cgroup}
}

// scan is one look at the process table. Members are indexes into list.
type scan struct {
	target   Target
	list     []Process
	byPID    map[int]int
	children map[int][]int
	never    map[int]bool // pids
	in       map[int]bool
}

func (s *scan) selfAndAncestors() map[int]bool {
	never := map[int]bool{1: true, os.Getpid(): true}
	for _, pid := range s.ancestors(os.Getpid()) {
		never[pid] = true
	}
	return never
}

// ancestors returns the pids above pid, parent first. Bounded, for a table read while it changes may hold a loop.
func (s *scan) ancestors(pid int) []int {
	var up []int
	for len(up) < lineLimit {
		i, ok := s.byPID[pid]
		if !ok || s.list[i].Parent <= 0 {
			break
		}
		pid = s.list[i].Parent
		up = append(up, pid)
	}
	return up
}

// add takes a process and its descendants in. The caller's own line is left out, but not what hangs below a member.
func (s *scan) add(i int) {
	if s.in[i] || s.never[s.list[i].PID] {
		return
	}
	s.in[i] = true
	s.addBelow(i)
}

// addBelow leaves out who is older than its parent: the table is not read in one moment, and the pid of a parent that ended meanwhile may be that of a
// process of the job now.
func (s *scan) addBelow(parent int) {
	for _, child := range s.children[s.list[parent].PID] {
		if s.list[child].Start >= s.list[parent].Start {
			s.add(child)
		}
	}
}

func (s *scan) byDescent() {
	if i, ok := s.byPID[s.target.Root.PID]; ok && s.list[i].ID == s.target.Root {
		s.add(i)
	}
	if i, ok := s.byPID[s.target.Above.PID]; ok && s.list[i].ID == s.target.Above {
		s.addBelow(i)
	}
}

// byMarks reads environments, the costly part, only of processes young enough that nothing else has claimed.
func (s *scan) byMarks() error {
	if len(s.target.Marks) == 0 {
		return nil
	}
	since := s.target.Since
	if since == 0 {
		since = s.target.Root.Start
	}
	for i, p := range s.list {
		if s.in[i] || s.never[p.PID] || p.Start < since {
			continue
		}
		env, err := environ(p.PID)
		if errors.Is(err, ErrGone) || errors.Is(err, os.ErrPermission) {
			// A process of another user that we may not read we could not signal either.
			continue
		}
		if err != nil {
			return err
		}
		carries := true
		for _, mark := range s.target.Marks {
			carries = carries && hasEntry(env, mark)
		}
		if carries && Exists(p.ID) { // and not one that has got its pid meanwhile
			s.add(i)
		}
	}
	return nil
}

// byCgroup tells whether the cgroup has members that the scan did not see.
func (s *scan) byCgroup() (unseen bool, err error) {
	if s.target.Cgroup == "" {
		return false, nil
	}
	populated, err := cgroupPopulated(s.target.Cgroup)
	if err != nil || !populated {
		return false, err
	}
	pids, err := cgroupPIDs(s.target.Cgroup)
	if err != nil {
		return false, err
	}
	unseen = len(pids) == 0
	for _, pid := range pids {
		if s.never[pid] {
			continue
		}
		// The cgroup names the process that has the pid now, which must be the one that was listed.
		if i, ok := s.byPID[pid]; ok && Exists(s.list[i].ID) {
			s.add(i)
		} else {
			unseen = true
		}
	}
	return unseen, nil
}
