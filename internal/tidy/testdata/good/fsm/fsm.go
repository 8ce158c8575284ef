// Package fsm uses what looks like the forbidden things and is not.
package fsm

import (
	"maps"
	"slices"
	"time"

	"rcd/model"
)

const grace = 3 * time.Second

type clock struct{ uptime time.Duration }

func (c clock) Now() time.Duration { return c.uptime + 1e9 }

func labels(j model.Job, c clock) (keys []string) {
	_ = c.Now() + grace/2
	for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
		keys = append(keys, k)
	}
	for i := range 3 {
		_ = keys[i]
	}
	clear(j.Labels)
	_ = time.Time{}.After(time.Time{}) // not time.After
	return slices.SortedFunc((maps.Values(j.Labels)), func(a, b string) int { return len(a) - len(b) })
}
