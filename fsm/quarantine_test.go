package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// TestWhichReasonIsKept: the first, unless a graver one comes.
func TestWhichReasonIsKept(t *testing.T) {
	benign := []model.Reason{model.ReasonWorkerLost, model.ReasonLeaseExpired, model.ReasonRegistration}
	grave := []model.Reason{model.ReasonFault, model.ReasonUnrecorded, newerReason}
	for _, first := range slices.Concat(benign, grave) {
		for _, second := range slices.Concat(benign, grave) {
			d := model.Device{State: model.DeviceReady}
			quarantine(first, "first")(nil, &d)
			quarantine(second, "second")(nil, &d)
			want, detail := first, "first"
			if slices.Contains(benign, first) && slices.Contains(grave, second) {
				want, detail = second, "second"
			}
			if first == model.ReasonFault && second == first {
				detail = "first; second"
			}
			if d.State != model.DeviceUnhealthy || d.Reason != want || d.Detail != detail {
				t.Errorf("%s then %s: %s, %q", first, second, d.Reason, d.Detail)
			}
		}
	}
}

func TestARepeatedFaultChangesNothing(t *testing.T) {
	l := box(t)
	l.ok(fault("box:gpu0", "i1", "ECC"))
	before := rowsOnly(l.m.View())
	l.ok(fault("box:gpu0", "i1", "ECC"))
	if rowsOnly(l.m.View()) != before || len(l.events) != 0 {
		t.Errorf("events %+v, %+v", l.events, l.device("box:gpu0"))
	}
	// A milder reason comes and goes; the fault stays as it is.
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", hourMS))
	if d := l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonFault); d.Detail != "ECC" {
		t.Errorf("detail %q", d.Detail)
	}
}

func TestAFaultTakesOverAMilderReason(t *testing.T) {
	for _, reason := range []model.Reason{model.ReasonWorkerLost, model.ReasonLeaseExpired, model.ReasonRegistration} {
		l := box(t)
		lost(l, reason)
		l.ok(fault("box:gpu1", "", "ECC"))
		if d := l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault); d.Detail != "ECC" {
			t.Errorf("detail %q", d.Detail)
		}
		if e := told(l, command.EventDeviceState); len(e) != 1 || e[0].Reason != "fault" {
			t.Errorf("events %+v", l.events)
		}
		l.ok(&command.Recover{Host: "box", Instance: l.m.View().Agent("box").Instance, Proof: clean})
		l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonFault)
	}
}

func TestAReasonSurvivesRegistrationEpochAndSnapshot(t *testing.T) {
	for _, reason := range []model.Reason{
		model.ReasonWorkerLost, model.ReasonLeaseExpired, model.ReasonRegistration,
		model.ReasonFault, model.ReasonUnrecorded, newerReason,
	} {
		t.Run(fmt.Sprint(uint8(reason)), func(t *testing.T) {
			l := box(t)
			j := lost(l, reason)
			detail := l.device("box:gpu1").Detail
			same := func(after string) {
				t.Helper()
				if d := l.device("box:gpu1"); d.State != model.DeviceUnhealthy || d.Reason != reason || d.Detail != detail {
					t.Fatalf("after %s: %+v", after, d)
				}
			}
			l.ok(again("i9", j.Lease))
			same("a registration without proof")
			l.ok(again("i9", j.Lease))
			same("the same again")
			l.lead()
			same("an epoch")
			l.m = restored(t, l.m)
			same("a restore")
			l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i9"}}})
			l.ok(labelled2("i9"))
			l.ok(&command.Recover{Host: "box", Instance: "i9"})
			same("contact")
			only := register("box", "i10", spec("gpu0", 3600))
			l.ok(only)
			same("a registration that leaves it out")
			l.advanceMS(hourMS)
			l.ok(silent("box", "i10", hourMS))
			same("a write-off")
			l.ok(again("i11", j.Lease))
			same("the return")
			// An operator clears every reason, known or not.
			l.ok(&command.DeviceClear{Device: "box:gpu1"})
			l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
		})
	}
}

func labelled2(instance string) *command.LabelsReplace {
	return &command.LabelsReplace{Host: "box", Instance: instance, Source: model.Detected, Sets: []command.DeviceLabels{{Name: "gpu1", Labels: kvs("a", "1")}}}
}

