package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// TestTheStreamCarriesEveryWord: a stream that never gets to a rule proves
// nothing about it. The seed is fixed, so that this says the same every time.
func TestTheStreamCarriesEveryWord(t *testing.T) {
	l := newLog(t)
	l.check = false
	s := newStream(seeded{rand.New(rand.NewPCG(3, 3))}, l, 8)
	for range 8000 {
		s.step()
	}
	kinds := map[command.Kind]int{}
	for _, e := range l.entries {
		entry, commands, err := decode(e.data)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commands {
			if entry.Term == e.term {
				kinds[c.Kind]++
			}
		}
	}
	for _, state := range []model.JobState{model.JobFailed, model.JobKilled, model.JobLost} {
		if l.load.inside[state] < 5 {
			t.Errorf("%d jobs inside holds ended as %s", l.load.inside[state], state)
		}
	}
	t.Logf("inside %v; kinds %v; codes %v; events %v", l.load.inside, kinds, l.load.codes, l.load.events)
	for k := command.KindEpochBegin; k <= command.KindCheckpoint; k++ {
		if kinds[k] < 5 {
			t.Errorf("%s came %d times", k, kinds[k])
		}
	}
	never := map[command.EventKind]string{
		command.EventInvariant: "there is nothing broken",
	}
	for e := command.EventEpoch; e <= command.EventHoldHeard; e++ {
		if never[e] == "" && l.load.events[e] == 0 {
			t.Errorf("event %d never happened", e)
		}
	}
	for _, code := range []command.Code{
		command.StaleEpoch, command.BadRequest, command.BadSelector, command.PriorityOutOfRange, command.UnknownDevice,
		command.NoMatchingDevice, command.RuntimeAboveLimit, command.NotPlaced, command.KeyReused, command.NotFound,
		command.NotJobOwner, command.NotCancellable, command.DeviceNotCleared, command.StaleInstance, command.WrongMachine,
		command.StaleLease, command.AlreadyEnded, command.SettingRefused, command.DeviceNotFound, command.DeviceBusy,
		command.NoDevice, command.Unscheduled, command.SheetTooLarge, command.NotExtendable, command.NotReleasable,
		command.FeatureRefused, command.StaleCheckpoint, command.UnknownAgent,
		command.HoldEnded, command.HoldWaiting,
	} {
		if l.load.codes[code] == 0 {
			t.Errorf("code %s never came", code)
		}
	}
	if text := fmt.Sprint(l.m.View().Counts()); l.load.mostQueue < 100 {
		t.Errorf("%d jobs were queued at most; at the end %s", l.load.mostQueue, text)
	}
}
