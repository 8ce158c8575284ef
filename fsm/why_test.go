package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/model/selector"
)

func (l *log) waiting(n uint64) Waiting {
	l.tb.Helper()
	w, ok := l.m.View().Waiting(n)
	if !ok {
		l.tb.Fatalf("job %d does not wait", n)
	}
	for _, r := range w.Reasons {
		if r.Message == "" || !strings.HasSuffix(r.Message, ".") {
			l.tb.Errorf("reason %s without a sentence: %q", r.Code, r.Message)
		}
	}
	return w
}

func (w Waiting) codes() (codes []WaitCode) {
	for _, r := range w.Reasons {
		codes = append(codes, r.Code)
	}
	return codes
}

func (w Waiting) reason(tb testing.TB, code WaitCode) WaitReason {
	tb.Helper()
	for _, r := range w.Reasons {
		if r.Code == code {
			return r
		}
	}
	tb.Fatalf("no reason %s in %+v", code, w)
	return WaitReason{}
}

func wantCodes(tb testing.TB, w Waiting, want ...WaitCode) {
	tb.Helper()
	if !slices.Equal(w.codes(), want) {
		tb.Errorf("reasons %v, want %v: %+v", w.codes(), want, w)
	}
}

func wantLatest(tb testing.TB, w Waiting, earliest, latest int64) {
	tb.Helper()
	if w.Expected.EarliestMS != earliest || w.Expected.LatestMS != latest || w.Expected.Note == "" {
		tb.Errorf("expected %+v, want %d to %d", w.Expected, earliest, latest)
	}
}

// forS is a job with a limit.
func forS(s command.JobSpec, seconds int64) command.JobSpec {
	s.MaxRuntimeS = seconds
	return s
}

const allowanceMS = startAllowanceMS + endAllowanceMS

func TestABusyDeviceIsNamedWithItsHolderAndLatestEnd(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("gpu0", 0)))
	held := l.queued(forS(pinned("box:gpu0"), 600))
	waits := l.queued(forS(pinned("box:gpu0"), 60))
	now := l.m.View().NowMS()
	w := l.waiting(waits.Number)
	wantCodes(t, w, WaitDeviceBusy)
	wantLatest(t, w, now, now+600_000+allowanceMS) // not started: from now
	l.advanceMS(1000)
	l.ok(started(held, "i1"))
	l.advanceMS(100_000)
	l.ok(&command.Schedule{})
	w = l.waiting(waits.Number)
	end := now + 1000 + 600_000 + endAllowanceMS
	wantLatest(t, w, now+101_000, end)
	busy := w.reason(t, WaitDeviceBusy)
	if len(busy.Devices) != 1 || busy.More != 0 {
		t.Fatalf("%+v", busy)
	}
	if d := busy.Devices[0]; d.Device != "box:gpu0" || d.Job != held.Number || d.Holder != "ann" || d.LatestEndMS != end || d.State != model.DeviceBusy {
		t.Errorf("%+v", d)
	}
	// The present may be later than the view; a job past its limit gives none.
	if w, _ := l.m.View().WaitingAt(waits.Number, now+200_000); w.Expected.EarliestMS != now+200_000 || w.Expected.LatestMS != end {
		t.Errorf("%+v", w.Expected)
	}
	w, _ = l.m.View().WaitingAt(waits.Number, end)
	wantLatest(t, w, end, 0)
	if d := w.Reasons[0].Devices[0]; !d.Past || d.LatestEndMS != 0 || !strings.Contains(w.Reasons[0].Message, "past its limit") {
		t.Errorf("%+v", w.Reasons[0])
	}
	// An extended limit counts at once.
	l.ok(&command.LeaseExtend{Job: held.Number, By: "ann", MaxRuntimeS: 700})
	wantLatest(t, l.waiting(waits.Number), now+101_000, end+100_000)
	if _, ok := l.m.View().Waiting(held.Number); ok {
		t.Error("a running job waits")
	}
	if _, ok := l.m.View().Waiting(99); ok {
		t.Error("no job waits")
	}
}

