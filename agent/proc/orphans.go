package proc

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// orphanLook is how often the first process of a namespace looks for orphans that have ended.
	orphanLook = time.Second
	// orphanLooks is how many looks in a row must see an ended child before nobody else can be about to take its exit.
	orphanLooks = 3
)

// ReapOrphans takes the exits of processes that have lost their parent, as long as the caller is the first process of its pid namespace, to whom they come:
// nobody else would, and each would keep its place in the process table for ever. It returns when ctx ends, at once for any other process. A child of the
// caller's own whose exit is not taken for seconds counts as an orphan, too.
func ReapOrphans(ctx context.Context) {
	self, err := Self()
	if err != nil || os.Getpid() != 1 {
		return
	}
	tick := time.NewTicker(orphanLook)
	defer tick.Stop()
	looks := map[ID]int{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		looks = reapOld(self, looks)
	}
}

// reapOld takes the exits of those that have been seen often enough, and returns how often the others have.
func reapOld(self ID, before map[ID]int) map[ID]int {
	// Most of the time there is nobody, which the kernel says at once.
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo == 0 {
		return nil
	}
	table, _, err := readTable()
	if err != nil {
		return before
	}
	now := map[ID]int{}
	for _, p := range table {
		if p.Parent != self.PID || p.running() {
			continue
		}
		if now[p.ID] = before[p.ID] + 1; now[p.ID] >= orphanLooks {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
		}
	}
	return now
}
