package sim

import (
	"testing"
	"time"
)

// A host says that a fact has changed, the table takes it, and the answer gets
// lost. Then the fact goes back to what the answer before was about.
func TestAFactThatWentBackIsToldAgain(t *testing.T) {
	both(t, QuirkTrustAnswers, func(w *World) {
		h := w.hosts[0]
		d := &h.devices[0]
		say := func(free int64) {
			h.free[d.Name] = free
			h.detect(0)
			h.tellFacts()
		}
		say(80 << 10)
		w.Run(8 * time.Second)
		for _, n := range w.nodes { // nothing comes in, for less than a session lasts
			h.cutIn[n.id] = w.now + 400*time.Millisecond
		}
		say(24 << 10)
		w.Run(500 * time.Millisecond)
		if got, _ := w.witness.last.Device(w.device(h)).Label("vram_free"); got != "24G" {
			t.Fatalf("the table has %s", got)
		}
		say(80 << 10)
		w.Run(20 * time.Second)
	})
}
