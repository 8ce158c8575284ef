package sim

import (
	"rcd/fsm/command"
	"rcd/model"
)

// mutated returns the bytes that a node applies for an entry, and how many
// commands stand before and behind those of the entry itself. They are the
// entry's own unless a quirk is to show what a faulty state machine would do.
func (w *World) mutated(n *node, place int, e logged) (data []byte, extra int) {
	if w.options.Quirk < QuirkMachineNoGuard && !(w.broken(QuirkDamagedCopy) && n.id == "c2" && place < len(w.witness.digests)) {
		return e.data, 0
	}
	entry, err := command.DecodeEntry(e.data)
	if err != nil {
		w.fail("index %d: %v", e.index, err)
	}
	var before, after [][]byte
	for i, raw := range entry.Commands {
		c, err := command.Decode(raw)
		if err != nil {
			w.fail("index %d: %v", e.index, err)
		}
		c.Body = n.mutate(&c)
		if before == nil {
			for _, pair := range n.around(c.Body) {
				before = append(before, w.encode(command.Request{}, pair[0]))
				after = append(after, w.encode(command.Request{}, pair[1]))
			}
		}
		entry.Commands[i] = w.encode(c.Request, c.Body)
	}
	commands := append(before, entry.Commands...)
	data, err = command.EncodeEntry(entry.Term, entry.Stamp, append(commands, after...))
	if err != nil {
		w.fail("encode entry: %v", err)
	}
	return data, len(after)
}

// around returns what a quirk has carried out before and after the commands of
// an entry with such a body.
func (n *node) around(body any) [][2]any {
	set := func(name string, value, now int64) [][2]any {
		one := func(v int64) *command.ConfigSet {
			return &command.ConfigSet{Settings: []command.Setting{{Name: name, Value: v}}}
		}
		return [][2]any{{one(value), one(now)}}
	}
	_, sweeps := body.(*command.Sweep)
	registration, registers := body.(*command.AgentRegister)
	_, kills := body.(*command.JobKill)
	_, recovers := body.(*command.Recover)
	_, allocates := body.(*command.LeaseAllocate)
	raise, raises := body.(*command.FeatureRaise)
	switch now, q := n.m.View().Settings(), n.w.options.Quirk; {
	case q == QuirkMachineNoGuard && sweeps:
		return set("mass_floor", 100_000, now.MassFloor)
	case q == QuirkMachineHasty && sweeps:
		return set("no_serve_grace_ms", 60_000, now.NoServeGraceMS)
	case q == QuirkMachineSlow && sweeps:
		return set("no_serve_grace_ms", 750_000, now.NoServeGraceMS)
	case q == QuirkMachineHearsSilence && sweeps:
		heard := &command.Sweep{}
		for _, a := range n.m.View().Agents() {
			if a.Silent {
				heard.Heard = append(heard.Heard, command.AgentHeard{Host: a.Host, Instance: a.Instance})
			}
		}
		return [][2]any{{&command.Schedule{}, heard}}
	case q == QuirkMachineShortHoldoff && (sweeps || kills):
		return set("holdoff_ms", model.MinHoldoffMS, now.HoldoffMS)
	case (q == QuirkMachineForgives || q == QuirkMachineRetires) && registers:
		return n.drop(registration.Host)
	case q == QuirkMachineFlaps && (registers || recovers):
		return set("flap_limit", 1000, now.FlapLimit)
	case q == QuirkMachineLeaks && allocates:
		return set("max_array", now.MaxArray-1, now.MaxArray-1)
	case q == QuirkMachineWord && raises:
		var words [][2]any
		for _, other := range n.w.nodes {
			put := &command.MemberPut{ID: other.id, Incarnation: "said", Supports: raise.Level}
			words = append(words, [2]any{put, put})
		}
		return words
	}
	return nil
}

// drop has devices of a host cleared, or retired.
func (n *node) drop(host string) (words [][2]any) {
	for _, d := range n.m.View().DevicesOn(host) {
		switch {
		case n.w.broken(QuirkMachineForgives) && d.Reason == model.ReasonFault:
			words = append(words, [2]any{&command.DeviceClear{Device: d.ID}, &command.Schedule{}})
		case n.w.broken(QuirkMachineRetires) && d.Lease == 0:
			words = append(words, [2]any{&command.Schedule{}, &command.DeviceRetire{Device: d.ID}})
		}
	}
	return words
}

// mutate returns the body that a command has for a broken machine.
func (n *node) mutate(c *command.Command) any {
	switch q := n.w.options.Quirk; b := c.Body.(type) {
	case *command.JobEnqueue:
		switch q {
		case QuirkDamagedCopy:
			b.Jobs[0].Submitter, n.damaged = "mallory", true
		case QuirkMachineReverses:
			for i := range b.Jobs {
				b.Jobs[i].Priority = -b.Jobs[i].Priority
			}
		case QuirkMachineNoRequests:
			c.Request = command.Request{}
		}
	case *command.AgentRegister:
		b.RequireManualClear = b.RequireManualClear && q != QuirkMachineNoManual
	case *command.Recover:
		b.RequireManualClear = b.RequireManualClear && q != QuirkMachineNoManual
	case *command.DeviceFault:
		if q == QuirkMachineNoFault {
			return &command.Schedule{}
		}
	case *command.LeaseExtend:
		if j := n.m.View().Job(b.Job); q == QuirkMachineClamps && j != nil && len(j.Devices) > 0 {
			if d := n.m.View().Device(j.Devices[0]); d != nil && d.MaxRuntimeS > 0 {
				b.MaxRuntimeS = min(b.MaxRuntimeS, d.MaxRuntimeS)
			}
		}
	case *command.ConfigSet:
		for i := range b.Settings {
			if q == QuirkMachineAging && b.Settings[i].Name == "aging_ms" {
				b.Settings[i].Value = model.DefaultSettings().AgingMS
			}
		}
	}
	return c.Body
}
