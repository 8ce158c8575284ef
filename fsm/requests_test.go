package fsm

import (
	"fmt"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func keyed(id, body string, strict bool) command.Request {
	return command.Request{Scope: "ann", ID: id, Digest: []byte(body), Strict: strict}
}

func TestOneRequestIDHasOneEffect(t *testing.T) {
	l := box(t)
	send := func(r command.Request, body any) command.Result { return l.apply(encode(t, r, body))[0] }
	first := send(keyed("k", "body", true), submit(pinned("box:gpu1")))
	if first.Repeat || first.Code != command.OK {
		t.Fatalf("%+v", first)
	}
	n := first.Jobs[0].Number
	for _, strict := range []bool{true, false} {
		r := send(keyed("k", "body", strict), submit(pinned("box:gpu1")))
		if !r.Repeat || r.Code != command.OK || r.Jobs[0].Number != n {
			t.Fatalf("%+v", r)
		}
	}
	if r := send(keyed("k", "another body", false), submit(pinned("box:gpu0"))); !r.Repeat || r.Jobs[0].Number != n {
		t.Errorf("the ancestor's rule: the earlier job, whatever the body says: %+v", r)
	}
	if r := send(keyed("k", "another body", true), submit(pinned("box:gpu0"))); r.Code != command.KeyReused || r.Message == "" {
		t.Errorf("%+v", r)
	}
	if r := send(keyed("k", "body", false), &command.DeviceClear{Device: "box:gpu0"}); r.Code != command.KeyReused {
		t.Errorf("another kind of request: %+v", r)
	}
	// The scope is part of the ID, and lengths cannot be confused.
	other := keyed("k", "body", true)
	other.Scope = "bob"
	if r := send(other, submit(pinned("box:gpu1"))); r.Repeat {
		t.Error("another caller's ID was taken for this one's")
	}
	if requestName("ab", "c") == requestName("a", "bc") {
		t.Error("two pairs share a key")
	}
	// The rows of a repeat are as they stand now.
	l.ok(exited(l.job(n), "i1", 0))
	if r := send(keyed("k", "body", true), submit(pinned("box:gpu1"))); r.Jobs[0].State != model.JobSucceeded {
		t.Errorf("%+v", r.Jobs[0])
	}
	if q := l.m.View().RequestFor("ann", "k"); q == nil || q.Jobs[0] != n {
		t.Errorf("%+v", q)
	}
}

func TestDuplicatesInOneEntryHaveOneEffect(t *testing.T) {
	l := box(t)
	l.queued(pinned("box:gpu0"))
	s := pinned("box:gpu0")
	s.NoWait = true
	raw := encode(t, keyed("k", "body", true), submit(s))
	r := l.apply(raw, raw)
	if r[0].Repeat || !r[1].Repeat || r[0].Jobs[0].Number != r[1].Jobs[0].Number {
		t.Fatalf("%+v", r)
	}
	if r[0].Code != command.NotPlaced || r[1].Code != command.NotPlaced {
		t.Errorf("codes %q and %q", r[0].Code, r[1].Code)
	}
	l.lead()
	if r := l.apply(raw)[0]; r.Code != command.NotPlaced || !r.Repeat {
		t.Errorf("the same answer later: %+v", r)
	}
}

func TestRefusedRequestsAreNotRemembered(t *testing.T) {
	l := box(t)
	bad := encode(t, keyed("k", "body", true), submit(pinned("box:gpu7")))
	if r := l.apply(bad)[0]; r.Code != command.UnknownDevice {
		t.Fatal(r.Code)
	}
	l.term++ // nor are stale ones
	if r := l.apply(encode(t, keyed("k", "body", true), submit(pinned("box:gpu1"))))[0]; r.Code != command.StaleEpoch {
		t.Fatal(r.Code)
	}
	l.term--
	l.lead()
	if r := l.apply(encode(t, keyed("k", "body", true), submit(pinned("box:gpu1"))))[0]; r.Code != command.OK || r.Repeat {
		t.Errorf("%+v", r)
	}
	long := keyed("k", "body", true)
	long.ID = string(make([]byte, command.MaxRequestID+1))
	if r := l.apply(encode(t, long, submit(pinned("box:gpu1"))))[0]; r.Code != command.BadRequest {
		t.Errorf("%+v", r)
	}
}

func TestNoYoungRequestIDIsForgotten(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_requests", Value: 3}}})
	send := func(id string) command.Result {
		return l.apply(encode(t, keyed(id, "b", true), submit(pinned("box:gpu1"))))[0]
	}
	for i := range 3 {
		if r := send(fmt.Sprint(i)); r.Code != command.OK {
			t.Fatal(r.Code)
		}
		l.advanceMS(minuteMS)
	}
	if r := send("3"); r.Code != command.Overloaded {
		t.Fatalf("code %q", r.Code)
	}
	if r := send("0"); !r.Repeat {
		t.Error("a known ID is answered even then")
	}
	if l.m.View().PruneNeeded() {
		t.Error("there is nothing that may be forgotten")
	}
	l.advanceMS(12 * minuteMS)
	if r := send("3"); r.Code != command.OK || l.m.View().RequestFor("ann", "0") != nil || l.m.View().RequestFor("ann", "1") == nil {
		t.Errorf("the oldest did not make room: %q", r.Code)
	}
	l.advanceMS(hourMS)
	l.ok(&command.Sweep{})
	if !l.m.View().PruneNeeded() {
		t.Error("a full table of old IDs wants pruning")
	}
	l.ok(&command.JobPrune{Limit: 100})
	if n := l.m.View().Counts().Requests; n != 2 {
		t.Errorf("%d request IDs are left", n)
	}
}

func TestPruningForgetsTheOldestFinishedOnly(t *testing.T) {
	l := box(t)
	for i := range 5 {
		r := l.apply(encode(t, keyed(fmt.Sprint(i), "b", true), submit(pinned("box:gpu1"))))[0]
		l.advanceMS(minuteMS)
		l.ok(exited(r.Jobs[0], "i1", 0))
	}
	running, waiting := l.queued(pinned("box:gpu1")), l.queued(pinned("box:gpu1"))
	l.ok(&command.JobPrune{Limit: 100})
	if l.m.View().Counts().Finished != 5 || l.m.View().PruneNeeded() {
		t.Fatal("something inside the bounds was forgotten")
	}
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_finished", Value: 2}}})
	if !l.m.View().PruneNeeded() {
		t.Error("three are over the bound")
	}
	l.ok(&command.JobPrune{Limit: 1})
	if l.job(1) != nil || l.job(2) == nil {
		t.Error("not the oldest first, or more than asked")
	}
	l.ok(&command.JobPrune{Limit: 100})
	l.wantJob(4, model.JobSucceeded)
	l.wantJob(running.Number, model.JobAssigned)
	l.wantJob(waiting.Number, model.JobQueued)
	r := l.apply(encode(t, keyed("0", "b", true), submit(pinned("box:gpu1"))))[0]
	if r.Code != command.NotFound || !r.Repeat || r.Message == "" || l.m.View().Counts().Queued != 1 {
		t.Errorf("a request whose job is forgotten: %+v", r)
	}
	l.refused(command.NotFound, exited(&model.Job{Number: 1, Lease: 1, Host: "box"}, "i1", 0))
	// By bytes: one of the two is enough to pass the bound.
	l.ok(exited(l.job(running.Number), "i1", 0))
	b := submit(pinned("box:gpu0"))
	b.Jobs[0].Command = []string{"run", strings.Repeat("x", 900<<10)}
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_finished", Value: 100}, {Name: "max_finished_bytes", Value: 1 << 20}}})
	for range 2 {
		before := l.m.View().Counts().Finished
		if l.m.View().PruneNeeded() {
			t.Fatal("something inside the bound of bytes was to be forgotten")
		}
		large := l.ok(b).Jobs[0]
		l.ok(exited(large, "i1", 0))
		l.ok(&command.JobPrune{Limit: 100})
		l.wantJob(large.Number, model.JobSucceeded)
		if c := l.m.View().Counts(); c.FinishedBytes > 1<<20 || c.Finished > before+1 {
			t.Errorf("%+v", c)
		}
	}
	if n := l.m.View().Counts().Finished; n != 1 {
		t.Errorf("%d finished jobs are left, the last one fills the bound", n)
	}
	// By age, in uptime.
	l.advanceMS(91 * dayMS)
	l.ok(&command.JobPrune{Limit: 100})
	if n := l.m.View().Counts().Finished; n != 0 {
		t.Errorf("%d finished jobs older than 90 days are left", n)
	}
}

// TestARefusedRequestForgetsNobody: it needs a row only once it is accepted.
func TestARefusedRequestForgetsNobody(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_requests", Value: 2}}})
	send := func(id, device string) command.Result {
		return l.apply(encode(t, keyed(id, "b", true), submit(pinned(device))))[0]
	}
	send("0", "box:gpu1")
	send("1", "box:gpu1")
	l.advanceMS(hourMS)
	before := rowsOnly(l.m.View())
	if r := send("2", "box:gpu7"); r.Code != command.UnknownDevice || rowsOnly(l.m.View()) != before {
		t.Fatalf("code %q, or rows changed", r.Code)
	}
	if r := send("2", "box:gpu1"); r.Code != command.OK || l.m.View().RequestFor("ann", "0") != nil || l.m.View().RequestFor("ann", "1") == nil {
		t.Errorf("code %q, or not the oldest made room", r.Code)
	}
}

// TestAKnownRequestIsNotForgottenForItsOtherID: however old it is, and the
// outcome stays what it was.
func TestAKnownRequestIsNotForgottenForItsOtherID(t *testing.T) {
	l := box(t)
	l.queued(pinned("box:gpu0"))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_requests", Value: 2}}})
	s := pinned("box:gpu0")
	s.NoWait = true
	both := func(first, second string) command.Result {
		raw, err := command.EncodeBoth(keyed(first, "b", true), keyed(second, "b", false), submit(s))
		if err != nil {
			t.Fatal(err)
		}
		return l.apply(raw)[0]
	}
	first := l.apply(encode(t, keyed("old", "b", true), submit(s)))[0]
	l.apply(encode(t, keyed("young", "b", true), submit(pinned("box:gpu1"))))
	if r := both("old", "new"); r.Code != command.NotPlaced || !r.Repeat || l.m.View().RequestFor("ann", "new") != nil {
		t.Errorf("without room for the other ID: %+v", r)
	}
	l.advanceMS(hourMS)
	r := both("old", "new")
	if r.Code != command.NotPlaced || !r.Repeat || r.Jobs[0].Number != first.Jobs[0].Number {
		t.Errorf("%+v", r)
	}
	v := l.m.View()
	if v.RequestFor("ann", "old") == nil || v.RequestFor("ann", "new") == nil || v.RequestFor("ann", "young") != nil || v.Counts().Requests != 2 {
		t.Error("another than the oldest of the others made room")
	}
	if again := l.apply(encode(t, keyed("new", "b", false), submit(s)))[0]; again.Code != command.NotPlaced || !again.Repeat {
		t.Errorf("by its other ID alone: %+v", again)
	}
}

// TestABoundThatWasLoweredIsReachedByPruning: no single command clears a table.
func TestABoundThatWasLoweredIsReachedByPruning(t *testing.T) {
	l := box(t)
	l.check = false
	for i := range maxPruneRows/200 + 1 {
		raw := make([][]byte, 200)
		for n := range raw {
			raw[n] = encode(t, keyed(fmt.Sprint(i, "-", n), "b", true), &command.Schedule{})
		}
		l.apply(raw...)
	}
	l.advanceMS(hourMS)
	set := &command.ConfigSet{Settings: []command.Setting{{Name: "max_requests", Value: 2}}}
	if r := l.apply(encode(t, keyed("set", "b", true), set))[0]; r.Code != command.OK {
		t.Fatal(r.Code)
	}
	if n := l.m.View().Counts().Requests; n < maxPruneRows {
		t.Fatalf("%d requests are left", n)
	}
	if r := l.apply(encode(t, keyed("more", "b", true), &command.Schedule{}))[0]; r.Code != command.Overloaded {
		t.Errorf("code %q", r.Code)
	}
	l.ok(&command.JobPrune{Limit: maxPruneRows})
	if r := l.apply(encode(t, keyed("more", "b", true), &command.Schedule{}))[0]; r.Code != command.OK {
		t.Errorf("code %q", r.Code)
	}
	if n := l.m.View().Counts().Requests; n > 2 { // "set" is young
		t.Errorf("%d requests are left", n)
	}
}

// TestANoWaitJobMayEndAndBeForgottenInOneEntry: it poisons nothing.
func TestANoWaitJobMayEndAndBeForgottenInOneEntry(t *testing.T) {
	l := box(t)
	l.queued(pinned("box:gpu0"))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_finished", Value: 0}}})
	s := pinned("box:gpu0")
	s.NoWait = true
	r := l.many(submit(s), &command.JobKill{Job: 2, By: "ann"}, &command.JobPrune{Limit: 9}, submit(pinned("box:gpu1")))
	for i, want := range []command.Code{command.NotFound, command.NotFound, command.OK, command.OK} {
		if r[i].Code != want {
			t.Errorf("command %d: %q (%s), want %q", i, r[i].Code, r[i].Message, want)
		}
	}
	if r[0].Message == "" || l.job(2) != nil {
		t.Errorf("%+v", r[0])
	}
}

// TestARepeatKeepsItsOutcomeWhenItsEntryForgetsIt: the row of a request is old
// enough to go, and a later command of the very entry that repeats it needs its
// room.
func TestARepeatKeepsItsOutcomeWhenItsEntryForgetsIt(t *testing.T) {
	l := box(t)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_requests", Value: 1}}})
	l.queued(pinned("box:gpu0"))
	s := pinned("box:gpu0")
	s.NoWait = true
	raw := encode(t, keyed("k", "body", true), submit(s))
	first := l.apply(raw)[0]
	if first.Code != command.NotPlaced {
		t.Fatalf("%+v", first)
	}
	l.advanceMS(16 * minuteMS)
	r := l.apply(raw, encode(t, keyed("other", "body", true), submit(pinned("box:gpu1"))))
	if !r[0].Repeat || r[0].Code != command.NotPlaced || r[0].Message != first.Message || r[0].Jobs[0].Number != first.Jobs[0].Number {
		t.Errorf("the same request is answered with %+v", r[0])
	}
	if r[1].Code != command.OK || l.m.View().RequestFor("ann", "k") != nil {
		t.Errorf("the older request was to be forgotten: %+v", r[1])
	}
}
