package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rcd/agent/proc"
	"rcd/wire"
)

const (
	// proofAge is how long a look at the process table is good for: while no leader
	// is found, hellos follow each other fast, and a look reads every process.
	proofAge = time.Second
	// sayAgain is the least time between two lines about processes that are left:
	// their numbers may change as fast as they can fork.
	sayAgain = 10 * time.Second
)

// proofCache is the last look.
type proofCache struct {
	// orders counts those that were taken: a look from before an order says
	// nothing about what it began.
	orders atomic.Uint64

	mu    sync.Mutex // guards what follows
	last  wire.HostProof
	at    time.Time
	after uint64 // orders, when the look began
	said  sayings
}

// proof says what the host can about processes of earlier jobs. The trees of
// jobs that this agent supervises do not count: they are named beside it. That
// the agent is alone in its namespace is looked at each time, too: it runs jobs
// itself, and others can join it.
func (a *agent) proof() wire.HostProof {
	c := &a.proofs
	c.mu.Lock()
	defer c.mu.Unlock()
	after := c.orders.Load()
	if !c.at.IsZero() && time.Since(c.at) < proofAge && c.after == after {
		return c.last
	}
	p := wire.HostProof{Isolated: proc.Alone()}
	trees, starting := a.trees()
	check, err := proc.Survivors(trees, filepath.Join(a.config.DataDir, jobsDir))
	unread := ""
	switch {
	case err != nil:
		unread = err.Error()
	case !check.Checked:
		unread = check.Unreadable
	default:
		p.SurvivorsChecked, p.SurvivorsFound = true, len(check.Found) > 0
	}
	left := named(check.Found)
	switch {
	case left != "":
		p.Detail = cut(left)
	case unread != "":
		p.Detail = cut("cannot be read: " + unread)
	}
	if left == "" || !starting { // what a job has that is just being started is not known yet
		c.said.say(a.log, left, unread, time.Now())
	}
	c.last, c.at, c.after = p, time.Now(), after
	return p
}

// named lists processes by pid, so that the same ones give the same text.
func named(list []proc.Process) string {
	list = slices.Clone(list)
	slices.SortFunc(list, func(x, y proc.Process) int {
		return cmp.Or(cmp.Compare(x.PID, y.PID), cmp.Compare(x.Command, y.Command))
	})
	var parts []string
	for _, p := range list {
		if p.Zero() {
			parts = append(parts, p.Command)
			continue
		}
		parts = append(parts, fmt.Sprintf("pid %d (%s)", p.PID, p.Command))
	}
	return strings.Join(parts, ", ")
}

// sayings is what the log has of the looks: who keeps devices out, once for each
// change, and that nobody does any more.
type sayings struct {
	left   string    // as it was said last
	at     time.Time // when
	unread bool
}

func (s *sayings) say(log *slog.Logger, left, unread string, now time.Time) {
	switch {
	case left == "" && s.left != "":
		log.Info("no process of an earlier job is left", "were", cut(s.left))
		s.left = ""
	case left != s.left && (s.left == "" || now.Sub(s.at) >= sayAgain):
		log.Warn("processes of jobs that this agent does not supervise: no device comes back from quarantine by itself before they are gone; end them",
			"processes", cut(left))
		s.left, s.at = left, now
	}
	switch {
	case unread != "" && !s.unread:
		log.Warn("not every process can be looked at, so nothing is proven and devices in quarantine wait for rc clear; run the agent as root with CAP_SYS_PTRACE",
			"unread", cut(unread))
	case unread == "" && s.unread:
		log.Info("every process can be looked at again")
	}
	s.unread = unread != ""
}

// trees returns what belongs to the jobs that run and to the scripts that look
// after their devices, and whether there are jobs whose processes are not known
// yet.
func (a *agent) trees() (trees []proc.Target, starting bool) {
	trees = a.scripts.trees()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		switch {
		case j.outcome != nil:
		case j.handle != nil:
			trees = append(trees, j.handle.Tree())
		default:
			starting = true
		}
	}
	return trees, starting
}
