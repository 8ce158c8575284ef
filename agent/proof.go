package agent

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"rcd/agent/proc"
	"rcd/wire"
)

// proofAge is how long a look at the process table is good for: while no leader
// is found, hellos follow each other fast, and a look reads every process.
const proofAge = time.Second

type proofCache struct {
	mu   sync.Mutex // guards what follows
	last wire.HostProof
	at   time.Time
}

// proof says what the host can about processes of earlier jobs. The trees of
// jobs that this agent supervises do not count: they are named beside it.
func (a *agent) proof() wire.HostProof {
	a.proofs.mu.Lock()
	defer a.proofs.mu.Unlock()
	if !a.proofs.at.IsZero() && time.Since(a.proofs.at) < proofAge {
		return a.proofs.last
	}
	p := wire.HostProof{Isolated: a.isolated}
	check, err := proc.Survivors(a.trees())
	switch {
	case err != nil:
		p.Detail = cut(err.Error())
	case !check.Checked:
		p.Detail = cut("cannot be read: process " + check.Unreadable)
	default:
		p.SurvivorsChecked, p.SurvivorsFound = true, len(check.Found) > 0
	}
	if err == nil && len(check.Found) > 0 {
		var parts []string
		for _, f := range check.Found {
			parts = append(parts, fmt.Sprintf("pid %d (%s)", f.PID, f.Command))
		}
		p.Detail = cut(strings.Join(parts, ", "))
	}
	a.proofs.last, a.proofs.at = p, time.Now()
	return p
}

// trees returns what belongs to the jobs that run.
func (a *agent) trees() []proc.Target {
	a.mu.Lock()
	defer a.mu.Unlock()
	var trees []proc.Target
	for _, j := range a.jobs {
		if j.handle != nil && j.outcome == nil {
			trees = append(trees, j.handle.Tree())
		}
	}
	return trees
}

// aloneInNamespace reports whether this process is the first of its PID
// namespace and nothing else is in it: then nothing of an earlier life can be.
func aloneInNamespace() bool {
	if os.Getpid() != 1 {
		return false
	}
	list, err := proc.List()
	return err == nil && len(list) == 1
}
