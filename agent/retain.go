package agent

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rcd/agent/shim"
)

// janitor keeps the records of acked jobs, for their output, within bounds:
// the oldest acked go first, those that somebody reads stay.
type janitor struct {
	agent *agent
	work  chan struct{} // holds one

	mu    sync.Mutex // guards what follows
	acked map[key]kept
	held  map[key]int
}

// kept is one acked job's record.
type kept struct {
	at    time.Time
	bytes int64
}

func newJanitor(a *agent) *janitor {
	return &janitor{agent: a, work: make(chan struct{}, 1), acked: map[key]kept{}, held: map[key]int{}}
}

// nudge has the bounds looked at. It never blocks.
func (g *janitor) nudge() {
	select {
	case g.work <- struct{}{}:
	default:
	}
}

// run looks after the bounds until the agent stops.
func (g *janitor) run() {
	for {
		g.sweep(g.agent.ctx)
		select {
		case <-g.work:
		case <-g.agent.ctx.Done():
			return
		}
	}
}

// add makes an acked job known.
func (g *janitor) add(k key) {
	dir := g.agent.dirOf(k)
	info, err := os.Stat(filepath.Join(dir, ackedFile))
	if err != nil {
		return
	}
	size := sizeOf(dir)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.acked[k] = kept{at: info.ModTime(), bytes: size}
}

// hold keeps a job's record until release is called.
func (g *janitor) hold(k key) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[k]++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.held[k]--; g.held[k] == 0 {
			delete(g.held, k)
		}
	})
}

// holdLatest is hold for the latest lease under which the job was acked;
// release is nil if there is none.
func (g *janitor) holdLatest(number uint64) (k key, release func()) {
	entries, err := os.ReadDir(filepath.Join(g.agent.config.DataDir, jobsDir))
	if err != nil {
		return key{}, nil
	}
	for _, e := range entries {
		if at, ok := parseKey(e.Name()); ok && at.job == number && at.lease > k.lease {
			k = at
		}
	}
	if k == (key{}) {
		return k, nil
	}
	return k, g.hold(k)
}

// sweep removes what is over the bounds.
func (g *janitor) sweep(ctx context.Context) {
	keys, err := g.agent.jobKeys()
	if err != nil {
		g.agent.log.Warn("kept jobs not looked at", "error", err)
		return
	}
	present := map[key]bool{}
	for _, k := range keys {
		present[k] = true
		g.mu.Lock()
		_, known := g.acked[k]
		g.mu.Unlock()
		if !known {
			g.add(k)
		}
	}
	for _, k := range g.excess(present) {
		if ctx.Err() != nil {
			return
		}
		if err := g.remove(k); err != nil {
			g.agent.log.Warn("kept job not removed", "job", k.job, "error", err)
		}
	}
}

// excess returns what is to go, oldest first.
func (g *janitor) excess(present map[key]bool) []key {
	g.mu.Lock()
	defer g.mu.Unlock()
	var order []key
	var total int64
	for k, v := range g.acked {
		if !present[k] {
			delete(g.acked, k)
			continue
		}
		order = append(order, k)
		total += v.bytes
	}
	slices.SortFunc(order, func(x, y key) int {
		return cmp.Or(g.acked[x].at.Compare(g.acked[y].at), cmp.Compare(x.lease, y.lease))
	})
	count := len(order)
	bounds := g.agent.settings()
	var out []key
	for _, k := range order {
		if count <= bounds.KeepJobs && total <= bounds.KeepBytes {
			break
		}
		if g.held[k] > 0 {
			continue
		}
		count, total = count-1, total-g.acked[k].bytes
		out = append(out, k)
	}
	return out
}

func (g *janitor) remove(k key) error {
	// The mark is looked at once more: the job may have been recalled.
	if _, err := os.Stat(filepath.Join(g.agent.dirOf(k), ackedFile)); err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.acked, k)
		return nil
	}
	g.agent.at(atRemoving)
	if err := shim.RemoveDir(g.agent.dirOf(k)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.acked, k)
	return nil
}

// sizeOf sums the files below a directory, as far as they can be seen.
func sizeOf(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what vanishes meanwhile takes no room
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}
