package fsm

import (
	"fmt"
	"slices"

	"rcd/fsm/command"
	"rcd/model"
)

// chooser is where a random stream takes its choices from.
type chooser interface {
	// upTo returns a number in [0, n).
	upTo(n int) int
}

// stream makes up entries: agents, submits, reports, kills, sweeps, failovers,
// stale proposers, clock steps; the fleet's own words are in
// stream_fleet_test.go. It looks at the state, so that most of what it
// asks for makes sense, and adds nonsense.
type stream struct {
	c         chooser
	l         *log
	hosts     int
	instances map[string]int
	boots     map[string]int
	requests  int
}

func newStream(c chooser, l *log, hosts int) *stream {
	return &stream{c: c, l: l, hosts: hosts, instances: map[string]int{}, boots: map[string]int{}}
}

func (s *stream) one(of int) bool { return s.c.upTo(of) == 0 }

func pick[T any](s *stream, of ...T) T { return of[s.c.upTo(len(of))] }

// step applies one more entry.
func (s *stream) step() {
	switch {
	case s.l.term == 0 || s.one(80) || (s.l.term != s.l.m.View().Term() && s.one(4)):
		s.l.advanceMS(int64(s.c.upTo(2)) * pick(s, 0, 1, 5000, 3*hourMS, -hourMS))
		s.l.lead()
		return
	case s.l.m.View().FeatureLevel() < LevelInside && s.one(25):
		s.l.many(s.upgraded()...)
		return
	case s.one(50):
		s.l.term++ // a leader that has not begun: whatever it says is stale
	}
	s.l.advanceMS(int64(s.c.upTo(20)) * pick[int64](s, 0, 1, 50, 1000, 1000, 60_000))
	believed := s.l.term
	if s.one(20) && believed > 1 {
		believed--
	}
	var raw [][]byte
	for range 1 + s.c.upTo(4) {
		request := command.Request{}
		if s.one(3) {
			s.requests++
			n := s.requests - s.c.upTo(min(s.requests, 6))
			request = command.Request{Scope: pick(s, "a", "b"), ID: fmt.Sprint("r", n), Digest: []byte{byte(s.c.upTo(2))}, Strict: s.one(2)}
		}
		raw = append(raw, encode(s.l.tb, request, s.body()))
	}
	s.l.applyAs(believed, raw...)
}

func (s *stream) body() any {
	switch s.c.upTo(26) {
	case 0:
		return s.register()
	case 1, 2, 3, 4, 5:
		return s.enqueue()
	case 6, 7, 8, 16:
		return s.start()
	case 9, 10:
		return s.finish()
	case 11, 17:
		return &command.JobKill{Job: s.jobNumber(), By: pick(s, "ann", "bob", ""), Admin: s.one(3), Detached: s.one(2)}
	case 12:
		return &command.DeviceClear{Device: s.device()}
	case 13:
		return s.sweep()
	case 14:
		if s.one(2) {
			return s.sweep()
		}
		return &command.JobPrune{Limit: uint32(s.c.upTo(30))}
	case 15, 18:
		return s.config()
	}
	return s.fleetBody()
}

func (s *stream) host() string { return fmt.Sprint("h", s.c.upTo(s.hosts)) }

func (s *stream) device() string { return fmt.Sprintf("%s:g%d", s.host(), s.c.upTo(3)) }

func (s *stream) instance(host string) string {
	if s.one(12) {
		return "nobody"
	}
	return fmt.Sprint("i", s.instances[host])
}

func (s *stream) jobNumber() uint64 {
	v := s.l.m.View()
	if active := v.Active(); len(active) > 0 && !s.one(4) {
		return active[s.c.upTo(len(active))].Number
	}
	return uint64(s.c.upTo(int(v.meta.LastJob) + 2))
}

func (s *stream) register() any {
	host := s.host()
	if !s.one(4) {
		s.instances[host]++
		if s.one(5) {
			s.boots[host]++
		}
	}
	b := &command.AgentRegister{
		Host: host, MachineID: "m" + host, BootID: fmt.Sprint("b", s.boots[host]), Instance: fmt.Sprint("i", s.instances[host]),
		Proof:              command.Proof{Isolated: s.one(4), SurvivorsChecked: s.one(2), SurvivorsFound: s.one(4)},
		RequireManualClear: s.one(10),
	}
	if s.one(30) {
		b.MachineID = "another"
	}
	v := s.l.m.View()
	for i := range 3 {
		if s.one(8) {
			continue
		}
		d := command.DeviceSpec{Name: fmt.Sprint("g", i), MaxRuntimeS: pick[int64](s, 0, 0, 60, 3600), KeepDetected: s.one(4)}
		d.Declared = append(d.Declared, command.KV{Key: "n", Value: fmt.Sprint(s.c.upTo(4))})
		if s.one(2) {
			d.Declared = append(d.Declared, command.KV{Key: "fast", Value: "yes"})
		}
		d.Detected = append(d.Detected, command.KV{Key: "vram", Value: pick(s, "40G", "80G")}, command.KV{Key: "vram_free", Value: pick(s, "1G", "39G", "80G")})
		if row := v.Device(host + ":" + d.Name); row != nil && !s.one(3) {
			d.Begun = row.HighestLease
		}
		b.Devices = append(b.Devices, d)
	}
	for _, j := range v.LiveJobsOn(host) {
		if !s.one(3) {
			b.Jobs = append(b.Jobs, ref(j))
		}
	}
	if s.one(4) {
		if j := v.Job(s.jobNumber()); j != nil {
			b.Jobs = append(b.Jobs, ref(j))
		}
	}
	return b
}

