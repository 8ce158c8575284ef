package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// box is the fleet of the contract's transcripts: gpu0 with a ceiling of an
// hour, gpu1 plain.
func box(tb testing.TB) *log {
	tb.Helper()
	l := began(tb)
	l.ok(register("box", "i1", spec("gpu0", 3600, "rack", "r3", "vram", "80G"), spec("gpu1", 0)))
	return l
}

func TestRefusedSubmitsChangeNothing(t *testing.T) {
	l := box(t)
	with := func(change func(*command.JobSpec)) *command.JobEnqueue {
		s := pinned("box:gpu0")
		change(&s)
		return submit(s)
	}
	hold := func(change func(*command.JobSpec)) *command.JobEnqueue {
		s := command.JobSpec{Kind: model.KindHold, Pinned: "box:gpu1", Submitter: "ann", MaxRuntimeS: 60}
		change(&s)
		return submit(s)
	}
	for _, c := range []struct {
		name string
		code command.Code
		body any
	}{
		{"no job", command.BadRequest, submit()},
		{"no submitter", command.BadRequest, with(func(s *command.JobSpec) { s.Submitter = "" })},
		{"no target", command.BadRequest, with(func(s *command.JobSpec) { s.Pinned = "" })},
		{"two targets", command.BadRequest, with(func(s *command.JobSpec) { s.Selector = "vram" })},
		{"a long idempotency key", command.BadRequest, with(func(s *command.JobSpec) { s.ClientKey = strings.Repeat("k", 257) })},
		{"no command", command.BadRequest, with(func(s *command.JobSpec) { s.Command = nil })},
		{"unknown kind", command.BadRequest, with(func(s *command.JobSpec) { s.Kind = 9 })},
		{"unknown stdio", command.BadRequest, with(func(s *command.JobSpec) { s.Stdio = 9 })},
		{"hold with a command", command.BadRequest, hold(func(s *command.JobSpec) { s.Command = []string{"x"} })},
		{"hold with a directory", command.BadRequest, hold(func(s *command.JobSpec) { s.Cwd = "/" })},
		{"hold with an environment", command.BadRequest, hold(func(s *command.JobSpec) { s.Env = map[string]string{"A": "b"} })},
		{"hold with an idle timeout", command.BadRequest, hold(func(s *command.JobSpec) { s.IdleTimeoutS = 1 })},
		{"hold with stdio", command.BadRequest, hold(func(s *command.JobSpec) { s.Stdio = model.StdioTTY })},
		{"hold without an end", command.BadRequest, hold(func(s *command.JobSpec) { s.MaxRuntimeS = 0 })},
		{"priority too high", command.PriorityOutOfRange, with(func(s *command.JobSpec) { s.Priority = 11 })},
		{"priority too low", command.PriorityOutOfRange, with(func(s *command.JobSpec) { s.Priority = -11 })},
		{"environment too large", command.EnvTooLarge, with(func(s *command.JobSpec) { s.Env = map[string]string{"A": strings.Repeat("x", 64<<10)} })},
		{"unknown device", command.UnknownDevice, submit(pinned("box:gpu7"))},
		{"bad selector", command.BadSelector, submit(selecting("vram>>1"))},
		{"no matching device", command.NoMatchingDevice, submit(selecting("rack=zz"))},
		{"runtime above the ceiling", command.RuntimeAboveLimit, with(func(s *command.JobSpec) { s.MaxRuntimeS = 3601 })},
		{"runtime above every match", command.RuntimeAboveLimit, submit(command.JobSpec{Selector: "rack=r3", Command: []string{"x"}, Submitter: "ann", MaxRuntimeS: 3601})},
		{"array, second bad", command.UnknownDevice, submit(pinned("box:gpu0"), pinned("box:gpu7"))},
		{"array too large", command.ArrayTooLarge, submit(make([]command.JobSpec, 1001)...)},
	} {
		t.Run(c.name, func(t *testing.T) { l.refused(c.code, c.body) })
	}
	if n := l.m.View().Counts().Jobs; n != 0 {
		t.Errorf("%d jobs are left behind", n)
	}
}

func TestQueueBoundsHaveCodes(t *testing.T) {
	l := box(t)
	l.check = false
	l.queued(pinned("box:gpu0"))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_queued", Value: 2}, {Name: "max_selectors", Value: 1}}})
	l.queued(pinned("box:gpu1"))
	l.queued(selecting("rack"))
	l.refused(command.TooManySelectors, submit(selecting("vram")))
	l.queued(selecting("rack"))
	l.refused(command.QueueFull, submit(pinned("box:gpu0")))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_queued", Value: 100}, {Name: "max_queued_bytes", Value: 1 << 20}}})
	fat := pinned("box:gpu0")
	fat.Command = []string{"x", strings.Repeat("y", 600<<10)}
	l.queued(fat)
	l.refused(command.QueueFull, submit(fat))
}

