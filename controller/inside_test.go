package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/session"
	"rcd/wire"
)

// holding is a lease table at the level of this release whose gpu0 is held by
// ann, with one job inside that runs and one that is assigned.
func holding(t *testing.T) (w *webhookTable, hold, runs, waits command.JobRef) {
	t.Helper()
	w = newWebhookTable(t)
	w.tell(0, &command.MemberPut{ID: "c1", Incarnation: "i", Supports: fsm.LevelInside},
		&command.FeatureRaise{Level: fsm.LevelInside, Members: []string{"c1"}})
	w.tell(0, &command.JobEnqueue{Jobs: []command.JobSpec{{Kind: model.KindHold, Pinned: "box:gpu0", Submitter: "ann", MaxRuntimeS: 3600, SessionS: 30}}})
	hold = command.JobRef{Job: 1, Lease: w.machine.View().Job(1).Lease}
	inside := command.JobSpec{Hold: 1, Submitter: "ann", Command: []string{"true"}}
	w.tell(0, &command.JobStart{JobRef: hold, Host: "box", Instance: "i1"}, &command.JobEnqueue{Jobs: []command.JobSpec{inside, inside}})
	runs, waits = command.JobRef{Job: 2, Lease: hold.Lease}, command.JobRef{Job: 3, Lease: hold.Lease}
	w.tell(0, &command.JobStart{JobRef: runs, Host: "box", Instance: "i1"})
	return w, hold, runs, waits
}

// TestAnAgentOfAnEarlierReleaseCannotKeepADeviceByAJobThatItNeverGets: one that
// was put back while a job inside a hold was on its way.
func TestAnAgentOfAnEarlierReleaseCannotKeepADeviceByAJobThatItNeverGets(t *testing.T) {
	w, hold, runs, waits := holding(t)
	box := session.Contact{Host: "box", Instance: "i1", Attached: true, Protocol: session.InsideProtocol - 1,
		Named: []wire.ReportedJob{{Job: hold.Job, Lease: hold.Lease}, {Job: runs.Job, Lease: runs.Lease}}}
	ends := func(change func(*session.Contact)) []*command.JobFinish {
		c := box
		change(&c)
		return unrunnable(w.machine.View(), []session.Contact{c})
	}
	for name, change := range map[string]func(*session.Contact){
		"of this release":        func(c *session.Contact) { c.Protocol = session.InsideProtocol },
		"away":                   func(c *session.Contact) { c.Attached, c.Protocol = false, 0 },
		"it has the job already": func(c *session.Contact) { c.Named = append(c.Named, wire.ReportedJob{Job: waits.Job}) },
	} {
		if list := ends(change); len(list) != 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
	list := ends(func(*session.Contact) {})
	if len(list) != 1 || list[0].Job != waits.Job {
		t.Fatalf("%+v", list)
	}
	w.tell(0, list[0])
	j := w.machine.View().Job(waits.Job)
	if j.State != model.JobFailed || *j.ExitCode != -1 || !strings.Contains(j.EndReason, "upgrade") {
		t.Errorf("%v %v %q", j.State, *j.ExitCode, j.EndReason)
	}
	if l := w.machine.View().Lease(hold.Lease); l == nil || len(l.Jobs) != 2 {
		t.Errorf("the hold and what runs inside: %+v", l)
	}
}

// TestTheEndsOfManyJobsThatAnOldAgentCannotRunTakeTurns: each is an entry, and no
// agent is taken in meanwhile.
func TestTheEndsOfManyJobsThatAnOldAgentCannotRunTakeTurns(t *testing.T) {
	w, _, _, _ := holding(t)
	w.tell(0, &command.JobEnqueue{Jobs: []command.JobSpec{{Kind: model.KindHold, Pinned: "box:gpu1", Submitter: "ann", MaxRuntimeS: 3600}}})
	for hold, n := range map[uint64]int{1: 62, 4: 64} {
		inside := command.JobSpec{Hold: hold, Submitter: "ann", Command: []string{"true"}}
		w.tell(0, &command.JobEnqueue{Jobs: slices.Repeat([]command.JobSpec{inside}, n)})
	}
	box := session.Contact{Host: "box", Instance: "i1", Attached: true, Protocol: session.InsideProtocol - 1}
	for _, want := range []int{64, 63, 0} {
		ends := unrunnable(w.machine.View(), []session.Contact{box})
		if len(ends) != want {
			t.Fatalf("%d ends in one round, want %d", len(ends), want)
		}
		for _, end := range ends {
			w.tell(0, end)
		}
	}
}

func TestAHostIsToldWhyWhatRunsInsideAHoldEnds(t *testing.T) {
	w, hold, _, _ := holding(t)
	reasons := func() map[uint64]string {
		out := map[uint64]string{}
		for _, d := range desiredOn(w.machine.View(), "box") {
			if d.KillRequested {
				out[d.Job] = d.KillReason
			}
			if d.Start.Devices[0] == "box:gpu0" && d.Job != hold.Job && d.Start.Hold != hold.Job {
				t.Errorf("the order of job %d names hold %d", d.Job, d.Start.Hold)
			}
		}
		return out
	}
	long := time.Hour.Milliseconds()
	w.tell(time.Hour, &command.Sweep{EpochMS: long, Sessions: []command.SessionSilence{{Job: hold.Job, SilenceMS: 31_000}}})
	want := "the session of its client has ended: no word for 31 s"
	if got := reasons(); len(got) != 3 || got[hold.Job] != want || got[2] != "hold j-1 ended" || got[3] != "hold j-1 ended" {
		t.Errorf("%v", got)
	}
	// Of other jobs the word is the ancestor's.
	job := w.run(model.KindJob, "gpu1")
	w.tell(0, &command.JobKill{Job: job.Job, By: "ann"})
	if got, ended := reasonOf(w, job.Job); !ended || got != "" {
		t.Errorf("%q", got)
	}
}

func reasonOf(w *webhookTable, job uint64) (string, bool) {
	for _, d := range desiredOn(w.machine.View(), "box") {
		if d.Job == job {
			return d.KillReason, d.KillRequested
		}
	}
	return "", false
}
