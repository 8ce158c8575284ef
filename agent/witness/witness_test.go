package witness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func place(t *testing.T, devices ...string) Place {
	return Place{Dir: filepath.Join(t.TempDir(), "witness"), Devices: devices}
}

func take(t *testing.T, p Place, lease uint64) *Hold {
	t.Helper()
	h, err := p.Take(Holder{Lease: lease, Job: fmt.Sprintf("j-%d", lease)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.LetGo)
	return h
}

func check(t *testing.T, dir string) Report {
	t.Helper()
	r, err := Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLeasesOneAfterTheOtherAreNoBreach(t *testing.T) {
	p := place(t, "gpu1", "gpu0")
	for lease := uint64(1); lease <= 3; lease++ {
		if err := take(t, p, lease).End(); err != nil {
			t.Fatal(err)
		}
	}
	take(t, p, 7).LetGo() // died without a word
	take(t, p, 8)
	r := check(t, p.Dir)
	if len(r.Breaches) > 0 || len(r.Devices) != 2 {
		t.Errorf("report %+v", r)
	}
	for _, d := range p.Devices {
		if got := r.Leases(d); !slices.Equal(got, []uint64{1, 2, 3, 7, 8}) {
			t.Errorf("%s had leases %v", d, got)
		}
	}
	if !r.Devices[0].Held {
		t.Error("lease 8 has the device and is not said to")
	}
}

func TestASecondLeaseIsRefusedAndTheLogNamesBoth(t *testing.T) {
	p := place(t, "gpu0", "gpu1")
	first := take(t, Place{Dir: p.Dir, Devices: []string{"gpu1"}}, 4)
	_, err := p.Take(Holder{Lease: 5, Job: "j-5"})
	if !errors.Is(err, ErrDouble) || !strings.Contains(err.Error(), "gpu1 is in use by lease=4 job=j-4") {
		t.Fatalf("the second one got %v", err)
	}
	r := check(t, p.Dir)
	if len(r.Breaches) != 1 || !strings.HasPrefix(r.Breaches[0], "gpu1: used twice: ") || !strings.Contains(r.Breaches[0], "lease=5 ") ||
		!strings.Contains(r.Breaches[0], `holder="lease=4 `) {
		t.Errorf("breaches %q", r.Breaches)
	}
	if got := r.Leases("gpu0"); got != nil {
		t.Errorf("the refused lease has begun on the free device: %v", got)
	}
	take(t, Place{Dir: p.Dir, Devices: []string{"gpu0"}}, 5) // nothing was kept of it
	if err := first.End(); err != nil {
		t.Fatal(err)
	}
	take(t, Place{Dir: p.Dir, Devices: []string{"gpu1"}}, 6)
	if r := check(t, p.Dir); len(r.Breaches) != 1 {
		t.Errorf("breaches %q", r.Breaches)
	}
}

// What keeps the device is the process, not who has started it.
func TestAProcessKeepsTheDeviceAfterItsParentHasLetGo(t *testing.T) {
	p := place(t, "gpu0")
	hold := take(t, p, 1)
	cmd := exec.Command("sh", "-c", "exec 3>&- 4>&- 9>&-; read x") // scripts close low numbers
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hold.LetGo()
	if _, err := p.Take(Holder{Lease: 2, Job: "j-2"}); !errors.Is(err, ErrDouble) {
		t.Errorf("beside a living process of lease 1: %v", err)
	}
	stdin.Close()
	_ = cmd.Wait() // it has read nothing, and says so
	take(t, p, 3)
	if r := check(t, p.Dir); len(r.Breaches) != 1 || !slices.Equal(r.Leases("gpu0"), []uint64{1, 3}) {
		t.Errorf("report %+v", r)
	}
}

func TestWhatTheLocksCannotRefuseIsSeenInTheLog(t *testing.T) {
	const at = "2026-01-02T03:04:05.6Z "
	for _, c := range []struct{ name, log, want string }{
		{"two at a time", at + "begin lease=1\n" + at + "begin lease=2\n", "began while lease 1 had the device"},
		{"twice", at + "begin lease=1\n" + at + "end lease=1\n" + at + "begin lease=1\n", "began a second time"},
		{"twice, with a death between", at + "begin lease=1\n" + at + "gone lease=1\n" + at + "begin lease=1\n", "began a second time"},
		{"passed", at + "begin lease=2\n" + at + "end lease=2\n" + at + "begin lease=1\n", "began after the later lease 2"},
		{"passed by a dropped one", at + "gone lease=2\n" + at + "begin lease=1\n", "began after the later lease 2"},
		{"another's end", at + "begin lease=2\n" + at + "end lease=1\n", "ended while lease 2 had the device"},
		{"torn", at + "begin lea", "cannot be read"},
		{"unknown", at + "starts lease=1\n", "cannot be read"},
		{"a job inside beside another lease", at + "begin lease=2\n" + at + "inside lease=1 job=j-9\n", "began inside while lease 2 had the device"},
		{"a job inside a passed lease", at + "begin lease=2\n" + at + "end lease=2\n" + at + "inside lease=1 job=j-9\n", "began inside after the later lease 2"},
		{"a job inside before its lease", at + "begin lease=1\n" + at + "end lease=1\n" + at + "inside lease=2 job=j-9\n", "began inside before its lease"},
		{"a lease beside a job inside", at + "begin lease=1\n" + at + "inside lease=1 job=j-9\n" + at + "end lease=1\n" + at + "begin lease=2\n", "began while j-9 had the device inside lease 1"},
		{"clean inside", at + "begin lease=1 job=j-1\n" + at + "inside lease=1 job=j-8\n" + at + "inside lease=1 job=j-9\n" + at + "left lease=1 job=j-8\n" + at + "end lease=1 job=j-1\n" +
			at + "gone lease=1 job=j-9\n" + at + "begin lease=2 job=j-2\n", ""},
		{"clean inside, with the log turned over", at + "inside lease=1 job=j-8\n" + at + "left lease=1 job=j-8\n" + at + "end lease=1 job=j-1\n" + at + "begin lease=2 job=j-2\n", ""},
		{"clean", at + "gone lease=1\n" + at + "begin lease=2\n" + at + "end lease=2\n" + at + "gone lease=2\n" + at + "begin lease=3\n", ""},
	} {
		_, breaches := judge([]byte(c.log))
		if c.want == "" && len(breaches) > 0 || c.want != "" && (len(breaches) != 1 || !strings.HasPrefix(breaches[0], c.want)) {
			t.Errorf("%s: %q", c.name, breaches)
		}
	}
}

func TestALogIsTurnedOverAndStillJudgedWhole(t *testing.T) {
	p := place(t, "gpu0")
	if err := take(t, p, 1).End(); err != nil {
		t.Fatal(err)
	}
	path := p.file("gpu0", logSuffix)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// As long as thousands of leases would make it.
	filler := strings.Repeat("2026-01-02T03:04:05.6Z gone lease=1\n", logBound/36+1)
	if err := os.WriteFile(path, append(text, filler...), 0o600); err != nil {
		t.Fatal(err)
	}
	take(t, p, 2)
	if info, err := os.Stat(path); err != nil || info.Size() > 1000 {
		t.Errorf("the log was not turned over: %v, %v", info, err)
	}
	if r := check(t, p.Dir); len(r.Breaches) > 0 || !slices.Equal(r.Leases("gpu0"), []uint64{1, 2}) {
		t.Errorf("report %+v", r)
	}
}

func TestAPlaceWithoutAFileNameIsRefused(t *testing.T) {
	for _, p := range []Place{{Dir: "witness", Devices: []string{"gpu0"}}, {Dir: "/w", Devices: []string{"a/b"}}, {Dir: "/w", Devices: []string{""}}} {
		if p.Check() == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	if r := check(t, filepath.Join(t.TempDir(), "none")); len(r.Devices)+len(r.Breaches) > 0 {
		t.Errorf("a place that does not exist says %+v", r)
	}
}

func TestALowLimitOfOpenFilesKeepsNoLeaseOut(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	low := before
	low.Cur = 100
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }()
	p := place(t, "gpu0", "gpu1")
	h := take(t, p, 1)
	if _, err := p.Take(Holder{Lease: 2, Job: "j-2"}); !errors.Is(err, ErrDouble) {
		t.Errorf("taken twice: %v", err)
	}
	if err := h.End(); err != nil {
		t.Fatal(err)
	}
}