func TestAskingForNoRuntimeInheritsTheCeiling(t *testing.T) {
	l := box(t)
	first := l.queued(pinned("box:gpu0"))
	if first.State != model.JobAssigned || first.MaxRuntimeS != 3600 || first.CeilingAsked {
		t.Errorf("placed with %+v", first)
	}
	behind := l.queued(pinned("box:gpu0"))
	if behind.State != model.JobQueued || behind.MaxRuntimeS != 3600 {
		t.Errorf("a waiting pinned job shows %d s", behind.MaxRuntimeS)
	}
	waiting := l.queued(selecting("rack=r3"))
	if waiting.MaxRuntimeS != 0 {
		t.Errorf("a waiting selector job shows %d s before it has a device", waiting.MaxRuntimeS)
	}
	// The ceiling changes: what waits follows, what asked does not.
	again := register("box", "i1", spec("gpu0", 1800, "rack", "r3"), spec("gpu1", 0))
	l.ok(again)
	if j := l.job(behind.Number); j.MaxRuntimeS != 1800 {
		t.Errorf("after a new ceiling it shows %d s", j.MaxRuntimeS)
	}
	l.ok(exited(l.job(first.Number), "i1", 0))
	l.ok(exited(l.wantJob(behind.Number, model.JobAssigned), "i1", 0))
	if j := l.wantJob(waiting.Number, model.JobAssigned); j.MaxRuntimeS != 1800 {
		t.Errorf("the selector job landed with %d s", j.MaxRuntimeS)
	}
}

func TestAFreedDeviceGoesToTheNextInTheSameEntry(t *testing.T) {
	l := box(t)
	first := l.queued(pinned("box:gpu0"))
	second := l.queued(pinned("box:gpu0"))
	third := l.queued(selecting("rack"))
	if got := l.m.View().QueuePosition(third.Number); got != 2 {
		t.Errorf("the selector job is %d in the fleet, want 2", got)
	}
	l.ok(exited(first, "i1", 0))
	if j := l.wantJob(second.Number, model.JobAssigned); j.Lease <= first.Lease {
		t.Errorf("lease %d after %d: a fencing token must rise", j.Lease, first.Lease)
	}
	if got := l.m.View().QueuePosition(third.Number); got != 1 {
		t.Errorf("now it is %d, want 1", got)
	}
}

func TestRuntimeIsToleratedWhereAJobLands(t *testing.T) {
	l := box(t)
	l.ok(register("big", "i1", spec("g", 0, "rack", "r3")))
	busy := l.queued(pinned("big:g"))
	long := selecting("rack=r3")
	long.MaxRuntimeS = 7200
	waiting := l.queued(long)
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone) // matches, but allows an hour only
	if waiting.State != model.JobQueued {
		t.Fatalf("placed on %v", waiting.Devices)
	}
	short := l.queued(selecting("rack=r3"))
	if short.Device() != "box:gpu0" {
		t.Errorf("the short one is %s on %q", short.State, short.Device())
	}
	l.ok(exited(busy, "i1", 0))
	if j := l.wantJob(waiting.Number, model.JobAssigned); j.Device() != "big:g" {
		t.Errorf("the long one landed on %s", j.Device())
	}
}

func TestNoWaitEndsWithAResult(t *testing.T) {
	l := box(t)
	l.queued(pinned("box:gpu0"))
	s := pinned("box:gpu0")
	s.NoWait = true
	r := l.one(submit(s))
	if r.Code != command.NotPlaced || len(r.Jobs) != 1 || r.Message == "" {
		t.Fatalf("%+v", r)
	}
	if j := r.Jobs[0]; j.State != model.JobKilled || j.EndReason != "no-wait: device busy" {
		t.Errorf("the row ends as %s, %q", j.State, j.EndReason)
	}
	s.Pinned = "box:gpu1"
	if r := l.ok(submit(s)); r.Jobs[0].State != model.JobAssigned {
		t.Errorf("a free device was not given: %+v", r.Jobs[0])
	}
}

func TestQueueOrderIsPriorityWithAging(t *testing.T) {
	l := box(t)
	held := l.queued(pinned("box:gpu0"))
	prio := func(p int8) uint64 {
		s := pinned("box:gpu0")
		s.Priority = p
		return l.queued(s).Number
	}
	old := prio(0)
	l.advanceMS(30*minuteMS + 1)
	late := prio(1)  // one level is 30 minutes: it does not pass
	later := prio(2) // two levels do
	order := func() (numbers []uint64) {
		for j := range l.m.View().Queued() {
			numbers = append(numbers, j.Number)
		}
		return numbers
	}
	want := func(step string, numbers ...uint64) {
		t.Helper()
		got := order()
		for i := range numbers {
			if i >= len(got) || got[i] != numbers[i] {
				t.Fatalf("%s: order %v, want %v", step, got, numbers)
			}
			if p := l.m.View().QueuePosition(got[i]); p != i+1 {
				t.Fatalf("%s: job %d is at %d, want %d", step, got[i], p, i+1)
			}
		}
	}
	want("with aging", later, old, late)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: 0}}})
	want("strict", later, late, old)
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: 60_000}}})
	want("short aging", old, later, late)
	l.ok(exited(held, "i1", 0))
	l.wantJob(old, model.JobAssigned)
}

