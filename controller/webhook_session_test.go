package controller

import (
	"testing"
	"time"

	"rcd/fsm/command"
)

func TestTheSilenceOfAClientIsToldByWebhook(t *testing.T) {
	w, hold, _, _ := holding(t)
	say := func(silence time.Duration) *command.Sweep {
		return &command.Sweep{EpochMS: silence.Milliseconds(), Sessions: []command.SessionSilence{{Job: hold.Job, SilenceMS: silence.Milliseconds()}}}
	}
	w.want("half of it", w.tell(15*time.Second, say(15*time.Second)),
		"hold_session_silent|box:gpu0|j-1|no word of its client for half of the 30 s after which the hold ends")
	w.want("the same", w.tell(time.Second, say(16*time.Second)))
	w.want("heard again", w.tell(time.Second, say(0)), "hold_session_heard|box:gpu0|j-1|its client has been heard again")
}
