package sim

import (
	"testing"
	"time"

	"rcd/fsm/command"
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
