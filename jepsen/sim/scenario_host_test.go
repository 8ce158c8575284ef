package sim

import (
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// A silent host is taken in again, and its retirement is applied before any
// sweep has heard it: its session stands, and nobody knows it.
func TestAHostRetiredAtTheMomentItCameBackRegistersAgain(t *testing.T) {
	both(t, QuirkKeepUnregistered, func(w *World) {
		h := w.hosts[0]
		w.operator.away = true
		w.cut(h, 10*time.Second)
		h.dropped(h.session)
		w.log.leader.epoch.sessionOf(h.name).closeLeaderSide(false)
		w.Run(9 * time.Second)
		w.stall(4 * time.Second)
		w.clients.ask(&command.DeviceRetire{Host: h.name}, func(answer) {})
		w.Run(20 * time.Second)
	})
}

// A mass write-off is withheld and nobody says anything to it: leadership has
// moved once, and then the log is at rest.
func TestAWithheldWriteOffLeavesTheLogAtRest(t *testing.T) {
	both(t, QuirkSayWithheld, func(w *World) {
		w.operator.away = true
		w.clients.set(command.Setting{Name: "mass_floor", Value: 0}, command.Setting{Name: "mass_percent", Value: 0})
		w.Run(10 * time.Second)
		w.cut(w.hosts[0], 20*time.Minute)
		w.Run(10 * time.Minute)
		if _, waits := w.witness.last.Withheld(); !waits || w.counts.MovedAway != 1 {
			w.fail("withheld %t, leadership moved %d times", waits, w.counts.MovedAway)
		}
		before := len(w.log.committed)
		w.Run(5 * time.Minute)
		if n := len(w.log.committed) - before; n > 0 {
			w.fail("while a write-off is withheld the log grew by %d entries in 5 minutes", n)
		}
	})
}

// A host whose disk is frozen is asked for a proof for one device. Behind that
// wish comes a start for the other one, whose lease then ends, too. The proof
// must not speak for the second device.
func TestAProofSaysNothingOfALaterQuarantine(t *testing.T) {
	both(t, QuirkOldProof, func(w *World) {
		h := w.hosts[0]
		if h.manual, h.container = false, false; len(h.devices) == 1 {
			h.addDevice()
		}
		w.clients.set(command.Setting{Name: "lease_unstarted_ms", Value: 10_000}, command.Setting{Name: "holdoff_ms", Value: 10_000},
			command.Setting{Name: "flap_limit", Value: 3})
		h.stopAgent()
		w.Run(time.Second)
		h.startAgent()
		w.Run(15 * time.Second)
		h.frozen = w.now + 17500*time.Millisecond
		w.pin(w.device(h))
		w.Run(6500 * time.Millisecond)
		w.pin(model.DeviceID(h.name, h.devices[1].Name))
		w.Run(h.frozen - w.now - 10*time.Millisecond)
		for _, n := range w.nodes { // what is started now is not ended at once
			h.cutIn[n.id] = w.now + 500*time.Millisecond
		}
		w.Run(30 * time.Second)
	})
}

// frozenStart has a job ordered to a host whose disk is frozen for a while, under
// bounds that let its lease end meanwhile.
func frozenStart(w *World, manual bool, frozen time.Duration) {
	h := w.hosts[0]
	h.manual, h.container = manual, false
	w.clients.set(command.Setting{Name: "lease_unstarted_ms", Value: 10_000}, command.Setting{Name: "holdoff_ms", Value: 10_000},
		command.Setting{Name: "flap_limit", Value: 3})
	h.stopAgent()
	w.Run(time.Second)
	h.startAgent()
	w.Run(15 * time.Second)
	h.frozen = w.now + frozen
	w.pin(w.device(h))
	w.Run(frozen - 10*time.Millisecond)
	w.cut(h, 500*time.Millisecond) // what is started now is not ended at once
	w.Run(30 * time.Second)
}

// The disk of a host is frozen for longer than a lease may wait for its start.
// The order is not to be seen on the host, and is still to be obeyed: the host
// must not prove that its device is free.
func TestAHostProvesNothingWhileAnOrderWaits(t *testing.T) {
	both(t, QuirkProveAhead, func(w *World) { frozenStart(w, false, 11500*time.Millisecond) })
}

// The disk is frozen for so long that a person has cleared the device, on which
// nothing runs, when the order gets its turn. It is left to a repetition that
// does not come.
func TestAStartThatWaitedForLongIsLeftToItsRepetition(t *testing.T) {
	both(t, QuirkObeyLate, func(w *World) { frozenStart(w, true, time.Minute) })
}
