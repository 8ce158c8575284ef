package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// onlySessions is a lease table of holds with a session.
type onlySessions struct {
	level uint32
	holds []*model.Job
}

func (o *onlySessions) FeatureLevel() uint32     { return o.level }
func (o *onlySessions) EpochUptimeMS() int64     { return 1_000_000 }
func (o *onlySessions) Settings() model.Settings { return model.DefaultSettings() }
func (o *onlySessions) Sessions() []*model.Job   { return o.holds }

func TestEvidenceOfClientsSaysOnlyWhatTheTableCanUse(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	const session, holdoff = 20, 30 // the holdoff is that of the settings
	for name, c := range map[string]struct {
		at        int   // seconds into the epoch
		heard     []int // when its client was
		submitted int   // negative: before the epoch
		silent    bool
		ending    bool
		level     uint32
		want      string
	}{
		"heard all the while":                         {at: 60, heard: []int{0, 30, 55}, submitted: -60},
		"silent for less than half":                   {at: 60, heard: []int{51}, submitted: -60},
		"silent for half":                             {at: 60, heard: []int{50}, submitted: -60, want: "silent 10000"},
		"silent for half, said already":               {at: 60, heard: []int{50}, submitted: -60, silent: true},
		"silent for all of it":                        {at: 60, heard: []int{40}, submitted: -60, silent: true, want: "silent 20000"},
		"being ended":                                 {at: 60, heard: []int{40}, submitted: -60, silent: true, ending: true},
		"within the holdoff, said already":            {at: holdoff - 1, submitted: -60, silent: true},
		"within the holdoff, the warning":             {at: 10, submitted: -60, want: "silent 10000"},
		"at the end of the holdoff":                   {at: holdoff, submitted: -60, silent: true, want: "silent 30000"},
		"never heard since the epoch began":           {at: 9, submitted: -60},
		"submitted lately, never heard":               {at: 60, submitted: 51},
		"submitted for half, never heard":             {at: 60, submitted: 50, want: "silent 10000"},
		"heard again":                                 {at: 60, heard: []int{20, 59}, submitted: -60, silent: true, want: "heard"},
		"was silent in an epoch before, not heard":    {at: 5, submitted: -60, silent: true},
		"heard before the epoch":                      {at: 5, heard: []int{-2}, submitted: -60, silent: true},
		"a cluster of an earlier level":               {at: 60, submitted: -60, level: 1},
		"heard late, by a request that was under way": {at: 60, heard: []int{55, 30}, submitted: -60},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeartbeats(zero)
			for _, s := range c.heard {
				h.hear(7, at(s))
			}
			table := &onlySessions{level: fsm.LevelInside, holds: []*model.Job{{
				Number: 7, Kind: model.KindHold, SessionS: session, SessionSilent: c.silent, KillRequested: c.ending,
				QueuedUptimeMS: 1_000_000 + int64(c.submitted)*1000,
			}}}
			if c.level != 0 {
				table.level = c.level
			}
			got := ""
			for _, s := range h.evidence(at(c.at), zero, func() sessionTable { return table }) {
				if got = fmt.Sprintf("silent %d", s.SilenceMS); s.SilenceMS == 0 {
					got = "heard"
				}
				if s.Job != 7 {
					t.Errorf("of job %d", s.Job)
				}
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestALeaderThatWasStoppedCountsTheSilenceOfClientsAnew as it does that of
// hosts: what it did not hear meanwhile is no silence.
func TestALeaderThatWasStoppedCountsTheSilenceOfClientsAnew(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	h := newHeartbeats(zero)
	h.hear(7, zero.Add(time.Second))
	h.reset(zero.Add(time.Hour))
	table := &onlySessions{level: fsm.LevelInside, holds: []*model.Job{{Number: 7, SessionS: 20}}}
	if told := h.evidence(zero.Add(time.Hour+9*time.Second), zero, func() sessionTable { return table }); told != nil {
		t.Errorf("%+v", told)
	}
}

func TestWhatIsRememberedOfClientsIsBoundedByTheHolds(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	h := newHeartbeats(zero)
	table := &onlySessions{level: fsm.LevelInside}
	for n := range uint64(2 * maxSessionsTold) {
		table.holds = append(table.holds, &model.Job{Number: n + 1, SessionS: 20})
		h.hear(n+1, zero)
	}
	look := func() []command.SessionSilence {
		return h.evidence(zero.Add(time.Minute), zero, func() sessionTable { return table })
	}
	if told := look(); len(told) != maxSessionsTold || told[0].Job != 1 {
		t.Errorf("%d told of at once", len(told))
	}
	table.holds = slices.Delete(table.holds, 0, maxSessionsTold) // they have ended
	if told := look(); len(told) != maxSessionsTold || told[0].Job != maxSessionsTold+1 || len(h.heard) != maxSessionsTold {
		t.Errorf("%d told of, %d remembered", len(told), len(h.heard))
	}
}
