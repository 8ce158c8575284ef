package bubble

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"rcd/client"
	"rcd/jepsen/rig"
	"rcd/model"
)

// An idle log's uptime stands still, so that a leader must count the grace by
// its own clock, and end the job by a sweep that has nothing else to say.
func TestAJobThatNobodyServesAnyMoreEndsAfterTheGraceOnAnIdleCluster(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		ctx := context.Background()
		const grace = time.Minute // the shortest that may be set
		if _, err := f.rc.SetSettings(ctx, map[string]any{"no_serve_grace_ms": grace.Milliseconds()}); err != nil {
			t.Fatal(err)
		}
		f.run("box:gpu1")
		job, err := f.rc.Submit(ctx, client.SubmitOptions{DeviceID: "box:gpu1", Command: []string{"train"}, Submitter: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		waiting, _ := model.ParseJobID(job.ID)

		// The next agent process declares one device, and supervises nothing.
		f.box.Stop()
		before := time.Now()
		f.box = rig.StartHost(rig.HostConfig{Name: "box", Instance: "i2", Devices: 1, Token: rig.WorkerToken,
			Addresses: []string{"c1:7001", "c2:7001", "c3:7001"}, Dial: f.net.Dialer("box"), Logger: slog.New(slog.DiscardHandler)})
		f.eventually("the device without a host", func() bool { return f.state("box:gpu1") == "unknown" && f.state("box:gpu0") == "ready" })
		known := time.Now()

		leader := f.leader()
		time.Sleep(before.Add(grace / 2).Sub(time.Now()))
		halfway := f.status(leader).LastLog
		time.Sleep(before.Add(grace - time.Millisecond).Sub(time.Now()))
		if row := f.job(waiting); row.State != "queued" {
			t.Fatalf("before the grace is over the job is %s (%s)", row.State, row.KillReason)
		}
		if now := f.status(leader).LastLog; now != halfway {
			t.Errorf("waiting for the grace the log went from %d to %d", halfway, now)
		}
		for f.job(waiting).State == "queued" && time.Since(known) < 10*grace {
			time.Sleep(100 * time.Millisecond)
		}
		row := f.job(waiting)
		if took := time.Since(known); took > grace+3*time.Second {
			t.Errorf("the job ended after %v, the grace is %v", took, grace)
		}
		if row.State != "killed" || row.KillReason != "its host no longer declares box:gpu1" {
			t.Errorf("the job is %s: %q", row.State, row.KillReason)
		}
		time.Sleep(10 * time.Second)
		idle := f.status(f.leader()).LastLog
		time.Sleep(10 * time.Minute)
		if after := f.status(f.leader()).LastLog; after != idle {
			t.Errorf("an idle log went from %d to %d in ten minutes", idle, after)
		}
	})
}