func TestAClearedDeviceOfAWrittenOffHostStaysCleared(t *testing.T) {
	l := box(t)
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", hourMS))
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonWorkerLost)
	l.ok(&command.DeviceClear{Device: "box:gpu0"})
	l.ok(silent("box", "i1", hourMS)) // the leader says it once more
	l.wantDevice("box:gpu0", model.DeviceUnknown, model.ReasonNone)
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
}

func TestALateRegistrationOfAnEarlierProcessEndsNothing(t *testing.T) {
	l := box(t)
	late := again("i1", 99)
	l.ok(again("i2", 0))
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i2"))
	l.refused(command.StaleInstance, late)
	l.wantJob(j.Number, model.JobRunning)
	for i := 3; i < 12; i++ {
		l.ok(again(fmt.Sprint("i", i), 0, ref(j)))
	}
	l.m = restored(t, l.m)
	former := l.m.View().Agent("box").Former
	if want := strings.Fields("i3 i4 i5 i6 i7 i8 i9 i10"); !slices.Equal(former, want) {
		t.Errorf("kept %v", former)
	}
	for _, instance := range former {
		l.refused(command.StaleInstance, again(instance, 99))
	}
	l.wantJob(j.Number, model.JobRunning)
	l.ok(again("i11", 0, ref(j))) // the present one again
}

func TestNamesThatHostsGiveThemselvesAreBounded(t *testing.T) {
	l := box(t)
	long := strings.Repeat("n", 257)
	for name, change := range map[string]func(*command.AgentRegister, string){
		"host":     func(b *command.AgentRegister, s string) { b.Host = s },
		"instance": func(b *command.AgentRegister, s string) { b.Instance = s },
		"machine":  func(b *command.AgentRegister, s string) { b.MachineID = s },
		"boot":     func(b *command.AgentRegister, s string) { b.BootID = s },
		"device":   func(b *command.AgentRegister, s string) { b.Devices[0].Name = s },
	} {
		for _, text := range []string{long, "a\nb", "a\x1b[2J"} {
			b := register("new", "n1", spec("g", 0))
			change(b, text)
			if r := l.refused(command.BadRequest, b); len(r.Message) > 600 || strings.ContainsAny(r.Message, "\n\x1b") {
				t.Errorf("%s: it says %q", name, r.Message)
			}
		}
		b := register("new", "n1", spec("g", 0))
		b.MachineID = "m"
		change(b, long[:256])
		if name != "machine" {
			l.ok(b)
			l.advanceMS(minuteMS)
			l.ok(silent(b.Host, b.Instance, minuteMS))
			l.ok(retiredHost(b.Host))
		}
	}
}

func TestSilenceFromBeforeAContactIsNoEvidence(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.advanceMS(10 * minuteMS)
	l.ok(silent("box", "i1", minuteMS))
	l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: "i1"}}})
	l.ok(silent("box", "i1", 10*minuteMS)) // made before it was heard, applied after
	l.wantJob(j.Number, model.JobRunning)
	l.advanceMS(5*minuteMS - 1)
	l.ok(silent("box", "i1", 10*minuteMS))
	l.wantJob(j.Number, model.JobRunning)
	l.advanceMS(1)
	l.ok(silent("box", "i1", 10*minuteMS))
	l.wantJob(j.Number, model.JobLost)
}

func TestAJobThatNeverLeftIsNotLostWithItsHost(t *testing.T) {
	l := box(t)
	j := l.queued(pinned("box:gpu1"))
	other := l.queued(pinned("box:gpu0"))
	l.ok(fault("box:gpu0", "", "smoke"))
	l.advanceMS(10 * minuteMS)
	s := silent("box", "i1", 10*minuteMS) // the first sweep of a leader that was held up
	s.Unordered = []uint64{j.Number, other.Number}
	l.ok(s)
	l.wantJob(j.Number, model.JobQueued)
	l.wantJob(other.Number, model.JobQueued)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	l.wantDevice("box:gpu0", model.DeviceUnhealthy, model.ReasonFault)
}

