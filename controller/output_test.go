package controller

import (
	"testing"

	"rcd/model"
	"rcd/relay"
)

func TestAJobTakenBackBeforeItBeganHasAllOfItsOutput(t *testing.T) {
	ended := func(row *model.Job) relay.End {
		t.Helper()
		o := &output{conduit: relay.NewConduit(0)}
		if err := o.endWithoutSpool(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		record, err := o.conduit.Next(t.Context())
		end, ok := record.(relay.End)
		if err != nil || !ok {
			t.Fatalf("%v %v", record, err)
		}
		return end
	}
	if end := ended(&model.Job{State: model.JobKilled}); !end.Complete || end.Reason != "" || end.Length != 0 {
		t.Errorf("in the queue: %+v", end)
	}
	if end := ended(&model.Job{State: model.JobLost, Host: "box"}); end.Complete || end.Reason != "host box is out of reach" {
		t.Errorf("on a host that was written off: %+v", end)
	}
}

// A plain read of a job that ended between the host's word and the look at the
// row took what it had not read for missing.
func TestAJobThatEndsWhileItIsReadIsReadOn(t *testing.T) {
	running, ended := &model.Job{State: model.JobRunning}, &model.Job{State: model.JobSucceeded}
	var still, whole relay.End
	whole.Complete = true
	for _, c := range []struct {
		host        relay.End
		before, now *model.Job
		want        bool
	}{
		{still, running, running, false},
		{still, running, ended, true},
		{still, running, nil, true},
		{whole, running, ended, false},
		{still, ended, ended, false}, // the host has no more
	} {
		if got := endedSince(c.host, c.before, c.now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
