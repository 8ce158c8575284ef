package bubble

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/agent/spool"
	"rcd/client"
	ctl "rcd/controller"
	"rcd/controller/copies"
	"rcd/jepsen/rig"
)

// A controller that starts and hears of nobody knows only what its last
// snapshot knew. Each alone once removed the copies of all later jobs, a minute
// after its start, as those of jobs that are forgotten.
func TestAControllerAloneForgetsNoCopies(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.box.Print(job, much("first"))
		f.box.Exit(job, 0)
		f.copied(3, 1)
		f.box.Stop()
		for _, n := range f.nodes {
			f.stop(n)
		}
		for _, n := range f.nodes {
			f.restart(n)
			time.Sleep(5 * time.Minute)
			f.stop(n)
		}
		for _, n := range f.nodes {
			f.restart(n)
		}
		f.leader()
		f.copied(3, 1)
		for _, n := range f.nodes {
			if got, took := f.logs(n, job); got != much("first") || took > 5*time.Second {
				t.Errorf("through %s: %d bytes after %v", n.ID, len(got), took)
			}
		}
	})
}

// The host's word of a gap was passed on though every other controller had the
// bytes.
func TestWhatTheHostHasLostSinceComesFromACopy(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		want := much("first")
		f.box.Print(job, want)
		f.box.Exit(job, 0)
		f.copied(3, 1)
		f.box.Damage(job, 1000, 500_000)
		leader := f.leader()
		if err := os.RemoveAll(filepath.Join(leader.Dir(), "output", fmt.Sprint(job))); err != nil {
			t.Fatal(err)
		}
		for _, n := range f.nodes {
			if got, took := f.logs(n, job); got != want || took > 5*time.Second {
				at, _, _ := strings.Cut(got, "]")
				t.Errorf("through %s: %d bytes of %d after %v, the first gap at %d", n.ID, len(got), len(want), took, len(at))
			}
		}
	})
}

// Each bounded copy has its own gap. Whichever was met first was told, though
// another copy had a part of it.
func TestAGapIsAsShortAsThatOfAnyCopy(t *testing.T) {
	bounds := func(id string, _ *ctl.Config, deps *ctl.Deps) {
		deps.CopyBytes = spool.MinBound
		if id == "c2" {
			deps.CopyBytes = 2 * spool.MinBound
		}
	}
	inFleetOf(t, bounds, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		want := ""
		for i := range 24 {
			text := much(fmt.Sprintf("part %2d", i))[:60_000]
			want += text
			f.box.Print(job, text)
			time.Sleep(time.Second) // so that it comes in pieces
		}
		f.box.Exit(job, 0)
		f.copied(3, 1)
		f.box.Stop()
		time.Sleep(7 * time.Minute) // it is written off
		for _, n := range f.nodes {
			got, _ := f.logs(n, job)
			head, rest, _ := strings.Cut(got, "\n[rc: ")
			cause, tail, _ := strings.Cut(rest, "]\n")
			if len(head) < spool.MinBound/3 || len(tail) < spool.MinBound*5/4 || !strings.HasSuffix(cause, " bytes missing: spool bound") ||
				!strings.HasPrefix(want, head) || !strings.HasSuffix(want, tail) {
				t.Errorf("through %s: head %d, %q, tail %d", n.ID, len(head), cause, len(tail))
			}
		}
	})
}

// A copy with a turned bit was given up for whatever there was elsewhere, be it
// far less.
func TestADamagedCopyIsKeptUntilThereIsAWholeOne(t *testing.T) {
	bounds := func(id string, _ *ctl.Config, deps *ctl.Deps) {
		if id != "c1" {
			deps.CopyBytes = spool.MinBound
		}
	}
	inFleetOf(t, bounds, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		want := much("first")
		f.box.Print(job, want)
		f.box.Exit(job, 0)
		f.copied(3, 1)
		c1 := f.nodes[0]
		segments, err := filepath.Glob(filepath.Join(c1.Dir(), "output", fmt.Sprint(job), "*.seg"))
		if err != nil || len(segments) != 1 {
			t.Fatal(segments, err)
		}
		raw, err := os.ReadFile(segments[0])
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)*9/10] ^= 1
		if err := os.WriteFile(segments[0], raw, 0o600); err != nil {
			t.Fatal(err)
		}
		f.box.Stop()
		time.Sleep(7 * time.Minute) // it is written off
		for range 3 {
			if got, _ := f.logs(f.leader(), job); len(got) < len(want)/2 {
				t.Errorf("%d bytes of %d", len(got), len(want))
			}
			time.Sleep(5 * time.Minute)
		}
	})
}

// The limit is taken up by jobs that run: what is large is refused, what is
// small still fits, and each time the alarm was raised and taken back.
func TestACopyLimitThatIsReachedIsToldOnce(t *testing.T) {
	var mu sync.Mutex
	var said bytes.Buffer
	change := func(_ string, config *ctl.Config, deps *ctl.Deps) {
		config.OutputCopies = copies.Limit{Bytes: 1 << 20}
		deps.Logger = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return said.Write(p)
		}), nil))
	}
	inFleetOf(t, change, func(t *testing.T, f *fleet) {
		const jobs = 8
		farm := rig.StartHost(rig.HostConfig{Name: "farm", Instance: "i1", Devices: jobs, Token: rig.WorkerToken,
			Addresses: []string{"c1:7001", "c2:7001", "c3:7001"}, Dial: f.net.Dialer("farm"), Logger: slog.New(slog.DiscardHandler)})
		defer farm.Stop()
		f.eventually("ready devices", func() bool { return f.state(fmt.Sprintf("farm:gpu%d", jobs-1)) == "ready" })
		for i := range jobs {
			if _, err := f.rc.Submit(t.Context(), client.SubmitOptions{DeviceID: fmt.Sprintf("farm:gpu%d", i), Command: []string{"train"}, Submitter: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		f.eventually("running jobs", func() bool { return len(farm.Running()) == jobs })
		for _, job := range farm.Running() {
			farm.Print(job, much("x")[:200_000])
		}
		for range 600 {
			for _, job := range farm.Running() {
				farm.Print(job, "x\n")
			}
			time.Sleep(100 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		n := strings.Count(said.String(), "output is not copied")
		t.Logf("told %d times", n)
		if n < 1 || n > 2*3 {
			t.Errorf("told %d times by three controllers in a minute", n)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }
