package sim

import (
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// frees makes a host detect that its devices have this much free memory, and
// say so.
func (h *host) frees(mib int64) {
	for i := range h.devices {
		h.free[h.devices[i].Name] = mib
		h.detect(i)
	}
	h.tellFacts()
}

// A host says that a fact has changed, the table takes it, and the answer gets
// lost. Then the fact goes back to what the answer before was about.
func TestAFactThatWentBackIsToldAgain(t *testing.T) {
	both(t, QuirkTrustAnswers, func(w *World) {
		h := w.hosts[0]
		h.frees(80 << 10)
		w.Run(8 * time.Second)
		for _, n := range w.nodes { // nothing comes in, for less than a session lasts
			h.cutIn[n.id] = w.now + 400*time.Millisecond
		}
		h.frees(24 << 10)
		w.Run(500 * time.Millisecond)
		if got, _ := w.witness.last.Device(w.device(h)).Label("vram_free"); got != "24G" {
			t.Fatalf("the table has %s", got)
		}
		h.frees(80 << 10)
		w.Run(20 * time.Second)
	})
}

// A host says that a fact has changed, and while that is on its way into the
// table the fact goes back and the host comes in a new session. The rows are
// still as the host has them, but not for long.
func TestAFactThatWentBackWhileTheChangeWasOnItsWayIsToldAgain(t *testing.T) {
	both(t, QuirkNoDoubts, func(w *World) {
		h := w.hosts[0]
		h.frees(80 << 10)
		w.Run(8 * time.Second)
		w.stall(3 * time.Second)
		h.frees(24 << 10)
		w.Run(100 * time.Millisecond)
		s := h.session
		h.dropped(s)
		s.closeLeaderSide(false)
		h.frees(80 << 10)
		w.Run(20 * time.Second)
	})
}

// A device is retired while its host tells new facts of it and of another one.
// They are refused as a whole, and those of the other device must come all the
// same.
func TestFactsOfTheOtherDevicesOutliveARetirement(t *testing.T) {
	both(t, QuirkTakeRefusals, func(w *World) {
		h := w.hosts[0]
		if len(h.devices) == 1 {
			h.stopAgent()
			h.addDevice()
			h.startAgent()
		}
		h.frees(24 << 10)
		w.Run(8 * time.Second)
		w.stall(time.Second)
		w.clients.ask(&command.DeviceRetire{Device: model.DeviceID(h.name, h.devices[1].Name)}, func(answer) {})
		w.Run(100 * time.Millisecond)
		h.frees(80 << 10)
		w.Run(20 * time.Second)
	})
}