func TestAHolderWithoutALimitGivesNoLatestStart(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("gpu0", 0), spec("gpu1", 0)))
	l.queued(pinned("box:gpu0"))
	waits := l.queued(selecting("!zz"))
	l.wantJob(waits.Number, model.JobAssigned) // on gpu1
	waits = l.queued(selecting("!zz"))
	w := l.waiting(waits.Number)
	wantCodes(t, w, WaitDeviceBusy)
	wantLatest(t, w, l.m.View().NowMS(), 0)
	if r := w.Reasons[0]; !strings.Contains(r.Message, "Each of the 2 devices") || !strings.Contains(r.Message, "no limit") || len(r.Devices) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestJobsAheadCountOnlyWhereTheyCompete(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("gpu0", 0, "rack", "r1"), spec("gpu1", 3600)))
	for _, d := range []string{"box:gpu0", "box:gpu1"} {
		l.queued(forS(pinned(d), 100))
	}
	l.queued(forS(pinned("box:gpu1"), 7))  // another device
	l.queued(forS(selecting("rack"), 40))  // gpu0
	l.queued(forS(selecting("!zz"), 5000)) // gpu0 only: gpu1 does not allow it
	l.queued(forS(selecting("rack"), 9))
	s := forS(pinned("box:gpu0"), 50)
	s.Priority = -1
	l.queued(s) // behind
	waits := l.queued(forS(pinned("box:gpu0"), 60))
	now := l.m.View().NowMS()
	w := l.waiting(waits.Number)
	wantCodes(t, w, WaitDeviceBusy, WaitBehind)
	if r := w.reason(t, WaitBehind); r.Ahead != 3 || r.Fleet {
		t.Errorf("%+v", r)
	}
	wantLatest(t, w, now, now+100_000+40_000+5_000_000+9_000+4*allowanceMS)
	// One that could take either device: together they are through sooner than
	// each alone.
	either := l.queued(forS(selecting("!zz"), 60))
	w = l.waiting(either.Number)
	if r := w.reason(t, WaitBehind); r.Ahead != 5 {
		t.Errorf("%+v", r)
	}
	wantLatest(t, w, now, now+100_000+7_000+2*allowanceMS) // gpu1 alone: job 3 and nobody else
}

func TestSeveralDevicesTogetherBoundTheWait(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("a", 0), spec("b", 0), spec("c", 0)))
	var last *model.Job
	for range 13 { // three run, nine are ahead of the last
		last = l.queued(forS(selecting("!zz"), 300))
	}
	w := l.waiting(last.Number)
	now := l.m.View().NowMS()
	wantLatest(t, w, now, now+4*(300_000+allowanceMS))
}

func TestADeviceOutOfThePoolSaysWhy(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("gpu0", 0), spec("gpu1", 0), spec("gpu2", 0)))
	l.ok(register("far", "i1", spec("gpu0", 0)))
	l.advanceMS(minuteMS)
	for _, n := range []string{"0", "1"} {
		l.ok(&command.DeviceFault{Device: "box:gpu" + n, Instance: "i1", Detail: "fan stopped"})
	}
	l.ok(silent("far", "i1", 3000))
	l.ok(submit(forS(pinned("box:gpu2"), 60)))
	orphan := l.queued(pinned("box:gpu2"))
	l.ok(register("box", "i2", spec("gpu0", 0), spec("gpu1", 0))) // gpu2 is gone
	fault := l.waiting(l.queued(pinned("box:gpu0")).Number)
	wantCodes(t, fault, WaitDeviceOut)
	wantLatest(t, fault, 0, 0)
	if d := fault.Reasons[0].Devices[0]; d.State != model.DeviceUnhealthy || d.Reason != model.ReasonFault || d.Detail != "fan stopped" {
		t.Errorf("%+v", d)
	}
	if m := fault.Reasons[0].Message; !strings.Contains(m, "fault: fan stopped") || !strings.Contains(m, "clears") {
		t.Error(m)
	}
	gone := l.waiting(orphan.Number).reason(t, WaitDeviceOut)
	if !gone.Devices[0].Absent || !strings.Contains(gone.Message, "no longer declared") {
		t.Errorf("%+v", gone)
	}
	any := l.waiting(l.queued(selecting("!zz")).Number)
	wantCodes(t, any, WaitDeviceOut, WaitBehind)
	if r := any.Reasons[0]; len(r.Devices) != 4 || r.More != 0 || !strings.HasPrefix(r.Message, "4 devices") {
		t.Errorf("%+v", r)
	}
	far := l.waiting(l.queued(pinned("far:gpu0")).Number).reason(t, WaitDeviceOut)
	if far.Devices[0].State != model.DeviceUnknown || !strings.Contains(far.Message, "silent") {
		t.Errorf("%+v", far)
	}
}

// "Until its host proves" would make an operator wait for what cannot come.
func TestAQuarantineThatWaitsForAPersonSaysSo(t *testing.T) {
	l := began(t)
	l.ok(register("box", "i1", spec("gpu0", 0)))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", 400_000))
	job := l.queued(pinned("box:gpu0"))
	says := func(want string) {
		t.Helper()
		if m := l.waiting(job.Number).reason(t, WaitDeviceOut).Message; !strings.HasSuffix(m, want) {
			t.Errorf("%q, want it to end in %q", m, want)
		}
	}
	says(") until its host proves that nothing is left on it, or an administrator clears it.")
	l.ok(configured("flap_limit", 0))
	says(") until an administrator clears it: its automatic returns are used up for now.")
	l.ok(&command.Recover{Host: "box", Instance: "i1", RequireManualClear: true})
	says(") until an administrator clears it: its host wants no automatic return.")
	l.ok(&command.DeviceFault{Device: "box:gpu0", Instance: "i1", Detail: "fan stopped"})
	says("(fault: fan stopped) until an administrator clears it: no proof answers for that.")
}