func TestAHighPriorityStreamStarvesNobody(t *testing.T) {
	l := box(t)
	l.check = false
	running := l.queued(pinned("box:gpu0"))
	low := pinned("box:gpu0")
	low.Priority = -10
	starved := l.queued(low).Number
	high := pinned("box:gpu0")
	high.Priority = 10
	// 20 levels of 30 minutes are 10 hours; a slot takes 6 minutes.
	for slot := 1; slot <= 102; slot++ {
		l.queued(high)
		l.advanceMS(6 * minuteMS)
		l.ok(exited(running, "i1", 0))
		if running = l.m.View().Active()[0]; running.Number == starved {
			if slot < 99 {
				t.Fatalf("it ran in slot %d already: priority counted for nothing", slot)
			}
			return
		}
	}
	t.Fatal("ten hours have passed and it still waits")
}

func TestAnArrayIsAllOrNothingAtEveryBound(t *testing.T) {
	l := box(t)
	l.queued(pinned("box:gpu0"))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_queued", Value: 3}, {Name: "max_array", Value: 5}, {Name: "max_selectors", Value: 1}}})
	one := pinned("box:gpu0")
	l.refused(command.ArrayTooLarge, submit(one, one, one, one, one, one))
	l.refused(command.QueueFull, submit(one, one, one, one))
	l.refused(command.TooManySelectors, submit(selecting("rack"), selecting("vram")))
	if r := l.refused(command.RuntimeAboveLimit, submit(one, asking(one, 3601))); !strings.HasPrefix(r.Message, "Job 2 of the array: ") {
		t.Errorf("it does not say which: %s", r.Message)
	}
	r := l.ok(submit(one, one, one))
	for i, j := range r.Jobs {
		if j.Number != r.Jobs[0].Number+uint64(i) || r.Positions[i] != i+1 {
			t.Errorf("job %d is %+v at %d", i, j, r.Positions[i])
		}
	}
	l.told(command.EventJobQueued, command.EventJobQueued, command.EventJobQueued)
}

func TestAnArrayThatIsNotToWaitKeepsWhatWasPlaced(t *testing.T) {
	l := box(t)
	s := selecting("!zz")
	s.NoWait = true
	r := l.sent("k", submit(s, s, s))
	if r.Code != command.NotPlaced || len(r.Jobs) != 3 || r.Message == "" {
		t.Fatalf("%+v", r)
	}
	for i, want := range []model.JobState{model.JobAssigned, model.JobAssigned, model.JobKilled} {
		if r.Jobs[i].State != want {
			t.Errorf("job %d is %s, want %s", i, r.Jobs[i].State, want)
		}
	}
	if again := l.sent("k", submit(s, s, s)); again.Code != command.NotPlaced || !again.Repeat || len(again.Jobs) != 3 {
		t.Errorf("%+v", again)
	}
}

func TestEveryPriorityInTheRangeIsTaken(t *testing.T) {
	l := box(t)
	for p := int8(minPriority); p <= maxPriority; p++ {
		if j := l.queued(ranked(pinned("box:gpu0"), p)); j.Priority != p {
			t.Errorf("%+v", j)
		}
	}
}

// TestAFullQueueDoesNotShutOutWhatCouldStart: a queue for one busy device is no
// reason to leave another one idle.
func TestAFullQueueDoesNotShutOutWhatCouldStart(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("a", 0, "kind", "old"), spec("b", 3600, "kind", "new"), spec("c", 0, "kind", "new")))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_queued", Value: 1}}})
	l.ok(submit(pinned("box:a")))
	l.ok(submit(pinned("box:a")))
	l.refused(command.QueueFull, submit(pinned("box:a")))
	l.refused(command.QueueFull, submit(selecting("kind=old")))
	l.refused(command.QueueFull, submit(selecting("kind=new"), selecting("kind=new"))) // an array waits as a whole or not at all
	for _, s := range []command.JobSpec{pinned("box:b"), selecting("kind=new")} {
		if j := l.ok(submit(s)).Jobs[0]; j.State != model.JobAssigned {
			t.Errorf("%+v", j)
		}
	}
	l.refused(command.QueueFull, submit(selecting("kind=new")))
}
