package controller_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"rcd/client"
	"rcd/fsm"
	"rcd/jepsen/rig"
	"rcd/model"
	"rcd/wire"
)

// hold takes box:gpu0 for ann once the cluster is of this release's feature
// level.
func (c *cluster) hold(session time.Duration) string {
	c.t.Helper()
	ctx := context.Background()
	c.eventually("the feature level", func() error {
		members, err := c.rc.Members(ctx)
		if err == nil && members.FeatureLevel < fsm.LevelInside {
			err = fmt.Errorf("it is %d", members.FeatureLevel)
		}
		return err
	})
	hold, err := c.rc.Submit(ctx, client.SubmitOptions{DeviceID: "box:gpu0", Kind: "hold", MaxRuntime: time.Hour, Session: session, Submitter: "ann"})
	if err != nil {
		c.t.Fatal(err)
	}
	n, _ := model.ParseJobID(hold.ID)
	c.waitRunning(n)
	return hold.ID
}

// inside runs a job inside a hold and waits until its host does.
func (c *cluster) inside(hold string) uint64 {
	c.t.Helper()
	job, err := c.rc.Submit(context.Background(), client.SubmitOptions{Hold: hold, Command: []string{"true"}, Submitter: "ann"})
	if err != nil {
		c.t.Fatal(err)
	}
	n, _ := model.ParseJobID(job.ID)
	c.waitRunning(n)
	return n
}

func (c *cluster) terminal(id string) *wire.Job {
	c.t.Helper()
	row, err := c.rc.WaitTerminal(context.Background(), id, time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	return row
}

func TestWorkInsideAHoldHasItsOwnOutputAndEndAndEndsWithTheHold(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	id := c.hold(0)
	for code := range int32(2) {
		n := c.inside(id)
		line := fmt.Sprintf("hello %d\n", code)
		c.host.Print(n, line)
		c.host.Exit(n, code)
		row := c.terminal(model.JobID(n))
		if row.ExitCode == nil || *row.ExitCode != int(code) || row.Hold != id || row.DeviceID != "box:gpu0" {
			t.Errorf("%+v", row)
		}
		var out bytes.Buffer
		if err := c.rc.Logs(ctx, row.ID, &out, false); err != nil || out.String() != line {
			t.Errorf("logs of %s: %q, %v", row.ID, &out, err)
		}
	}
	first, second := c.inside(id), c.inside(id)
	if _, err := c.rc.Release(ctx, id, "ann", false); err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{first, second} {
		if row := c.terminal(model.JobID(n)); row.State != "killed" || row.KillReason != "hold "+id+" ended" {
			t.Errorf("%s ended as %s: %q", row.ID, row.State, row.KillReason)
		}
	}
	c.terminal(id)
	c.eventually("a free device", func() error {
		devices, err := c.rc.Devices(ctx)
		if err == nil && devices[0].Device.State != "ready" {
			err = errors.New(devices[0].Device.State)
		}
		return err
	})
	_, err := c.rc.Submit(ctx, client.SubmitOptions{Hold: id, Command: []string{"true"}, Submitter: "ann"})
	var refused *client.APIError
	if !errors.As(err, &refused) || refused.Code != "hold_ended" {
		t.Errorf("after its end: %v", err)
	}
	if jobs, err := c.rc.Jobs(ctx, client.JobsOptions{Hold: id}); err != nil || len(jobs) != 4 {
		t.Errorf("%d jobs were inside, %v", len(jobs), err)
	}
}

func TestHeartbeatsGoThroughAnyControllerAndAChangeOfLeader(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	id := c.hold(time.Minute)
	for _, n := range c.nodes {
		rc, err := client.New(client.Options{Controllers: []string{"http://" + n.HTTP}, Token: rig.AdminToken})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := rc.Heartbeat(ctx, id, "ann")
		rc.Close()
		if err != nil || answer.State == "" || answer.KillRequested || answer.SessionSeconds != 60 {
			t.Errorf("through %s: %+v, %v", n.ID, answer, err)
		}
	}
	leader := rig.Leader(c.nodes)
	if leader == nil {
		t.Fatal("no leader")
	}
	if err := leader.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.rc.Heartbeat(ctx, id, "ann"); err != nil {
		t.Errorf("while the leader is replaced: %v", err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.rc.Kill(ctx, id, "ann"); err != nil {
		t.Fatal(err)
	}
	c.terminal(id)
	if _, err := c.rc.Heartbeat(ctx, id, "ann"); !errors.Is(err, client.ErrJobEnded) {
		t.Errorf("after its end: %v", err)
	}
}
