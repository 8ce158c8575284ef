package api

import (
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/wire"
)

// TestAnEventTellsOfSilenceOnlyWhenThereIsSome: heartbeats are in no row, so
// that the last time a row has is that of the registration, days ago.
func TestAnEventTellsOfSilenceOnlyWhenThereIsSome(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.registerShelf()
		c.advance(time.Hour)
		l := c.nodes["c2"].listen("?kinds=devices")
		defer l.close()
		l.block()
		c.changeLabels("70")
		shown := func() wire.DeviceView {
			t.Helper()
			return decode[[]wire.DeviceView](t, string(l.next().Payload))[0]
		}
		if d := shown(); d.HeartbeatAgeSeconds != 0 || !d.Device.LastHeartbeatAt.Equal(c.now.UTC().Truncate(time.Second)) {
			t.Errorf("in contact, and told as silent for %d s: %+v", d.HeartbeatAgeSeconds, d.Device)
		}
		c.advance(10 * time.Minute)
		silent := command.AgentSilence{Host: "shelf", Instance: "agent-2", SilenceMS: 40_000, DetachedMS: 40_000}
		c.must(&command.Sweep{EpochMS: time.Hour.Milliseconds(), Silent: []command.AgentSilence{silent}})
		if d := shown(); d.Device.State != "unknown" || d.HeartbeatAgeSeconds != 40 {
			t.Errorf("silent for 40 s: %+v", d)
		}
	})
}
