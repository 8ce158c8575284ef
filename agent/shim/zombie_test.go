package shim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
)

var orphaning = flag.Int("shim.orphans", 60, "how many jobs that leave orphans run in TestNoZombieIsLeftByJobsThatOrphanTheirChildren")

// zombiesBelow returns the zombies among the descendants of a process.
func zombiesBelow(t *testing.T, top int) (zombies []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		parent int
		text   string
		zombie bool
	}
	table := map[int]line{}
	for _, e := range entries {
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		at := strings.LastIndexByte(string(raw), ')')
		var pid, parent int
		if err != nil || at < 0 {
			continue
		}
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		rest := strings.Fields(string(raw[at+1:]))
		if _, err := fmt.Sscan(rest[1], &parent); err != nil {
			t.Fatal(err)
		}
		table[pid] = line{parent, string(raw[:at+1]), rest[0] == "Z"}
	}
	for _, l := range table {
		up := l.parent
		for range 100 {
			if up == top && l.zombie {
				zombies = append(zombies, l.text)
			}
			up = table[up].parent
		}
	}
	return zombies
}

// Run with -shim.orphans=1000 for the number that the promise is made for.
func TestNoZombieIsLeftByJobsThatOrphanTheirChildren(t *testing.T) {
	// Whoever slips away from a shim becomes a child of this process, and is seen.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	before := zombiesBelow(t, os.Getpid()) // what another test did not wait for
	line := `(exit 1) & (sleep 0.02 &) & (setsid sh -c 'sleep 0.01 & exit' &) & setsid sleep 60 & (env -i sleep 60 &) ; exit 3`
	turns := make(chan Config)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for cfg := range turns {
				h, err := Start(cfg)
				if err != nil {
					t.Errorf("Start: %v", err)
					continue
				}
				<-h.Done()
				if r, err := h.Result(); err != nil || r.Outcome != Exited || r.ExitCode == nil || *r.ExitCode != 3 || !r.Clean() {
					t.Errorf("result %+v, %v", r, err)
				}
				if err := h.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	zombies := 0
	for i := range *orphaning {
		cfg := job(t, line)
		cfg.Log = nil
		turns <- cfg
		if i%100 == 99 {
			zombies = max(zombies, len(zombiesBelow(t, os.Getpid())))
		}
	}
	close(turns)
	work.Wait()
	t.Logf("at most %d zombies on the way", zombies)
	var left []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left = slices.DeleteFunc(zombiesBelow(t, os.Getpid()), func(z string) bool { return slices.Contains(before, z) })
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		t.Errorf("%d zombies after 5 s: %q", len(left), left[:min(len(left), 10)])
	}
	list, err := proc.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Parent == os.Getpid() {
			t.Errorf("slipped away from its shim: %+v", p)
		}
	}
}
