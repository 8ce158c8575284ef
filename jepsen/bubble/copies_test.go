package bubble

import (
	"bytes"
	"context"
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
	"rcd/jepsen/rig"
	"rcd/model"
	"rcd/wire"
)

// copied waits until so many controllers have a complete copy of each of n
// jobs.
func (f *fleet) copied(controllers, n int) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("complete copies of %d jobs", n), func() bool {
		complete := 0
		for _, node := range f.nodes {
			if s := node.Controller.RaftStatus(context.Background()).OutputCopies; s != nil && s.Complete == n {
				complete++
			}
		}
		return complete == controllers
	})
}

// logs reads what there is of a job's output through one controller, and how
// long that took.
func (f *fleet) logs(n *rig.Node, job uint64) (string, time.Duration) {
	f.t.Helper()
	c, err := client.New(client.Options{Controllers: []string{n.HTTP}, Token: rig.AdminToken, Dial: f.net.Dialer("desk")})
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	began := time.Now()
	if err := c.Logs(context.Background(), model.JobID(job), &out, false); err != nil {
		f.t.Fatalf("logs of %s through %s: %v", model.JobID(job), n.ID, err)
	}
	return out.String(), time.Since(began)
}

// much is more than any window holds.
func much(seed string) string {
	return strings.Repeat(seed+" 0123456789abcdefghijklmnopqrstuvwxyz\n", 60_000)
}

func (f *fleet) stop(n *rig.Node) {
	f.t.Helper()
	if err := n.Stop(); err != nil {
		f.t.Fatal(err)
	}
	f.net.Kill(n.ID)
}

func (f *fleet) restart(n *rig.Node) {
	f.t.Helper()
	f.net.Heal(n.ID)
	if err := n.Start(); err != nil {
		f.t.Fatal(err)
	}
}

func TestOutputOutlivesItsHostAndAnyOneController(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		want := much("first") + much("then")
		f.box.Print(job, much("first"))
		f.box.Print(job, much("then"))
		f.box.Exit(job, 0)
		f.copied(3, 1)
		f.box.Stop()
		leader := f.leader()
		for _, gone := range append([]*rig.Node{leader}, f.nodes...) {
			f.stop(gone)
			f.leader()
			for _, n := range f.nodes {
				if n == gone {
					continue
				}
				if got, took := f.logs(n, job); got != want || took > 5*time.Second {
					t.Errorf("%s gone, through %s: %d bytes of %d, after %v", gone.ID, n.ID, len(got), len(want), took)
				}
			}
			f.restart(gone)
			f.eventually("a status", func() bool { return gone.Controller.RaftStatus(t.Context()).Leader != "" })
		}
		f.copied(3, 1) // kept on disk
	})
}

func TestAControllerThatWasAwayGetsItsCopyFromTheOthers(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.box.Print(job, much("first"))
		away := f.nodes[0]
		if away == f.leader() {
			away = f.nodes[1]
		}
		f.stop(away)
		f.box.Print(job, much("then"))
		f.box.Exit(job, 0)
		f.copied(2, 1)
		f.box.Stop()
		f.restart(away)
		f.copied(3, 1)
		if got, _ := f.logs(away, job); got != much("first")+much("then") {
			t.Errorf("%d bytes", len(got))
		}
	})
}

func TestALeaderWithoutACopyReadsAnothersWhileTheHostIsAway(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.box.Print(job, much("first"))
		f.box.Exit(job, 0)
		f.copied(3, 1)
		f.box.Stop()
		leader := f.leader()
		if err := os.RemoveAll(filepath.Join(leader.Dir(), "output", fmt.Sprint(job))); err != nil {
			t.Fatal(err)
		}
		if got, took := f.logs(leader, job); got != much("first") || took > 5*time.Second {
			t.Errorf("%d bytes, after %v", len(got), took)
		}
		f.copied(3, 1) // fetched again
		if _, err := os.Stat(filepath.Join(leader.Dir(), "output", fmt.Sprint(job))); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatDiedWithItsHostIsAGapBehindWhatWasCopied(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.box.Print(job, "copied\n")
		f.waitLength(job, 7)
		f.box.Withhold(job)
		f.box.Print(job, "lost\n")
		f.box.Exit(job, 0)
		f.eventually("end of the job", func() bool { return f.job(job).State == "succeeded" })
		f.box.Stop()
		stopped := time.Now()
		r := f.follow(job)
		f.eventually("what was copied", func() bool { return r.String() == "copied\n" })
		if took := time.Since(stopped); took > 10*time.Second {
			t.Errorf("what was copied came after %v", took)
		}
		// Each alone has it too.
		for _, n := range f.nodes {
			if got, _ := f.logs(n, job); !strings.HasPrefix(got, "copied\n[rc: bytes missing") {
				t.Errorf("through %s: %q", n.ID, got)
			}
		}
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(stopped); took < 5*time.Minute {
			t.Errorf("given up after %v, before the host was", took)
		}
		if got := r.String(); !strings.HasPrefix(got, "copied\n[rc: 5 bytes missing: host box is out of reach]\n") {
			t.Errorf("read %q", got)
		}
	})
}

func TestAHostThatComesBackCompletesTheCopies(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.box.Print(job, "copied\n")
		f.waitLength(job, 7)
		f.box.Withhold(job)
		f.box.Print(job, "late\n")
		f.box.Exit(job, 0)
		f.eventually("end of the job", func() bool { return f.job(job).State == "succeeded" })
		f.net.Isolate("box")
		time.Sleep(7 * time.Minute) // it is written off
		f.box.Release(job)
		f.copied(0, 1)
		f.net.Heal("box")
		f.copied(3, 1)
		f.net.Isolate("box")
		for _, n := range f.nodes {
			if got, took := f.logs(n, job); got != "copied\nlate\n" || took > 5*time.Second {
				t.Errorf("through %s: %q after %v", n.ID, got, took)
			}
		}
	})
}

