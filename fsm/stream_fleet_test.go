package fsm

import (
	"fmt"
	"slices"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
)

// fleetBody makes up a word about devices, hosts, leases or controllers.
func (s *stream) fleetBody() any {
	switch s.c.upTo(14) {
	case 0, 1:
		return s.labels()
	case 2:
		return s.sheets()
	case 3, 4:
		return s.recovers()
	case 5:
		return s.fault()
	case 6:
		return s.retire()
	case 7, 8:
		return s.allocate()
	case 9, 10:
		return s.release()
	case 11:
		return s.extend()
	case 12:
		return pick[any](s, &command.Schedule{}, s.member(), &command.DeviceClear{Device: s.device()})
	}
	return pick(s, s.member(), s.checkpoint(), s.checkpoint())
}

func (s *stream) labels() any {
	host := s.host()
	b := &command.LabelsReplace{Host: host, Instance: s.instance(host), Source: model.Source(s.c.upTo(2))}
	if s.one(20) {
		b.Source = 2
	}
	for i := range 3 {
		if s.one(3) {
			continue
		}
		set := command.DeviceLabels{Name: fmt.Sprint("g", i)}
		if b.Source == model.Declared {
			set.Labels = []command.KV{{Key: "n", Value: fmt.Sprint(s.c.upTo(4))}}
		} else {
			set.Labels = []command.KV{{Key: "vram", Value: pick(s, "40G", "80G")}, {Key: "vram_free", Value: pick(s, "1G", "39G", "80G")}}
		}
		if s.one(3) {
			set.Labels = append(set.Labels, command.KV{Key: "fast", Value: "yes"})
		}
		if s.one(30) {
			set.Labels = append(set.Labels, set.Labels[0])
		}
		b.Sets = append(b.Sets, set)
	}
	return b
}

func (s *stream) sheets() any {
	host := s.host()
	b := &command.SheetPut{Host: host, Instance: s.instance(host)}
	for _, name := range []string{"", "g0", "g1", "g2"} {
		if s.one(2) {
			b.Sheets = append(b.Sheets, command.SheetText{Name: name, Body: strings.Repeat("x", s.c.upTo(4)*20)})
		}
	}
	return b
}

// proof is often a good one.
func (s *stream) proof() command.Proof {
	return command.Proof{Isolated: s.one(4), SurvivorsChecked: !s.one(4), SurvivorsFound: s.one(6)}
}

func (s *stream) recovers() any {
	host := s.host()
	b := &command.Recover{Host: host, Instance: s.instance(host), Proof: s.proof(), RequireManualClear: s.one(10)}
	v := s.l.m.View()
	for _, j := range v.LiveJobsOn(host) {
		b.Jobs = append(b.Jobs, ref(j))
	}
	if s.one(4) {
		if j := v.Job(s.jobNumber()); j != nil {
			b.Jobs = append(b.Jobs, ref(j))
		}
	}
	return b
}

func (s *stream) fault() any {
	b := &command.DeviceFault{Device: s.device(), Detail: pick(s, "ECC", "fell off the bus", "")}
	if host, _ := model.SplitDeviceID(b.Device); !s.one(3) {
		b.Instance = s.instance(host)
	}
	return b
}

func (s *stream) retire() any {
	switch s.c.upTo(8) {
	case 0:
		return &command.DeviceRetire{}
	case 1, 2, 3:
		return &command.DeviceRetire{Host: s.host()}
	}
	return &command.DeviceRetire{Device: s.device()}
}

func (s *stream) allocate() any {
	v := s.l.m.View()
	id := s.device()
	for _, d := range v.Devices() {
		if d.State == model.DeviceReady && s.one(3) {
			id = d.ID
		}
	}
	job := pinned(id)
	job.MaxRuntimeS = pick[int64](s, 0, 30, 7200)
	if s.one(20) {
		job.Pinned, job.Selector = "", "fast"
	}
	return &command.LeaseAllocate{Job: job}
}

func (s *stream) release() any {
	return &command.LeaseRelease{
		Job: s.jobNumber(), By: pick(s, "ann", "bob"), Admin: !s.one(3), Detached: !s.one(3), Force: !s.one(3),
	}
}

func (s *stream) extend() any {
	return &command.LeaseExtend{
		Job: s.jobNumber(), By: pick(s, "ann", "bob"), Admin: s.one(2), MaxRuntimeS: pick[int64](s, 0, 61, 3600, 7200, 100_000),
	}
}

// inside makes a job one inside a hold, mostly one that there is.
func (s *stream) inside(spec *command.JobSpec) {
	v := s.l.m.View()
	var holds []*model.Job
	for _, l := range v.Leases() {
		if h := v.Job(l.Jobs[0]); l.Kind == model.KindHold && h.Kind == model.KindHold {
			holds = append(holds, h)
		}
	}
	for j := range v.Queued() {
		if j.Kind == model.KindHold && s.one(20) {
			holds = append(holds, j)
		}
	}
	h := v.Job(s.jobNumber())
	if len(holds) > 0 && !s.one(8) {
		h = holds[s.c.upTo(len(holds))]
	}
	spec.Hold = uint64(s.c.upTo(5))
	if h != nil {
		spec.Hold, spec.Submitter = h.Number, h.Submitter
	}
	if !s.one(12) {
		spec.Pinned, spec.Selector, spec.Priority, spec.NoWait = "", "", 0, false
	}
	if s.one(15) {
		spec.Submitter = "bob"
	}
}

// upgraded are the words by which a cluster goes to the level of jobs inside
// holds.
func (s *stream) upgraded() (words []any) {
	for i := range 4 {
		words = append(words, &command.MemberPut{ID: fmt.Sprint("c", i), Incarnation: "n1", Supports: LevelInside, Build: "b"})
	}
	return append(words, &command.FeatureRaise{Level: LevelInside})
}

// member makes up a word of or about a controller. Nobody ever knows level 3,
// so no raise to it is accepted: this build would have to halt.
func (s *stream) member() any {
	id := fmt.Sprint("c", s.c.upTo(4))
	switch s.c.upTo(6) {
	case 0:
		return &command.MemberRemove{ID: id}
	case 1, 2:
		return &command.FeatureRaise{Level: pick[uint32](s, 0, 1, 3, 9)}
	}
	return &command.MemberPut{ID: id, Incarnation: pick(s, "n1", "n2"), Supports: pick[uint32](s, 0, 1, 1, 2), Build: "b"}
}

func (s *stream) checkpoint() any {
	last := s.l.index
	b := &command.Checkpoint{Index: last - uint64(s.c.upTo(int(min(last, 50))+1)), Voters: 3}
	digest := s.l.m.Digest().Bytes()
	for i := range 3 {
		if s.one(4) {
			continue
		}
		d := slices.Clone(digest[:])
		if s.one(3) {
			d[0] += byte(1 + i)
		}
		b.Reports = append(b.Reports, command.DigestReport{Node: fmt.Sprint("c", i), Digest: d})
	}
	return b
}
