package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// killBound is how long a process may take to die of SIGKILL before it counts as unkillable. Tearing down a GPU context takes up to about a second;
// what takes longer hangs in the kernel.
const killBound = 5 * time.Second

// Pauses between two looks at the process table while waiting for processes to go: short at first, because most go at once, then longer, because
// a look costs about 20 µs a process.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// KillTree ends the tree: SIGTERM to everybody, up to grace for them to leave, then SIGKILL, to the cgroup and Root's group at once and to each, again and
// again until nobody is left, then a second look that must find nobody either. It returns whom it could not end, with their command lines; none and no error
// mean that the tree was seen empty. Whoever is in doubt is not signalled and counts as one of those. It blocks for at most grace plus 5 s, or until ctx
// ends, which is reported as ctx's error together with those still there. Whoever is parent of the processes must reap them. A grace of zero goes straight
// to SIGKILL.
func KillTree(ctx context.Context, t Target, grace time.Duration) ([]Process, error) {
	h := hunt{target: t, seen: make(map[ID]Process), told: make(map[ID]bool)}
	group := openGroup(t.Root)
	defer group.close()
	if grace > 0 {
		empty, err := h.terminate(ctx, grace)
		if err != nil || empty {
			return h.left(), err
		}
	}
	deadline := time.Now().Add(killBound)
	for pause := firstPause; ; {
		empty, err := h.look()
		if err != nil || empty {
			return nil, err
		}
		if t.Cgroup != "" {
			killCgroup(t.Cgroup)
		}
		group.kill()
		var refused error
		for id := range h.seen {
			if h.doubtful[id] {
				continue
			}
			if err := Signal(id, unix.SIGKILL); err != nil && !errors.Is(err, ErrGone) {
				refused = err
			}
		}
		if time.Now().After(deadline) {
			if refused != nil {
				refused = fmt.Errorf("kill tree: %w", refused)
			}
			return h.left(), refused
		}
		if err := sleep(ctx, &pause); err != nil {
			return h.left(), err
		}
	}
}

// hunt is one run of KillTree.
type hunt struct {
	target Target
	// seen are those found so far that are still there. A process that dies loses its environment and its parent before it lets go of its
	// devices, so whoever was found once is watched until it is gone.
	seen map[ID]Process
	told map[ID]bool // those that got SIGTERM
	// doubtful are those in seen, by the last scan, that may be strangers.
	doubtful map[ID]bool
}

// look brings seen up to date. True if two scans, one right after the other, found nobody: one alone can miss a process that is just being forked.
func (h *hunt) look() (empty bool, err error) {
	for range 2 {
		found, doubtful, err := find(h.target, h.certain())
		if err != nil {
			return false, fmt.Errorf("kill tree: %w", err)
		}
		for id := range h.seen {
			if !Alive(id) {
				delete(h.seen, id)
			}
		}
		for _, p := range found {
			h.seen[p.ID] = p
		}
		h.doubtful = make(map[ID]bool)
		for _, p := range doubtful {
			h.seen[p.ID], h.doubtful[p.ID] = p, true
		}
		if len(h.seen) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// certain returns those in seen that belong to the tree beyond doubt.
func (h *hunt) certain() map[ID]Process {
	certain := maps.Clone(h.seen)
	for id := range h.doubtful {
		delete(certain, id)
	}
	return certain
}

// left returns who is still there, by pid.
func (h *hunt) left() []Process {
	var list []Process
	for _, p := range h.seen {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return Describe(list)
}

// terminate sends SIGTERM once to each member, later comers included, and waits up to grace. True: seen empty.
func (h *hunt) terminate(ctx context.Context, grace time.Duration) (bool, error) {
	deadline := time.Now().Add(grace)
	for pause := firstPause; ; {
		empty, err := h.look()
		if err != nil || empty {
			return empty, err
		}
		for id := range h.seen {
			if h.told[id] || h.doubtful[id] {
				continue
			}
			h.told[id] = true
			// A failure here is answered by SIGKILL later. A stopped process only sees SIGTERM once it goes on.
			if Signal(id, unix.SIGTERM) == nil {
				_ = Signal(id, unix.SIGCONT)
			}
		}
		if time.Now().After(deadline) {
			return false, nil
		}
		if err := sleep(ctx, &pause); err != nil {
			return false, err
		}
	}
}

func sleep(ctx context.Context, pause *time.Duration) error {
	timer := time.NewTimer(*pause)
	defer timer.Stop()
	*pause = min(*pause*2, lastPause)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