func (s *stream) enqueue() any {
	b := &command.JobEnqueue{}
	n := 1
	if s.one(6) {
		n = 1 + s.c.upTo(5)
	}
	for range n {
		spec := command.JobSpec{
			Command: []string{"run", fmt.Sprint(s.c.upTo(100))}, Submitter: pick(s, "ann", "bob"),
			Priority: int8(s.c.upTo(21) - 10), MaxRuntimeS: pick[int64](s, 0, 0, 30, 60, 61, 3600, 7200, -1), NoWait: s.one(8),
		}
		if s.one(2) {
			spec.Priority = 0
		}
		if s.one(2) {
			spec.Pinned = s.device()
		} else {
			spec.Selector = pick(s, "vram>=40G", "vram>=80G", "n=1", "n>=2", "fast", "!fast", "n in (0,3)", "vram_free>=30G", "vram>=40G,fast", "n=9", "zz", "n>>1")
		}
		if s.one(8) {
			spec.Kind, spec.Command, spec.MaxRuntimeS = model.KindHold, nil, 60
			if s.one(2) {
				spec.SessionS = pick[int64](s, model.MinSessionS, 60, 600, 0, 5)
			}
		} else if s.one(5) {
			s.inside(&spec)
		}
		if s.one(25) {
			spec.Submitter = ""
		}
		if s.one(25) {
			spec.Priority = 11
		}
		b.Jobs = append(b.Jobs, spec)
		if spec.Hold != 0 && s.one(30) {
			b.Jobs = slices.Repeat([]command.JobSpec{spec}, maxInside+1)
		}
	}
	return b
}

func (s *stream) reported() (command.JobRef, string, string) {
	n := s.jobNumber()
	r, host := command.JobRef{Job: n}, s.host()
	if j := s.l.m.View().Job(n); j != nil {
		r, host = ref(j), j.Host
	}
	if s.one(15) {
		r.Lease++
	}
	return r, host, s.instance(host)
}

func (s *stream) start() any {
	r, host, instance := s.reported()
	return &command.JobStart{JobRef: r, Host: host, Instance: instance}
}

func (s *stream) finish() any {
	r, host, instance := s.reported()
	b := &command.JobFinish{
		JobRef: r, Host: host, Instance: instance, End: command.EndKind(s.c.upTo(4)), Reason: pick(s, "", "cancelled"),
		Origin: uint8(s.c.upTo(7)), OutputKnown: !s.one(4), OutputLength: uint64(s.c.upTo(100)), OutputGap: s.one(5),
	}
	if !s.one(5) {
		code := int32(s.c.upTo(3))
		b.ExitCode = &code
	}
	if s.one(8) {
		b.Survivors = "pid 77 will not end"
	}
	return b
}

func (s *stream) sweep() any {
	v := s.l.m.View()
	ms := func() int64 { return pick[int64](s, 0, 3000, 30_000, 10*minuteMS, hourMS) }
	b := &command.Sweep{EpochMS: pick[int64](s, 0, 5000, hourMS, hourMS, hourMS)}
	for range s.c.upTo(3) {
		h := s.host()
		b.Silent = append(b.Silent, command.AgentSilence{Host: h, Instance: s.instance(h), SilenceMS: ms(), DetachedMS: ms()})
	}
	if s.one(6) { // a cut network
		long := ms()
		for i := range s.hosts {
			h := fmt.Sprint("h", i)
			b.Silent = append(b.Silent, command.AgentSilence{Host: h, Instance: s.instance(h), SilenceMS: long, DetachedMS: long})
		}
	}
	for range s.c.upTo(3) {
		h := s.host()
		b.Heard = append(b.Heard, command.AgentHeard{Host: h, Instance: s.instance(h)})
	}
	leases := v.Leases()
	for range s.c.upTo(2) {
		n := uint64(s.c.upTo(int(v.meta.LastLease) + 2))
		if len(leases) > 0 {
			n = leases[s.c.upTo(len(leases))].Number
		}
		b.Unnamed = append(b.Unnamed, command.LeaseUnnamed{Lease: n, UnnamedMS: ms()})
	}
	for _, h := range v.Sessions() {
		if s.one(2) {
			b.Sessions = append(b.Sessions, command.SessionSilence{Job: h.Number, SilenceMS: pick[int64](s, 0, 0, 10_000, 40_000, hourMS)})
		}
	}
	for range s.c.upTo(4) {
		n := s.jobNumber()
		b.Unordered = append(b.Unordered, n)
		for _, in := range v.LiveInside(n) {
			if !s.one(4) {
				b.Unordered = append(b.Unordered, in.Number)
			}
		}
		if j := v.Job(n); j != nil && j.State == model.JobAssigned { // a dead host
			b.Silent = append(b.Silent, command.AgentSilence{Host: j.Host, Instance: s.instance(j.Host), SilenceMS: 3000, DetachedMS: 3000})
		}
	}
	return b
}

func (s *stream) config() any {
	if s.one(2) { // an open queue again
		return &command.ConfigSet{Settings: []command.Setting{{Name: "max_selectors", Value: 100}, {Name: "max_requests", Value: 10_000}, {Name: "max_finished", Value: 1000}}}
	}
	names := slices.DeleteFunc(SettingNames(), func(n string) bool {
		return n == "max_queued" || n == "max_hosts" || n == "max_array" || n == "max_devices_in_host" || n == "max_labels"
	})
	name := pick(s, pick(s, names...), "retain_disconnected_jobs", "mass_permit", "flap_limit", "aging_ms", "max_requests", "max_finished")
	value := pick[int64](s, 0, 1, 50, 10_000, 600_000, 1_000_000, 30*minuteMS)
	return &command.ConfigSet{Settings: []command.Setting{{Name: name, Value: value}}}
}
