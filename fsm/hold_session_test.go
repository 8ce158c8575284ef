package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// sessionHold is a hold whose client may be silent for a minute.
func sessionHold(device string) command.JobSpec {
	s := holdOf(device, 3600)
	s.SessionS = 60
	return s
}

// unheard is a sweep that says how long the client of a hold has been silent.
func unheard(j *model.Job, epochMS, silenceMS int64) *command.Sweep {
	return &command.Sweep{EpochMS: epochMS, Sessions: []command.SessionSilence{{Job: j.Number, SilenceMS: silenceMS}}}
}

// TestTheSilenceOfAClientIsSaidThenEndsItsHold: half of what is allowed is said
// once and taken back when it is heard, all of it ends the hold and what runs
// inside.
func TestTheSilenceOfAClientIsSaidThenEndsItsHold(t *testing.T) {
	l := atInside(t)
	h := l.running(l.queued(sessionHold("box:gpu0")))
	in := l.queued(inside(h))
	if got := l.m.View().Sessions(); len(got) != 1 || got[0].Number != h.Number {
		t.Errorf("%v have sessions", got)
	}
	l.advanceMS(600_000)
	l.ok(unheard(h, 600_000, 29_999))
	l.told()
	l.ok(unheard(h, 600_000, 30_000))
	l.told(command.EventHoldSilent)
	l.ok(unheard(h, 600_000, 45_000))
	l.told()
	if !l.job(h.Number).SessionSilent {
		t.Error("its row does not say so")
	}
	l.ok(unheard(h, 600_000, 0))
	l.told(command.EventHoldHeard)
	l.ok(unheard(h, 600_000, 0))
	l.told()
	l.ok(unheard(h, 600_000, 59_999))
	l.ok(unheard(h, 600_000, 60_000))
	l.told(command.EventKillRequested, command.EventKillRequested)
	if j := l.wantJob(h.Number, model.JobRunning); !j.KillRequested || j.KillBy != "the session of its client has ended: no word for 60 s" {
		t.Errorf("%+v", j)
	}
	if j := l.job(in.Number); !j.KillRequested {
		t.Errorf("%+v", j)
	}
	l.ok(unheard(h, 600_000, 0)) // too late
	l.told()
}

// TestNoSessionEndsDuringTheHoldoff, whatever the evidence: it is cut to the age
// of the epoch, and to that of the hold. The warning is said all the same.
func TestNoSessionEndsDuringTheHoldoff(t *testing.T) {
	l := atInside(t)
	s := holdOf("box:gpu0", 3600)
	s.SessionS = model.MinSessionS
	h := l.running(l.queued(s))
	l.advanceMS(600_000)
	l.lead()
	l.advanceMS(29_999)
	l.ok(unheard(h, 1<<40, 1<<40))
	l.told(command.EventHoldSilent)
	if l.job(h.Number).KillRequested {
		t.Error("ended within the holdoff")
	}
	young := l.queued(sessionHold("box:gpu1"))
	l.advanceMS(29_999)
	l.ok(&command.Sweep{EpochMS: 1 << 40, Sessions: []command.SessionSilence{{Job: h.Number, SilenceMS: 1 << 40}, {Job: young.Number, SilenceMS: 1 << 40}}})
	if !l.job(h.Number).KillRequested || l.job(young.Number).KillRequested || l.job(young.Number).SessionSilent {
		t.Error("after the holdoff, or before the hold was there")
	}
}

// TestAHoldInTheQueueEndsWithItsSession: it must not take a device for nobody.
func TestAHoldInTheQueueEndsWithItsSession(t *testing.T) {
	l := atInside(t)
	first := l.running(l.queued(holdOf("box:gpu0", 600)))
	h := l.queued(sessionHold("box:gpu0"))
	l.advanceMS(60_000)
	l.ok(unheard(h, 60_000, 60_000))
	l.told(command.EventHoldSilent, command.EventJobEnded)
	if j := l.wantJob(h.Number, model.JobKilled); !strings.HasPrefix(j.EndReason, "the session of its client has ended") || j.Origin != model.OriginUser {
		t.Errorf("%+v", j)
	}
	l.ok(unheard(h, 60_000, 60_000))
	l.ok(unheard(first, 60_000, 60_000)) // it has no session
	l.told()
	if len(l.m.View().Sessions()) != 0 {
		t.Error("it is listened for still")
	}
}

// TestASessionIsOfAHoldAndBounded walks the refusals.
func TestASessionIsOfAHoldAndBounded(t *testing.T) {
	l := atInside(t)
	for _, seconds := range []int64{-1, model.MinSessionS - 1, model.MaxSessionS + 1} {
		s := holdOf("box:gpu0", 600)
		s.SessionS = seconds
		l.refused(command.BadRequest, submit(s))
	}
	s := pinned("box:gpu0")
	s.SessionS = 60
	l.refused(command.BadRequest, submit(s))
}
