package fsm

import (
	"slices"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// told fails the test unless the last entry had exactly these events, in this
// order, each of this index and term.
func (l *log) told(kinds ...command.EventKind) {
	l.tb.Helper()
	var got []command.EventKind
	for _, e := range l.events {
		got = append(got, e.Kind)
		if e.Index != l.index || e.Term != l.term {
			l.tb.Fatalf("an event of index %d, term %d in entry %d of term %d: %+v", e.Index, e.Term, l.index, l.term, e)
		}
	}
	if !slices.Equal(got, kinds) {
		l.tb.Fatalf("events %v, want %v: %+v", got, kinds, l.events)
	}
}

// sent applies one command with a request ID.
func (l *log) sent(id string, body any) command.Result {
	l.tb.Helper()
	return l.apply(encode(l.tb, keyed(id, "body", true), body))[0]
}

// codes are the codes of several results.
func codes(results []command.Result) (all []command.Code) {
	for _, r := range results {
		all = append(all, r.Code)
	}
	return all
}

func allocate(s command.JobSpec) *command.LeaseAllocate { return &command.LeaseAllocate{Job: s} }

func TestAnAllocationTakesAReadyDeviceAtOnce(t *testing.T) {
	l := box(t)
	waiting := command.JobSpec{Kind: model.KindHold, Pinned: "box:gpu0", Submitter: "ann", MaxRuntimeS: 60, Note: "looking", Priority: -10}
	r := l.ok(allocate(waiting))
	l.told(command.EventJobQueued, command.EventDeviceState, command.EventJobPlaced)
	j := r.Jobs[0]
	if j.State != model.JobAssigned || j.Device() != "box:gpu0" || j.Kind != model.KindHold || j.Command[0] != "hold" || r.Positions[0] != 0 {
		t.Errorf("%+v", r)
	}
	if lease := l.m.View().Lease(j.Lease); lease.Holder != "ann" || lease.Note != "looking" || lease.Kind != model.KindHold {
		t.Errorf("%+v", lease)
	}
	plain := l.ok(allocate(pinned("box:gpu1"))).Jobs[0]
	if plain.Lease <= j.Lease || plain.MaxRuntimeS != 0 || plain.CeilingAsked {
		t.Errorf("%+v", plain)
	}
	// From here on it is a job like any other.
	l.ok(started(plain, "i1"))
	l.ok(exited(plain, "i1", 0))
	l.wantJob(plain.Number, model.JobSucceeded)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestAnAllocationInheritsTheCeiling(t *testing.T) {
	l := box(t)
	if j := l.ok(allocate(pinned("box:gpu0"))).Jobs[0]; j.MaxRuntimeS != 3600 || j.CeilingAsked {
		t.Errorf("%+v", j)
	}
}

func TestRefusedAllocationsChangeNothing(t *testing.T) {
	l := box(t)
	l.ok(register("gone", "g1", spec("g", 0)))
	l.advanceMS(minuteMS)
	l.ok(silent("gone", "g1", 3000))
	l.ok(register("sick", "s1", spec("g", 0)))
	l.ok(&command.DeviceFault{Device: "sick:g", Detail: "smoke"})
	busy := l.ok(allocate(pinned("box:gpu1"))).Jobs[0]
	long := pinned("box:gpu0")
	long.MaxRuntimeS = 3601
	both := pinned("box:gpu0")
	both.Selector = "vram"
	endless := command.JobSpec{Kind: model.KindHold, Pinned: "box:gpu0", Submitter: "ann"}
	rude := pinned("box:gpu0")
	rude.Priority = 11
	for _, c := range []struct {
		name string
		code command.Code
		spec command.JobSpec
	}{
		{"no device named", command.BadRequest, selecting("vram")},
		{"two targets", command.BadRequest, both},
		{"unknown device", command.UnknownDevice, pinned("box:gpu7")},
		{"above the ceiling, never clamped", command.RuntimeAboveLimit, long},
		{"a hold without an end", command.BadRequest, endless},
		{"priority", command.PriorityOutOfRange, rude},
		{"busy", command.NoDevice, pinned("box:gpu1")},
		{"unknown", command.NoDevice, pinned("gone:g")},
		{"in quarantine", command.NoDevice, pinned("sick:g")},
	} {
		t.Run(c.name, func(t *testing.T) {
			last := l.m.View().meta.LastJob
			l.refused(c.code, allocate(c.spec))
			l.told()
			if l.m.View().meta.LastJob != last {
				t.Error("a number was used up")
			}
		})
	}
	l.wantJob(busy.Number, model.JobAssigned)
	l.term++
	l.refused(command.StaleEpoch, allocate(pinned("box:gpu0")))
}

// TestAnAllocationNeverPassesTheQueue: whatever the entry has freed and not
// scheduled yet belongs to the queue first, whichever device is asked for.
func TestAnAllocationNeverPassesTheQueue(t *testing.T) {
	l := box(t)
	l.ok(register("other", "o1", spec("g", 0)))
	one, two := l.queued(pinned("box:gpu0")), l.queued(pinned("box:gpu1"))
	next := l.queued(pinned("box:gpu0"))
	r := l.many(exited(one, "i1", 0), exited(two, "i1", 0), allocate(pinned("box:gpu0")), allocate(pinned("box:gpu1")), allocate(pinned("other:g")))
	if got, want := codes(r), []command.Code{"", "", command.Unscheduled, command.Unscheduled, command.Unscheduled}; !slices.Equal(got, want) {
		t.Fatalf("codes %v, want %v", got, want)
	}
	for _, refused := range r[2:] {
		if refused.Message == "" || refused.Jobs != nil {
			t.Errorf("%+v", refused)
		}
	}
	l.wantJob(next.Number, model.JobAssigned)
	// A job that has just come is ahead too; alone in its entry it passes.
	r = l.many(submit(selecting("!rack")), allocate(pinned("other:g")))
	if r[1].Code != command.Unscheduled || r[0].Jobs[0].State != model.JobAssigned {
		t.Fatalf("%+v", r)
	}
	free := []string{"box:gpu1", "other:g"}[0]
	if r[0].Jobs[0].Device() == free {
		free = "other:g"
	}
	l.ok(allocate(pinned(free)))
}

func TestAllocationsOfOneEntryDoNotHinderEachOther(t *testing.T) {
	l := box(t)
	r := l.many(allocate(pinned("box:gpu0")), allocate(pinned("box:gpu0")), allocate(pinned("box:gpu1")))
	if got, want := codes(r), []command.Code{"", command.NoDevice, ""}; !slices.Equal(got, want) {
		t.Fatalf("codes %v, want %v", got, want)
	}
	if r[0].Jobs[0].Device() != "box:gpu0" || r[2].Jobs[0].Device() != "box:gpu1" {
		t.Errorf("%+v", r)
	}
}

func TestAnAllocationHasOneEffectPerRequestID(t *testing.T) {
	l := box(t)
	if r := l.sent("k", allocate(pinned("box:gpu7"))); r.Code != command.UnknownDevice {
		t.Fatal(r.Code)
	}
	first := l.sent("k", allocate(pinned("box:gpu0"))) // the refused one is not remembered
	again := l.sent("k", allocate(pinned("box:gpu0")))
	if first.Code != command.OK || first.Repeat || again.Code != command.OK || !again.Repeat || again.Jobs[0] != l.job(first.Jobs[0].Number) {
		t.Fatalf("%+v, then %+v", first, again)
	}
	l.told()
	l.ok(exited(first.Jobs[0], "i1", 0))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_finished", Value: 0}}})
	l.ok(&command.JobPrune{Limit: 10})
	if r := l.sent("k", allocate(pinned("box:gpu0"))); r.Code != command.NotFound || !r.Repeat {
		t.Errorf("a request whose job is forgotten: %+v", r)
	}
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
}

// TestAnAllocationTakenBackWaitsUnlessItWasNotTo: the order never left, the host is dead.
func TestAnAllocationTakenBackWaitsUnlessItWasNotTo(t *testing.T) {
	for _, noWait := range []bool{false, true} {
		l := box(t)
		s := pinned("box:gpu0")
		s.NoWait = noWait
		j := l.ok(allocate(s)).Jobs[0]
		l.advanceMS(minuteMS)
		dead := silent("box", "i1", 3000)
		dead.Unordered = []uint64{j.Number}
		l.ok(dead)
		if noWait {
			if end := l.wantJob(j.Number, model.JobKilled); end.EndReason != "no-wait: device busy" {
				t.Errorf("reason %q", end.EndReason)
			}
			continue
		}
		l.wantJob(j.Number, model.JobQueued)
		l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
		if back := l.wantJob(j.Number, model.JobAssigned); back.Lease <= j.Lease {
			t.Errorf("lease %d after %d", back.Lease, j.Lease)
		}
	}
}

func TestAScheduleFindsNothingByTheLaws(t *testing.T) {
	l := box(t)
	held := l.queued(pinned("box:gpu0"))
	l.queued(pinned("box:gpu0"))
	before := rowsOnly(l.m.View())
	if r := l.ok(&command.Schedule{}); r.Jobs != nil || rowsOnly(l.m.View()) != before {
		t.Errorf("it found %+v", r)
	}
	l.told()
	// With others in its entry it tells what the entry placed, and says so again.
	r := l.apply(encode(t, keyed("s", "body", true), &command.Schedule{}), encode(t, command.Request{}, exited(held, "i1", 0)), encode(t, keyed("s", "body", true), &command.Schedule{}))
	if len(r[0].Jobs) != 1 || r[0].Jobs[0].State != model.JobAssigned || r[0].Repeat {
		t.Fatalf("%+v", r[0])
	}
	if again := l.sent("s", &command.Schedule{}); !r[2].Repeat || !again.Repeat || len(r[2].Jobs) != 1 || len(again.Jobs) != 1 || again.Jobs[0].Number != r[0].Jobs[0].Number {
		t.Errorf("repeated: %+v, %+v", r[2], again)
	}
	l.term++
	l.refused(command.StaleEpoch, &command.Schedule{})
}
