package session

import (
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// onlyTable is the lease table of one host "box".
type onlyTable struct {
	agent    model.Agent
	devices  []*model.Device
	leases   []*model.Lease
	settings model.Settings
	withheld uint64 // term that withholds
}

func (o *onlyTable) Agents() []*model.Agent           { return []*model.Agent{&o.agent} }
func (o *onlyTable) DevicesOn(string) []*model.Device { return o.devices }
func (o *onlyTable) LeasesOn(string) []*model.Lease   { return o.leases }
func (o *onlyTable) Settings() model.Settings         { return o.settings }
func (o *onlyTable) StillWithheld(term uint64) bool   { return o.withheld == term }

// scene is one question to a Liveness that began at zero.
type scene struct {
	table    onlyTable
	contacts []Contact
	at       time.Duration
	ordered  bool
	before   func(l *Liveness, at func(time.Duration) time.Time)
}

func TestEvidenceSaysOnlyWhatTheTableCanUse(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	at := func(d time.Duration) time.Time { return zero.Add(d) }
	device := func(state model.DeviceState, lease uint64) []*model.Device {
		return []*model.Device{{ID: "box:gpu0", Host: "box", State: state, Lease: lease}}
	}
	lease := []*model.Lease{{Number: 9, Jobs: []uint64{4}, Devices: []string{"box:gpu0"}, Term: 5}}
	here := []Contact{{Host: "box", Instance: "i1", Attached: true, AttachedSince: at(0), LastHeard: at(0)}}
	gone := []Contact{{Host: "box", Instance: "i1", DetachedSince: at(time.Second), LastHeard: at(time.Second)}}
	silent := func(host bool) model.Agent {
		return model.Agent{Host: "box", Instance: "i1", Silent: host, WrittenOff: false}
	}
	off := model.Agent{Host: "box", Instance: "i1", Silent: true, WrittenOff: true}
	const minute = time.Minute

	cases := map[string]struct {
		scene
		want string // "", silent, heard, unnamed, with "unordered" added
	}{
		"an attached agent is no news":              {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceReady, 0)}, contacts: here, at: minute}, ""},
		"one that was silent is heard":              {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0)}, contacts: here, at: minute}, "heard"},
		"an absent device of a present agent":       {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceUnknown, 0)}, contacts: here, at: minute}, ""},
		"detached for less than three seconds":      {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceReady, 0)}, contacts: gone, at: 3 * time.Second}, ""},
		"detached for three seconds":                {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceReady, 0)}, contacts: gone, at: 4 * time.Second}, "silent"},
		"never seen in this epoch":                  {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceBusy, 9)}, at: 3 * time.Second}, "silent"},
		"said already":                              {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0)}, contacts: gone, at: minute}, ""},
		"silent past the long bound":                {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0)}, contacts: gone, at: 6 * minute}, "silent"},
		"withheld in this epoch":                    {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0), withheld: 5}, contacts: gone, at: 6 * minute}, ""},
		"withheld in the one before":                {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0), withheld: 4}, contacts: gone, at: 6 * minute}, "silent"},
		"withheld, and heard again":                 {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0), withheld: 5}, contacts: here, at: 6 * minute}, "heard"},
		"withheld, with a device not yet unknown":   {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceReady, 0), withheld: 5}, contacts: gone, at: 6 * minute}, "silent"},
		"written off already":                       {scene{table: onlyTable{agent: off, devices: device(model.DeviceUnhealthy, 0)}, contacts: gone, at: 60 * minute}, ""},
		"written off with jobs retained no more":    {scene{table: onlyTable{agent: off, devices: device(model.DeviceUnhealthy, 9), leases: lease}, contacts: gone, at: 60 * minute, ordered: true}, "silent"},
		"a job that no session carried":             {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceBusy, 9), leases: lease}, contacts: gone, at: minute}, "silent unordered"},
		"one placed while the sweep was on its way": {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 9), leases: lease}, contacts: gone, at: minute}, "silent unordered"},
		"one that a session carried":                {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 9), leases: lease}, contacts: gone, at: minute, ordered: true}, ""},
		"a fresh lease of a long session":           {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceBusy, 9), leases: lease}, contacts: here, at: 60 * minute}, ""},
		"a lease not named for long": {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceBusy, 9), leases: lease}, contacts: here, at: 60 * minute,
			before: func(l *Liveness, at func(time.Duration) time.Time) {
				c := here[0]
				c.Named, c.LastHeard = []wire.ReportedJob{{Job: 4, Lease: 9}}, at(50*minute)
				l.Attend([]Contact{c})
			}}, "unnamed"},
		"being taken in": {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceBusy, 9), leases: lease}, contacts: gone, at: minute,
			before: func(l *Liveness, at func(time.Duration) time.Time) { l.Admit("box", at(minute)) }}, ""},
		"taken in long ago and never attached": {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceBusy, 9)}, contacts: gone, at: 2 * minute,
			before: func(l *Liveness, at func(time.Duration) time.Time) { l.Admit("box", at(minute)) }}, "silent"},
		"the process woke up a second ago": {scene{table: onlyTable{agent: silent(false), devices: device(model.DeviceBusy, 9)}, contacts: gone, at: 60 * minute,
			before: func(l *Liveness, at func(time.Duration) time.Time) { l.Reset(at(60*minute - time.Second)) }}, ""},
		"heard by a follower, detached here": {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0)}, contacts: gone, at: 6 * minute,
			before: func(l *Liveness, at func(time.Duration) time.Time) { l.Hear("box", "i1", at(5*minute)) }}, ""},
		"another process under its name": {scene{table: onlyTable{agent: silent(true), devices: device(model.DeviceUnknown, 0)}, at: 6 * minute,
			before: func(l *Liveness, at func(time.Duration) time.Time) { l.Hear("box", "impostor", at(6*minute)) }}, "silent"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.table.settings = model.DefaultSettings()
			l := NewLiveness(zero)
			if c.before != nil {
				c.before(l, at)
			}
			sweep, worth := l.Evidence(at(c.at), &c.table, c.contacts, 5, func(uint64, uint64) bool { return c.ordered })
			if got := words(sweep); got != c.want || worth != (c.want != "") {
				t.Errorf("evidence %q, worth proposing %v; want %q", got, worth, c.want)
			}
		})
	}
}

