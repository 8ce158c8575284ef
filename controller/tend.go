package controller

import (
	"context"
	"time"

	"rcd/wire"
)

// tend does what a leader owes the controllers themselves, until ctx ends: it
// compares their lease tables and keeps the record of who they are. It waits for
// answers of others, so it must not hold up the judging.
func (c *Controller) tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	m := &membership{refused: map[string]refusal{}}
	defer c.alarms.end(wire.AlarmMemberBehind)
	p := &comparison{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.record(ctx, m)
		c.compare(ctx, p)
	}
}