func TestLongListsAreCutAndCounted(t *testing.T) {
	l := began(t)
	r := register("box", "i1")
	for n := range 9 {
		r.Devices = append(r.Devices, spec(fmt.Sprint("g", n), 0))
	}
	l.ok(r)
	for n := range int64(9) {
		l.queued(forS(pinned(fmt.Sprint("box:g", n)), 900-n))
	}
	busy := l.waiting(l.queued(selecting("!zz")).Number).reason(t, WaitDeviceBusy)
	if len(busy.Devices) != maxWaitDevices || busy.More != 4 || busy.Devices[0].Device != "box:g8" {
		t.Errorf("%+v", busy)
	}
}

func TestNothingThatCouldServeSaysSo(t *testing.T) {
	l := began(t)
	free := func(value string) *command.AgentRegister {
		s := spec("gpu0", 3600)
		s.Detected = []command.KV{{Key: "vram", Value: "80G"}, {Key: "vram_free", Value: value}}
		return register("box", "i1", s)
	}
	l.ok(free("2G"))
	low := l.queued(forS(selecting("vram>=40G,vram_free>=30G"), 3000))
	w := l.waiting(low.Number)
	wantCodes(t, w, WaitNoneMatchesNow)
	wantLatest(t, w, 0, 0)
	if r := w.Reasons[0]; !slices.Equal(r.Keys, []string{"vram_free"}) || !strings.Contains(r.Message, "vram_free") {
		t.Errorf("%+v", r)
	}
	// The ceiling falls below what it asks for.
	again := free("2G")
	again.Instance, again.Devices[0].MaxRuntimeS = "i2", 1800
	l.ok(again)
	w = l.waiting(low.Number)
	wantCodes(t, w, WaitNoneTolerates)
	if r := w.Reasons[0]; r.RuntimeS != 3000 || r.LargestS != 1800 || !strings.Contains(r.Message, "; kill it and submit it again with less.") {
		t.Errorf("%+v", r)
	}
	l.ok(&command.DeviceFault{Device: "box:gpu0", Detail: "x"})
	l.ok(&command.DeviceRetire{Device: "box:gpu0"})
	w = l.waiting(low.Number)
	wantCodes(t, w, WaitNoDevice)
	wantLatest(t, w, 0, 0)
}

func TestTooLongAQueueIsNotWeighed(t *testing.T) {
	l := began(t)
	l.check = false
	l.ok(register("box", "i1", spec("gpu0", 0)))
	for range 11 {
		jobs := make([]command.JobSpec, 1000)
		for i := range jobs {
			jobs[i] = forS(pinned("box:gpu0"), 1)
		}
		l.ok(submit(jobs...))
	}
	at := l.waiting(maxAhead + 2)
	if r := at.reason(t, WaitBehind); r.Ahead != maxAhead || r.Fleet || at.Expected.LatestMS == 0 {
		t.Errorf("%+v", at)
	}
	past := l.waiting(maxAhead + 3)
	wantCodes(t, past, WaitDeviceBusy, WaitBehind)
	if r := past.reason(t, WaitBehind); r.Ahead != maxAhead+1 || !r.Fleet || past.Expected.LatestMS != 0 {
		t.Errorf("%+v", past)
	}
}