func words(s *command.Sweep) string {
	out := ""
	for _, part := range []struct {
		word string
		n    int
	}{{"silent", len(s.Silent)}, {"heard", len(s.Heard)}, {"unnamed", len(s.Unnamed)}, {"unordered", len(s.Unordered)}} {
		if part.n == 0 {
			continue
		}
		if out != "" {
			out += " "
		}
		out += part.word
	}
	return out
}

func TestAgesBeginWithTheEpoch(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	l := NewLiveness(zero)
	l.Hear("early", "i1", zero.Add(-time.Second))
	l.Hear("box", "i1", zero.Add(2*time.Second))
	l.Hear("box", "impostor", zero.Add(4*time.Second))
	ages := l.Ages(zero.Add(5*time.Second), []*model.Agent{{Host: "box", Instance: "i1"}, {Host: "early", Instance: "i1"}})
	if len(ages) != 1 || ages["box"] != 3*time.Second {
		t.Errorf("ages %v, want only box at 3 s: what came before the epoch counts for nothing", ages)
	}
}

// TestALeaderForgetsWhenEndedLeasesWereNamed: an epoch lasts for months, and has
// many leases. What lives is remembered, also while its host is away.
func TestALeaderForgetsWhenEndedLeasesWereNamed(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	l := NewLiveness(zero)
	table := &onlyTable{agent: model.Agent{Host: "box", Instance: "i1"}, settings: model.DefaultSettings()}
	here := Contact{Host: "box", Instance: "i1", Attached: true, LastHeard: zero, AttachedSince: zero}
	look := func(at time.Duration, c Contact) {
		l.Attend([]Contact{c})
		l.Evidence(zero.Add(at), table, []Contact{c}, 1, func(uint64, uint64) bool { return true })
	}
	for n := range uint64(1000) {
		table.leases = []*model.Lease{{Number: n + 1, Begun: true}}
		here.Named = []wire.ReportedJob{{Job: n + 1, Lease: n + 1}}
		here.LastHeard = zero.Add(time.Duration(n) * time.Second)
		look(time.Duration(n)*time.Second, here)
	}
	away := here
	away.Attached, away.DetachedSince = false, here.LastHeard
	look(1001*time.Second, away)
	if at := l.named[1000]; len(l.named) != 1 || !at.Equal(here.LastHeard) {
		t.Errorf("it remembers %d leases of which one lives, named last at %v", len(l.named), at)
	}
}