// TestABoundedCopyKeepsHeadAndTail has copies that hold a sixth of an output,
// while its host has all of it.
func TestABoundedCopyKeepsHeadAndTail(t *testing.T) {
	small := func(_ string, _ *ctl.Config, deps *ctl.Deps) { deps.CopyBytes = spool.MinBound }
	inFleetOf(t, small, func(t *testing.T, f *fleet) {
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
		for _, n := range f.nodes {
			if got, _ := f.logs(n, job); got != want {
				t.Errorf("through %s: %d bytes of %d", n.ID, len(got), len(want))
			}
		}
		f.box.Stop()
		time.Sleep(7 * time.Minute) // it is written off
		check := func(n *rig.Node) {
			got, took := f.logs(n, job)
			head, rest, ok := strings.Cut(got, "\n[rc: ")
			cause, tail, _ := strings.Cut(rest, "]\n")
			if !ok || len(head) < spool.MinBound/5 || len(tail) < spool.MinBound/2 || !strings.HasSuffix(cause, " bytes missing: spool bound") ||
				!strings.HasPrefix(want, head) || !strings.HasSuffix(want, tail) || took > 5*time.Second {
				t.Errorf("through %s: head %d, %q, tail %d, after %v", n.ID, len(head), cause, len(tail), took)
			}
		}
		for _, n := range f.nodes {
			check(n)
		}
		leader := f.leader()
		for _, n := range f.nodes { // one copy is enough
			if n != leader {
				if err := os.RemoveAll(filepath.Join(n.Dir(), "output", fmt.Sprint(job))); err != nil {
					t.Fatal(err)
				}
			}
		}
		check(leader)
	})
}

// TestALeaderWithoutRoomLeavesTheOthersTheirCopies fills the leader's disk and
// frees it again.
func TestALeaderWithoutRoomLeavesTheOthersTheirCopies(t *testing.T) {
	var full sync.Map // by data directory
	disks := func(_ string, _ *ctl.Config, deps *ctl.Deps) {
		deps.Disk = func(dir string) (size, free int64, err error) {
			if _, is := full.Load(filepath.Dir(dir)); is {
				return 100 << 30, 1 << 30, nil
			}
			return 100 << 30, 50 << 30, nil
		}
	}
	inFleetOf(t, disks, func(t *testing.T, f *fleet) {
		leader := f.leader()
		full.Store(leader.Dir(), true)
		alarmed := func() bool {
			s := leader.Controller.RaftStatus(t.Context())
			return len(s.Alarms) == 1 && s.Alarms[0].Code == wire.AlarmOutputCopies && s.OutputCopies.Stopped != ""
		}
		f.eventually("an alarm", alarmed)
		job := f.run("box:gpu0")
		f.box.Print(job, much("first"))
		f.box.Exit(job, 0)
		f.copied(2, 1)
		if !alarmed() || leader.Controller.RaftStatus(t.Context()).OutputCopies.Jobs != 0 {
			t.Errorf("%+v", leader.Controller.RaftStatus(t.Context()).OutputCopies)
		}
		f.box.Stop()
		for _, n := range f.nodes {
			if got, took := f.logs(n, job); got != much("first") || took > 5*time.Second {
				t.Errorf("through %s: %d bytes after %v", n.ID, len(got), took)
			}
		}
		full.Clear()
		f.copied(3, 1)
		f.eventually("no alarm", func() bool { return len(leader.Controller.RaftStatus(t.Context()).Alarms) == 0 })
	})
}

func TestCopiesGoOnWhileLeadershipMoves(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		want := ""
		for i := range 6 {
			old := f.leader()
			text := fmt.Sprintf("line %d\n", i)
			want += text
			f.box.Print(job, text)
			f.waitLength(job, int64(len(want)))
			f.net.Isolate(old.ID)
			f.eventually("another leader", func() bool { l := rig.Leader(f.nodes); return l != nil && l != old })
			f.net.Heal(old.ID)
		}
		f.box.Exit(job, 0)
		f.copied(3, 1)
		f.box.Stop()
		for _, n := range f.nodes {
			if got, _ := f.logs(n, job); got != want {
				t.Errorf("through %s: %q", n.ID, got)
			}
		}
	})
}

// waitLength waits until every controller's copy of a job that runs has so many
// bytes.
func (f *fleet) waitLength(job uint64, length int64) {
	f.t.Helper()
	f.eventually("copied bytes", func() bool {
		for _, n := range f.nodes {
			segments, _ := filepath.Glob(filepath.Join(n.Dir(), "output", fmt.Sprint(job), "*.seg"))
			size := int64(0)
			for _, s := range segments {
				if info, err := os.Stat(s); err == nil {
					size += info.Size() - 160 - 20 // a header, and one record
				}
			}
			if size < length {
				return false
			}
		}
		return true
	})
}

// TestMoreRunningJobsThanLinksAllHaveTheirTurn lets more jobs print, now and
// then, than are copied at once.
func TestMoreRunningJobsThanLinksAllHaveTheirTurn(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		const jobs = 100
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
		for round := range 3 {
			for _, job := range farm.Running() {
				farm.Print(job, "line\n")
			}
			for _, job := range farm.Running() {
				f.waitLength(job, int64(5*(round+1)))
			}
		}
		for _, job := range farm.Running() {
			farm.Exit(job, 0)
		}
		f.copied(3, jobs)
	})
}
