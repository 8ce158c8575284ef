package bubble

import (
	"context"
	"strings"
	"testing"
	"time"

	"rcd/client"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// hold takes gpu0 for ann, with a session, and waits until its host has it.
func (f *fleet) hold(session time.Duration) uint64 {
	f.t.Helper()
	f.eventually("the feature level", func() bool {
		members, err := f.rc.Members(f.t.Context())
		return err == nil && members.FeatureLevel >= fsm.LevelInside
	})
	hold, err := f.rc.Submit(f.t.Context(), client.SubmitOptions{DeviceID: "box:gpu0", Kind: "hold", MaxRuntime: 5 * time.Hour, Session: session, Submitter: "ann"})
	if err != nil {
		f.t.Fatal(err)
	}
	number, _ := model.ParseJobID(hold.ID)
	f.eventually("running hold", func() bool { return f.job(number).State == "running" })
	return number
}

// beating says for ann that she is there, every 17 s (so not at the moments at
// which leaders change), until it is stopped; what is refused is an error.
func (f *fleet) beating(hold uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, err := f.rc.Heartbeat(ctx, model.JobID(hold), "ann"); err != nil && ctx.Err() == nil {
				f.t.Errorf("heartbeat: %v", err)
			}
			select {
			case <-time.After(17 * time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// sweeps counts the sweeps about sessions in the log.
func (f *fleet) sweeps() (n int) {
	f.t.Helper()
	f.commands(func(cmd command.Command) {
		if b, ok := cmd.Body.(*command.Sweep); ok && len(b.Sessions) > 0 {
			n++
		}
	})
	return n
}

func TestAHoldEndsWithTheSessionOfItsClientAfterAWarning(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		hold := f.hold(time.Minute)
		stop := f.beating(hold)
		time.Sleep(10 * time.Minute)
		if row := f.job(hold); row.State != "running" || row.SessionSilent {
			t.Errorf("its client is there: %+v", row)
		}
		if n := f.sweeps(); n != 0 {
			t.Errorf("heartbeats made %d entries", n)
		}
		stop()
		silent := time.Now()
		f.eventually("the warning", func() bool { return f.job(hold).SessionSilent })
		if after := time.Since(silent); after < 10*time.Second || after > 40*time.Second {
			t.Errorf("warned after %v, want about half a minute", after)
		}
		stop = f.beating(hold)
		f.eventually("the warning taken back", func() bool { return !f.job(hold).SessionSilent })
		time.Sleep(5 * time.Minute)
		stop()
		silent = time.Now()
		f.eventually("its end", func() bool { return f.job(hold).State == "killed" })
		if after := time.Since(silent); after < 40*time.Second || after > 70*time.Second {
			t.Errorf("ended after %v, want about a minute", after)
		}
		if row := f.job(hold); !strings.Contains(row.KillReason, "the session of its client has ended") {
			t.Errorf("ended with %q", row.KillReason)
		}
		f.eventually("free device", func() bool { return f.state("box:gpu0") == "ready" })
		if n := f.sweeps(); n < 4 || n > 6 {
			t.Errorf("%d entries about sessions, want two warnings, one return and the end", n)
		}
	})
}

// TestAHoldWhoseClientIsThereOutlivesLeaders and one whose client is gone is not
// ended in a holdoff, but soon after.
func TestAHoldWhoseClientIsThereOutlivesLeaders(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		hold := f.hold(time.Minute)
		stop := f.beating(hold)
		change := func() {
			old := f.leader()
			if err := old.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := old.Start(); err != nil {
				t.Fatal(err)
			}
			f.leader()
		}
		for range 4 {
			change()
			time.Sleep(time.Minute)
		}
		if row := f.job(hold); row.State != "running" {
			t.Errorf("its client was there all the while: %s %q", row.State, row.KillReason)
		}
		if n := f.sweeps(); n != 0 {
			t.Errorf("%d entries about a client that was there: a leader counted what was before its epoch", n)
		}
		stop()
		// A new leader every 25 s: none is past its holdoff.
		for range 4 {
			change()
			time.Sleep(25 * time.Second)
			if row := f.job(hold); row.State != "running" {
				t.Fatalf("ended within a holdoff: %s %q", row.State, row.KillReason)
			}
		}
		last := time.Now()
		f.eventually("its end", func() bool { return f.job(hold).State == "killed" })
		if after := time.Since(last); after > time.Minute {
			t.Errorf("ended %v after the last holdoff", after)
		}
	})
}

func TestAQueuedHoldWhoseClientIsGoneTakesNoDevice(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		first := f.hold(time.Hour)
		stop := f.beating(first)
		defer stop()
		queued, err := f.rc.Submit(t.Context(), client.SubmitOptions{DeviceID: "box:gpu0", Kind: "hold", MaxRuntime: time.Hour, Session: time.Minute, Submitter: "ann"})
		if err != nil || queued.State != "queued" {
			t.Fatalf("%+v %v", queued, err)
		}
		number, _ := model.ParseJobID(queued.ID)
		f.eventually("its end", func() bool { return f.job(number).State == "killed" })
		if waited := f.job(number).FinishedAt.Sub(queued.SubmittedAt); waited < 50*time.Second || waited > 70*time.Second {
			t.Errorf("it waited %v, want about a minute", waited)
		}
	})
}

func TestWorkInsideAHoldGoesOnThroughALeaderThatIsCutOff(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		hold := f.hold(0)
		job, err := f.rc.Submit(t.Context(), client.SubmitOptions{Hold: model.JobID(hold), Command: []string{"true"}, Submitter: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		number, _ := model.ParseJobID(job.ID)
		f.eventually("running job", func() bool { return f.job(number).State == "running" })
		old := f.leader()
		f.net.Isolate(old.ID)
		f.eventually("another leader", func() bool {
			for _, n := range f.others(old) {
				if n.Controller.Leader().Self {
					return true
				}
			}
			return false
		})
		f.net.Heal(old.ID)
		if row := f.job(number); row.State != "running" || row.Hold != model.JobID(hold) {
			t.Errorf("%+v", row)
		}
		if err := f.rc.Kill(t.Context(), model.JobID(hold), "ann"); err != nil {
			t.Fatal(err)
		}
		f.eventually("both ended", func() bool { return f.job(number).State == "killed" && f.job(hold).State == "killed" })
		f.eventually("free device", func() bool { return f.state("box:gpu0") == "ready" })
	})
}