// TestTheBoundsOfSilenceAreSettings: each bound is met exactly, from a value
// that is not the default.
func TestTheBoundsOfSilenceAreSettings(t *testing.T) {
	set := func(l *log) {
		l.ok(&command.ConfigSet{Settings: []command.Setting{
			{Name: "holdoff_ms", Value: 20_000}, {Name: "unknown_after_ms", Value: 2000}, {Name: "unknown_silence_ms", Value: 11_000},
			{Name: "write_off_after_ms", Value: 40_000}, {Name: "lease_unstarted_ms", Value: 50_000}, {Name: "lease_unnamed_ms", Value: 60_000},
		}})
	}
	type outcome struct {
		device model.DeviceState
		job    model.JobState
	}
	busy, unknown := outcome{model.DeviceBusy, model.JobAssigned}, outcome{model.DeviceUnknown, model.JobAssigned}
	out := outcome{model.DeviceUnhealthy, model.JobLost}
	for _, c := range []struct {
		name  string
		at    int64 // bound
		begun bool
		sweep func(j *model.Job, ms int64) *command.Sweep
		below outcome
		upon  outcome
	}{
		{"detached", 2000, false, func(_ *model.Job, ms int64) *command.Sweep {
			return &command.Sweep{EpochMS: hourMS, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", DetachedMS: ms}}}
		}, busy, unknown},
		{"silent", 11_000, false, func(_ *model.Job, ms int64) *command.Sweep {
			return &command.Sweep{EpochMS: hourMS, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: ms}}}
		}, busy, unknown},
		{"written off", 40_000, false, func(_ *model.Job, ms int64) *command.Sweep { return silent("box", "i1", ms) }, unknown, out},
		{"unstarted", 50_000, false, func(j *model.Job, ms int64) *command.Sweep {
			return &command.Sweep{EpochMS: hourMS, Unnamed: []command.LeaseUnnamed{{Lease: j.Lease, UnnamedMS: ms}}}
		}, busy, out},
		{"unnamed", 60_000, true, func(j *model.Job, ms int64) *command.Sweep {
			return &command.Sweep{EpochMS: hourMS, Unnamed: []command.LeaseUnnamed{{Lease: j.Lease, UnnamedMS: ms}}}
		}, busy, out},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, upon := range []bool{false, true} {
				l := box(t)
				set(l)
				j := l.queued(pinned("box:gpu1"))
				want, ms := c.below, c.at-1
				if upon {
					want, ms = c.upon, c.at
				}
				if c.begun {
					l.ok(started(j, "i1"))
					want.job = max(want.job, model.JobRunning)
				}
				l.advanceMS(hourMS)
				l.ok(c.sweep(j, ms))
				if got := (outcome{l.device("box:gpu1").State, l.job(j.Number).State}); got != want {
					t.Errorf("after %d ms: %v, want %v", ms, got, want)
				}
			}
		})
	}
}

func TestTheSmallestHoldoffIsTenSeconds(t *testing.T) {
	l := box(t)
	l.refused(command.SettingRefused, configured("holdoff_ms", 9999))
	l.refused(command.SettingRefused, configured("holdoff_ms", 0))
	l.ok(&command.ConfigSet{Settings: []command.Setting{
		{Name: "holdoff_ms", Value: 10_000}, {Name: "unknown_silence_ms", Value: 5000}, {Name: "write_off_after_ms", Value: 10_000},
		{Name: "lease_unnamed_ms", Value: 10_000}, {Name: "lease_unstarted_ms", Value: 10_000},
	}})
	a, b := l.queued(pinned("box:gpu0")), l.queued(pinned("box:gpu1"))
	l.ok(started(b, "i1"))
	l.advanceMS(hourMS)
	verdicts := func() {
		s := silent("box", "i1", hourMS)
		s.Unnamed = []command.LeaseUnnamed{{Lease: a.Lease, UnnamedMS: hourMS}, {Lease: b.Lease, UnnamedMS: hourMS}}
		l.ok(&command.Sweep{EpochMS: hourMS, Unnamed: s.Unnamed})
		l.ok(s)
	}
	for range 3 { // every acquisition begins one, the same node's too
		l.lead()
		l.advanceMS(9999)
		verdicts()
		l.wantJob(a.Number, model.JobAssigned)
		l.wantJob(b.Number, model.JobRunning)
	}
	l.advanceMS(1)
	verdicts()
	l.wantJob(a.Number, model.JobLost)
	l.wantJob(b.Number, model.JobLost)
}
