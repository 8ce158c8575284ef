package proc

// bySession takes in the session of a root that is still there, be it as a zombie: as long as it is, its pid is nobody else's.
func (s *scan) bySession() {
	if root := s.target.Root; s.sees(root) || Exists(root) {
		for _, i := range s.inSession() {
			s.add(i)
		}
	}
}

// byLostSession takes in the session of a root that is gone if any of its members is known to belong to the job: then the number has been the job's all the
// time. It returns them as doubtful if none is. A living Above is above whoever the job has started, so they are strangers then. known are members that were
// found before.
func (s *scan) byLostSession(known map[ID]Process) (doubtful []Process) {
	members := s.inSession()
	t := s.target
	certain := len(t.Marks) == 0 && t.Above.Zero() && t.Cgroup == "" // nothing else can tell
	for _, i := range members {
		_, seen := known[s.list[i].ID]
		certain = certain || s.in[i] || seen
	}
	for _, i := range members {
		switch {
		case certain:
			s.add(i)
		case !s.never[s.list[i].PID] && !s.sees(t.Above):
			doubtful = append(doubtful, s.list[i])
		}
	}
	return doubtful
}

// inSession returns who is in the session that has the root's number, nobody if another process has its pid: then the session is empty.
func (s *scan) inSession() (members []int) {
	root := s.target.Root
	if i, ok := s.byPID[root.PID]; root.Zero() || ok && s.list[i].ID != root {
		return nil
	}
	for i, p := range s.list {
		if p.Session == root.PID && p.Start >= root.Start {
			members = append(members, i)
		}
	}
	return members
}

// sees tells whether the scan has seen that very process.
func (s *scan) sees(id ID) bool {
	i, ok := s.byPID[id.PID]
	return ok && s.list[i].ID == id
}
