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
