package proc

import (
	"context"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFirstProcessTakesTheExitsOfOrphansAndOfNobodyElse(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	zombies := func() (n int) {
		table, _, err := readTable()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range table {
			if !p.running() {
				n++
			}
		}
		return n
	}
	for range 50 {
		if out, err := exec.Command("/bin/sh", "-c", "(sleep 0.01 &) ; (setsid sleep 0.01 &)").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	eventually(t, func() bool { return zombies() == 100 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { ReapOrphans(ctx) })
	for range 200 { // meanwhile each that is waited for has its own exit code
		if err := exec.Command("/bin/sh", "-c", "exit 3").Run(); err == nil || err.Error() != "exit status 3" {
			t.Errorf("a child of our own: %v", err)
		}
	}
	eventually(t, func() bool { return zombies() == 0 })
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != unix.ECHILD {
		t.Errorf("children are left: %v", err)
	}
}
