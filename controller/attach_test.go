package controller

import (
	"errors"
	"testing"

	"rcd/api"
	"rcd/model"
	"rcd/wire"
)

func TestAnAgentIsAskedForNothingThatItsReleaseDoesNotKnow(t *testing.T) {
	job := &model.Job{Number: 1, Host: "box"}
	want := wire.StreamOpen{Job: "j-1", Attach: true, TakeOver: true, Window: wire.MaxInputWindow}
	for protocol := windowProtocol; protocol <= wire.AgentProtocol; protocol++ {
		if got, err := askable(job, want, protocol); err != nil || got != want {
			t.Errorf("protocol %d: %+v, %v", protocol, got, err)
		}
	}
	want.Window = 0
	for protocol := attachProtocol; protocol < windowProtocol; protocol++ {
		got, err := askable(job, wire.StreamOpen{Job: "j-1", Attach: true, TakeOver: true, Window: wire.MaxInputWindow}, protocol)
		if err != nil || got != want {
			t.Errorf("protocol %d: %+v, %v", protocol, got, err)
		}
	}
	var refusal *wire.StreamError
	if _, err := askable(job, want, attachProtocol-1); !errors.As(err, &refusal) || refusal.Code != wire.CodeNotAttachable {
		t.Errorf("one that takes no input: %v", err)
	}
	if _, err := askable(job, want, 0); !errors.Is(err, api.ErrHostAway) {
		t.Errorf("one that is away: %v", err)
	}
}
