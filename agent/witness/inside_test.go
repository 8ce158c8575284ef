package witness

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func join(t *testing.T, p Place, lease uint64, job string) *Hold {
	t.Helper()
	p.Inside = true
	h, err := p.Take(Holder{Lease: lease, Job: job})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.LetGo)
	return h
}

func TestSeveralJobsOfOneLeaseHaveADeviceTogether(t *testing.T) {
	p := place(t, "gpu1", "gpu0")
	hold := take(t, p, 4)
	first, second := join(t, p, 4, "j-8"), join(t, p, 4, "j-9")
	if r := check(t, p.Dir); len(r.Breaches) > 0 || !slices.Equal(r.Leases("gpu0"), []uint64{4}) {
		t.Errorf("report %+v", r)
	}
	for _, h := range []*Hold{first, hold, second} {
		if err := h.End(); err != nil {
			t.Fatal(err)
		}
		if r := check(t, p.Dir); r.Devices[0].Held == (h == second) {
			t.Errorf("report %+v", r)
		}
	}
	take(t, p, 5)
	if r := check(t, p.Dir); len(r.Breaches) > 0 || !slices.Equal(r.Leases("gpu1"), []uint64{4, 5}) {
		t.Errorf("report %+v", r)
	}
	if seats, err := os.ReadDir(p.file("gpu0", insideSuffix)); err != nil || len(seats) > 0 {
		t.Errorf("left: %v, %v", seats, err)
	}
}

// The hold may be over, and whoever has started the job gone.
func TestAJobInsideKeepsTheDeviceFromTheNextLease(t *testing.T) {
	p := place(t, "gpu0")
	hold := take(t, p, 4)
	inside := join(t, p, 4, "j-9")
	if err := hold.End(); err != nil { // first, or the process would have both
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "read x")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inside.LetGo()
	if _, err := p.Take(Holder{Lease: 5, Job: "j-5"}); !errors.Is(err, ErrDouble) || !strings.Contains(err.Error(), "gpu0 is in use by lease=4 job=j-9") {
		t.Errorf("beside a living process of lease 4: %v", err)
	}
	stdin.Close()
	_ = cmd.Wait() // it has read nothing, and says so
	take(t, p, 6)
	if r := check(t, p.Dir); len(r.Breaches) != 1 || !strings.HasPrefix(r.Breaches[0], "gpu0: used twice: ") || !slices.Equal(r.Leases("gpu0"), []uint64{4, 6}) {
		t.Errorf("report %+v", r)
	}
}

func TestAJobInsideOneLeaseIsRefusedBesideAnother(t *testing.T) {
	p := place(t, "gpu0", "gpu1")
	take(t, Place{Dir: p.Dir, Devices: []string{"gpu1"}}, 5)
	p.Inside = true
	if _, err := p.Take(Holder{Lease: 4, Job: "j-9"}); !errors.Is(err, ErrDouble) || !strings.Contains(err.Error(), "gpu1 is in use by lease=5 job=j-5") {
		t.Errorf("it got %v", err)
	}
	if r := check(t, p.Dir); len(r.Breaches) != 1 {
		t.Errorf("report %+v", r)
	}
	take(t, Place{Dir: p.Dir, Devices: []string{"gpu0"}}, 6) // nothing was kept of it
}

func TestJobsThatComeTogetherToAHoldThatIsOverDoNotSeeDouble(t *testing.T) {
	p := place(t, "gpu0")
	if err := take(t, p, 4).End(); err != nil {
		t.Fatal(err)
	}
	looks, err := os.Open(p.file("gpu0", lockSuffix)) // as another one does at this moment
	if err != nil {
		t.Fatal(err)
	}
	defer looks.Close()
	if err := unix.Flock(int(looks.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	join(t, p, 4, "j-8")
	if r := check(t, p.Dir); len(r.Breaches) > 0 || !r.Devices[0].Held {
		t.Errorf("report %+v", r)
	}
}
