package shim

import (
	"time"

	"rcd/agent/proc"
)

// reasonUnseen: the kernel knows of descendants that no look at the process table has caught.
const reasonUnseen = "the shim still has children, which start new ones faster than they can be looked for"

// childless tells whether the shim has no children any more, which a look at the process table cannot prove: whoever forks and ends all the time is gone
// when its turn comes, and the next one is not in the list. Zombies that somebody holds on to, as a debugger does, run no more and do not count.
func (s *supervisor) childless(r *reaper) bool {
	select {
	case <-r.childless:
		return true
	case <-time.After(lastWord):
	}
	held, err := proc.OnlyZombies(s.self)
	if err != nil {
		s.log.Error("look for children", "error", err)
	}
	return held
}
