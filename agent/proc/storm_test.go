package proc

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// comet is a shell script that starts itself anew and ends, again and again: each of its processes lives for about a millisecond, less than a look at the
// process table takes. All of them end when the file GO is gone.
const comet = `[ -e "$GO" ] || exit; echo > "$GO.beat"; sh -c "$0" "$0" &`

// storm runs comets, and a main process that stays, for as long as the file that it returns is there.
func storm(t *testing.T, cgroup string, comets int) (main ID, goOn string) {
	t.Helper()
	goOn = filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	line := `n=0; while [ $n -lt $COMETS ]; do sh -c "$0" "$0" & n=$((n+1)); done; wait; echo > "$GO.begun"; exec sleep 60`
	main = startIn(t, cgroup, []string{"GO=" + goOn, "COMETS=" + strconv.Itoa(comets)}, "sh", "-c", line, comet)
	t.Cleanup(func() { _ = os.Remove(goOn) })
	eventually(t, func() bool { _, err := os.Stat(goOn + ".begun"); return err == nil })
	return main, goOn
}

// beats tells whether any comet is alive.
func beats(t *testing.T, goOn string) bool {
	t.Helper()
	if err := os.Remove(goOn + ".beat"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for range 100 { // a comet of the storm comes round every few milliseconds
		if _, err := os.Stat(goOn + ".beat"); err == nil {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

func TestForkStormIsEndedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		cgroup bool
	}{{"by its cgroup", true}, {"by its process group", false}} {
		t.Run(c.name, func(t *testing.T) {
			target := Target{}
			if c.cgroup {
				target.Cgroup = newCgroup(t)
			}
			main, goOn := storm(t, target.Cgroup, 100)
			if !c.cgroup {
				target.Root = main
				g := openGroup(main)
				defer g.close()
				if err := unix.PidfdSendSignal(g.fd, 0, nil, signalGroup); err != nil {
					t.Skipf("this kernel signals no group through a pidfd: %v", err)
				}
			}
			if !beats(t, goOn) {
				t.Fatal("the storm is over before it is fought")
			}
			left, err := KillTree(context.Background(), target, 0)
			if err != nil || len(left) > 0 {
				t.Fatalf("left %+v, %v", left, err)
			}
			if beats(t, goOn) {
				t.Error("the storm goes on")
			}
		})
	}
}

func TestOneWriteEndsAStormInACgroup(t *testing.T) {
	cgroup := newCgroup(t)
	if _, err := os.Stat(filepath.Join(cgroup, "cgroup.kill")); err != nil {
		t.Skipf("this kernel ends no cgroup as a whole: %v", err)
	}
	_, goOn := storm(t, cgroup, 100)
	killCgroup(cgroup)
	eventually(t, func() bool { populated, err := cgroupPopulated(cgroup); return err == nil && !populated })
	if beats(t, goOn) {
		t.Error("the storm goes on")
	}
}

func TestGroupThatTheCallerIsInIsNotSignalled(t *testing.T) {
	for pid := range ownLine() {
		id, err := Identify(pid)
		if err != nil {
			t.Fatal(err)
		}
		if g := openGroup(id); g.fd >= 0 {
			g.close()
			t.Errorf("the group of %v is taken for a job's", id)
		}
	}
	if g := openGroup(ID{}); g.fd >= 0 {
		t.Error("nobody has a group")
	}
}
