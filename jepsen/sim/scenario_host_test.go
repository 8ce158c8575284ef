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
