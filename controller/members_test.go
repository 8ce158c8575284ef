package controller

import (
	"context"
	"testing"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/raftnode"
	"rcd/wire"
)

// The alarm of a controller that is behind ends as soon as there is none: it
// was upgraded, whether or not its row had to be written, or it has left.
func TestTheAlarmOfAControllerThatIsBehindEndsWithItsReason(t *testing.T) {
	behind := refusal{word{"inc", 1, "old"}, command.Result{Code: command.FeatureRefused, Message: "c3 knows 1; upgrade it."}}
	nameless := refusal{word{"inc", 2, ""}, command.Result{Code: command.BadRequest, Message: "a word of too many bytes"}}
	for name, step := range map[string]struct {
		then func(m *membership)
		want bool
	}{
		"nothing happens":        {func(*membership) {}, true},
		"it says the same again": {func(m *membership) { m.hears("c3", behind.said) }, true},
		"another joins": {func(m *membership) {
			m.keep([]raftnode.Member{{ID: "c1"}, {ID: "c2"}, {ID: "c3"}, {ID: "c4"}})
		}, true},
		"it was upgraded": {func(m *membership) {
			if !m.hears("c3", word{"inc", 2, "new"}) {
				t.Error("a new word is taken for the refused one")
			}
		}, false},
		"it has left": {func(m *membership) { m.keep([]raftnode.Member{{ID: "c1"}, {ID: "c2"}}) }, false},
		"upgraded, and another is refused for another reason": {func(m *membership) {
			m.hears("c3", word{"inc", 2, "new"})
			m.refused["c2"] = nameless
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Controller{machine: fsm.New(fsm.Options{})}
			m := &membership{refused: map[string]refusal{"c3": behind}}
			c.tellBehind(m)
			if list := c.alarmed(); len(list) != 1 || list[0].Code != wire.AlarmMemberBehind || list[0].Message != behind.why.Message {
				t.Fatalf("alarms %+v", list)
			}
			step.then(m)
			c.tellBehind(m)
			if list := c.alarmed(); (len(list) > 0) != step.want {
				t.Errorf("alarms %+v", list)
			}
		})
	}
}

// What only a leader knows it does not go on telling when it leads no more: the
// next one has its own eyes.
func TestALeaderTakesTheAlarmOfAControllerThatIsBehindWithIt(t *testing.T) {
	c := &Controller{machine: fsm.New(fsm.Options{})}
	c.alarms.raise(wire.AlarmMemberBehind, time.Now(), "c3 knows 1; upgrade it.")
	ctx, end := context.WithCancel(t.Context())
	end()
	c.tend(ctx)
	if list := c.alarmed(); len(list) != 0 {
		t.Errorf("after its epoch it tells %+v", list)
	}
}