func TestExplainSaysWhatWouldBecomeOfAJob(t *testing.T) {
	l := box(t) // gpu0: ceiling 1 h, rack=r3; gpu1 plain
	v := l.m.View()
	now := v.NowMS()
	e, err := v.Explain("rack=r3", 60, now)
	if err != nil || len(e.Waiting.Reasons) != 0 || e.Waiting.Expected != (Expected{EarliestMS: now, LatestMS: now}) {
		t.Fatalf("%+v %v", e, err)
	}
	l.queued(forS(pinned("box:gpu0"), 600))
	l.queued(forS(pinned("box:gpu0"), 50))
	behind := forS(pinned("box:gpu0"), 40)
	behind.Priority = -1
	l.queued(behind)
	v = l.m.View()
	e, err = v.Explain("rack=r3", 60, now)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(e.Matching, []string{"box:gpu0"}) || e.Free != nil || !slices.Equal(e.Tolerating, e.Matching) || e.QueueDepth != 2 {
		t.Errorf("%+v", e)
	}
	wantCodes(t, e.Waiting, WaitDeviceBusy, WaitBehind)
	wantLatest(t, e.Waiting, now, now+650_000+2*allowanceMS) // before the one of lower priority
	if d := e.Devices; len(d) != 1 || d[0].CeilingS != 3600 || !d[0].Tolerates || d[0].Holder != "ann" || d[0].LatestEndMS == 0 {
		t.Errorf("%+v", d)
	}
	// A runtime above the ceiling: gpu1, which is free, allows it.
	e, _ = v.Explain("!zz", 7200, now)
	if !slices.Equal(e.Tolerating, []string{"box:gpu1"}) || len(e.Devices) != 2 || e.Devices[0].Device != "box:gpu1" || e.Devices[1].Tolerates || len(e.Waiting.Reasons) != 0 {
		t.Errorf("%+v", e)
	}
	e, _ = v.Explain("rack=r3", 7200, now)
	wantCodes(t, e.Waiting, WaitNoneTolerates)
	if text := e.Waiting.Reasons[0].Message; text != "It asks for 7200 s and no device that matches allows more than 3600 s; ask for less." {
		t.Errorf("of a job that is only thought of: %s", text)
	}
	e, _ = v.Explain("rack=r4", 0, now)
	wantCodes(t, e.Waiting, WaitNoDevice)
	var bad *selector.Error
	if _, err := v.Explain("==", 0, now); !errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
	// A queued job has its own place.
	e, err = v.ExplainJob(3, now)
	if w := l.waiting(3); err != nil || e.Waiting.Expected != w.Expected || e.QueueDepth != 2 || !slices.Equal(e.Matching, []string{"box:gpu0"}) {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := v.ExplainJob(1, now); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestSinceWhenNoDeviceServesComesFromTheRecord(t *testing.T) {
	v := emptyView()
	v.meta.Now, v.meta.Uptime = 50_000*nsPerMS, 9000*nsPerMS
	j := model.Job{Selector: "a", MaxRuntimeS: 100, CeilingAsked: true}
	v.unserved.put(&v.digest, targetOf(&j), model.Unserved{Steps: []model.UnservedStep{{CeilingS: 200, SinceUptimeMS: 1000}, {CeilingS: 60, SinceUptimeMS: 4000}, {CeilingS: -1, SinceUptimeMS: 8000}}})
	for runtime, want := range map[int64]int64{300: 42_000, 100: 45_000, 50: 49_000, 0: 49_000} {
		j.MaxRuntimeS, j.CeilingAsked = runtime, runtime > 0
		if got := v.unservedSinceMS(&j); got != want {
			t.Errorf("%d s: since %d, want %d", runtime, got, want)
		}
	}
	j.MaxRuntimeS, j.CeilingAsked = 100, true
	reasons := []WaitReason{{Code: WaitDeviceOut, Message: "It is out."}, {Code: WaitBehind, Message: "Behind."}}
	v.date(reasons, &j)
	if reasons[0].SinceMS != 45_000 || reasons[0].Message != "It is out. The job ends when that has lasted for 600 s." || reasons[1].SinceMS != 0 {
		t.Errorf("%+v", reasons)
	}
	other := model.Job{Pinned: "a"}
	if v.unservedSinceMS(&other) != 0 {
		t.Error("a target without a record has a since")
	}
}

// TestQueueDepthReadsLabelsOnceForAllOfTheQueue: whoever may read can ask for it, and a
// thousand queued selectors beside thousands of devices took seconds. Reading a
// number allocates, so the allocations tell.
func TestQueueDepthReadsLabelsOnceForAllOfTheQueue(t *testing.T) {
	const devices, selectors = 250, 200
	l := began(t)
	l.check = false
	r := register("box", "i1")
	for i := range devices {
		r.Devices = append(r.Devices, spec(fmt.Sprint("g", i), 0, "serial", fmt.Sprint(i), "vram", "80G"))
	}
	l.ok(r)
	for i := range devices {
		l.queued(pinned(fmt.Sprint("box:g", i)))
	}
	for i := range selectors {
		l.queued(selecting(fmt.Sprintf("serial=%d", i)))
	}
	v := l.m.View()
	depth := 0
	allocs := testing.AllocsPerRun(3, func() { depth, _ = v.QueueDepth("vram") })
	if depth != selectors {
		t.Errorf("%d queued jobs could run on one that matches, want %d", depth, selectors)
	}
	if allocs > devices*selectors/2 {
		t.Errorf("%v allocations", allocs)
	}
	t.Logf("%v allocations", allocs)
}

func TestAPinnedJobThatAsksForTooMuchIsToldOfItsDevice(t *testing.T) {
	text := tooLong(&claim{pinned: "box:gpu0", runtimeS: 7200, queued: true}, 3600)
	if text != "It asks for 7200 s and box:gpu0 allows 3600 s at most; kill it and submit it again with less." {
		t.Error(text)
	}
}
