package fsm

import (
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// lost takes box:gpu1 out for a reason that proof answers, by what brings it
// about, and returns the job that was on it.
func lost(l *log, reason model.Reason) *model.Job {
	l.tb.Helper()
	agent := l.m.View().Agent("box").Instance
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, agent))
	switch reason {
	case model.ReasonWorkerLost:
		l.advanceMS(10 * minuteMS)
		l.ok(silent("box", agent, 10*minuteMS))
		l.ok(&command.Sweep{Heard: []command.AgentHeard{{Host: "box", Instance: agent}}})
	case model.ReasonLeaseExpired:
		l.advanceMS(hourMS)
		l.ok(&command.Sweep{EpochMS: hourMS, Unnamed: []command.LeaseUnnamed{{Lease: j.Lease, UnnamedMS: hourMS}}})
	case model.ReasonRegistration:
		l.ok(again(agent+"+", j.Lease))
	case model.ReasonFault:
		l.ok(exited(j, agent, 0))
		l.ok(fault("box:gpu1", agent, "ECC"))
		return j
	default: // a row of another version
		l.ok(exited(j, agent, 0))
		l.m.afterCommands = func(tx *txn) {
			d := *tx.devices.get("box:gpu1")
			d.State, d.Reason = model.DeviceUnhealthy, reason
			tx.putDevice(d)
		}
		l.ok(&command.Sweep{})
		l.m.afterCommands = nil
		l.wantDevice("box:gpu1", model.DeviceUnhealthy, reason)
		return j
	}
	l.wantJob(j.Number, model.JobLost)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, reason)
	return j
}

const newerReason = model.Reason(200) // of a build that this one does not know

// TestWhichProofAnswersWhichReason: at registration, then at a later word of
// the same process.
func TestWhichProofAnswersWhichReason(t *testing.T) {
	isolated, looked := command.Proof{Isolated: true}, clean
	for _, c := range []struct {
		name      string
		boot      string
		proof     command.Proof
		atFirst   bool // at registration
		later     bool // at a later hello
		withNamed bool // the same at registration, while the host names the job
	}{
		{"nothing", "boot-1", command.Proof{}, false, false, false},
		{"a boot", "boot-2", command.Proof{}, true, false, true},
		{"no boot ID", "", command.Proof{}, false, false, false},
		{"alone in its namespace", "boot-1", isolated, true, false, false},
		{"a search without a find", "boot-1", looked, true, true, false},
		{"a search with a find", "boot-1", command.Proof{SurvivorsChecked: true, SurvivorsFound: true}, false, false, false},
		{"a find without a search", "boot-1", command.Proof{SurvivorsFound: true}, false, false, false},
	} {
		for _, reason := range []model.Reason{
			model.ReasonWorkerLost, model.ReasonLeaseExpired, model.ReasonRegistration,
			model.ReasonFault, model.ReasonUnrecorded, newerReason,
		} {
			benign := reason <= model.ReasonRegistration
			back := func(l *log, want bool) {
				t.Helper()
				if !want {
					l.wantDevice("box:gpu1", model.DeviceUnhealthy, reason)
					return
				}
				l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
				if e := told(l, command.EventDeviceRecovered); len(e) == 0 || e[len(e)-1].Device != "box:gpu1" || e[len(e)-1].Reason != reason.String() {
					t.Errorf("events %+v", l.events)
				}
			}
			t.Run(c.name+" for "+reason.String(), func(t *testing.T) {
				for _, named := range []bool{false, true} {
					l := box(t)
					j := lost(l, reason)
					b := again("fresh", j.Lease)
					b.BootID, b.Proof = c.boot, c.proof
					if named {
						b.Jobs = []command.JobRef{ref(j)}
					}
					l.ok(b)
					back(l, benign && ((named && c.withNamed) || (!named && c.atFirst)))
				}
				l := box(t)
				lost(l, reason)
				l.ok(&command.Recover{Host: "box", Instance: l.m.View().Agent("box").Instance, Proof: c.proof})
				back(l, benign && c.later)
				// So does the same process when it registers again.
				l = box(t)
				j := lost(l, reason)
				b := again(l.m.View().Agent("box").Instance, j.Lease)
				b.BootID, b.Proof = c.boot, c.proof // a process cannot have seen a reboot
				l.ok(b)
				back(l, benign && c.later)
			})
		}
	}
}

func TestNothingIsProvenAboutADeviceWithALiveLease(t *testing.T) {
	l := box(t)
	l.ok(configured("retain_disconnected_jobs", 1))
	j := l.queued(pinned("box:gpu1"))
	l.ok(started(j, "i1"))
	l.advanceMS(hourMS)
	l.ok(silent("box", "i1", hourMS))
	l.ok(&command.Recover{Host: "box", Instance: "i1", Jobs: []command.JobRef{ref(j)}, Proof: clean})
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	b := again("i2", j.Lease, ref(j))
	b.BootID, b.Proof = "boot-2", command.Proof{Isolated: true, SurvivorsChecked: true}
	l.ok(b)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	l.ok(exited(j, "i2", 0))
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	l.ok(&command.Recover{Host: "box", Instance: "i2", Proof: clean})
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestALaterHelloAnswersOnlyWhenTheWrittenOffJobIsNoLongerNamed(t *testing.T) {
	l := box(t)
	j := lost(l, model.ReasonWorkerLost)
	hello := &command.Recover{Host: "box", Instance: "i1", Jobs: []command.JobRef{ref(j)}, Proof: clean}
	for range 2 {
		l.ok(hello)
		l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonWorkerLost)
	}
	hello.Jobs = nil // killed, found empty, and its end acknowledged
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestAJobThatTheTableCannotPlaceKeepsAllDevicesOut(t *testing.T) {
	for name, change := range map[string]func(l *log, r *command.JobRef){
		"forgotten": func(_ *log, r *command.JobRef) { r.Job = 999 },
		"under another lease": func(l *log, r *command.JobRef) {
			j := l.queued(pinned("box:gpu0"))
			l.ok(exited(j, "i1+", 0))
			*r = command.JobRef{Job: j.Number, Lease: j.Lease + 100}
		},
		"of another host": func(l *log, r *command.JobRef) {
			l.ok(register("far", "f1", spec("g", 0)))
			*r = ref(l.queued(pinned("far:g")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := box(t)
			j := lost(l, model.ReasonRegistration)
			named := ref(j)
			change(l, &named)
			l.ok(&command.Recover{Host: "box", Instance: "i1+", Jobs: []command.JobRef{named}, Proof: clean})
			l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
		})
	}
}

func TestAJobOnAnotherDeviceOfTheHostIsNotInTheWay(t *testing.T) {
	l := box(t)
	lost(l, model.ReasonRegistration)
	running := l.queued(pinned("box:gpu0"))
	l.ok(started(running, "i1+"))
	l.ok(&command.Recover{Host: "box", Instance: "i1+", Jobs: []command.JobRef{ref(running)}, Proof: clean})
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	l.wantJob(running.Number, model.JobRunning)
}

func TestManualClearOnlyEverWithholds(t *testing.T) {
	l := box(t)
	j := lost(l, model.ReasonRegistration)
	hello := &command.Recover{Host: "box", Instance: "i1+", Proof: clean, RequireManualClear: true}
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	if !l.m.View().Agent("box").ManualClear {
		t.Error("nobody can see that the host asks for it")
	}
	b := again("i2", j.Lease)
	b.BootID, b.Proof, b.RequireManualClear = "boot-2", command.Proof{Isolated: true, SurvivorsChecked: true}, true
	l.ok(b)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	// Without it only a proof counts, as ever.
	hello = &command.Recover{Host: "box", Instance: "i2"}
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	hello.Proof = clean
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
}

func TestARecoveredDeviceGoesToTheQueueInTheSameEntry(t *testing.T) {
	l := box(t)
	lost(l, model.ReasonWorkerLost)
	next := l.queued(pinned("box:gpu1"))
	l.ok(&command.Recover{Host: "box", Instance: "i1", Proof: command.Proof{SurvivorsChecked: true, Detail: "looked at 312 processes"}})
	l.wantJob(next.Number, model.JobAssigned)
	if d := l.m.View().Agent("box").ProofDetail; d != "looked at 312 processes" {
		t.Errorf("the proof says %q", d)
	}
}

func TestTheFlapGuardWaitsAndSaysSo(t *testing.T) {
	l := box(t)
	first := l.m.View().UptimeMS()
	for i := range int64(3) {
		l.advanceMS(minuteMS)
		lost(l, model.ReasonRegistration)
		l.ok(&command.Recover{Host: "box", Instance: l.m.View().Agent("box").Instance, Proof: clean})
		l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
		h, err := l.m.View().RecoveryHistory("box:gpu1")
		if err != nil || int64(len(h.Recoveries)) != i+1 || h.Remaining != 2-i || h.Limit != 3 || h.WindowMS != hourMS {
			t.Errorf("history %+v, %v", h, err)
		}
		if r := h.Recoveries[0]; r.UptimeMS != l.m.View().UptimeMS() || r.AtMS != l.m.View().NowMS() || r.Reason != model.ReasonRegistration {
			t.Errorf("newest %+v", r)
		}
	}
	lost(l, model.ReasonRegistration)
	hello := &command.Recover{Host: "box", Instance: l.m.View().Agent("box").Instance, Proof: clean}
	withheld := func() {
		t.Helper()
		l.ok(hello)
		l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
		if e := told(l, command.EventRecoveryWithheld); len(e) != 1 || e[0].Device != "box:gpu1" || e[0].Host != "box" || e[0].Reason != "registration" {
			t.Errorf("events %+v", l.events)
		}
	}
	withheld()
	// Uptime counts: hours without a leader, or a clock that jumps, do not.
	l.advanceMS(3 * hourMS)
	l.lead()
	withheld()
	l.m = restored(t, l.m)
	l.advanceMS(first + minuteMS + hourMS - l.m.View().UptimeMS() - 1)
	withheld()
	if h, _ := l.m.View().RecoveryHistory("box:gpu1"); h.Remaining != 0 || len(h.Recoveries) != 3 {
		t.Errorf("history %+v", h)
	}
	l.advanceMS(1)
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	if h, _ := l.m.View().RecoveryHistory("box:gpu1"); h.Remaining != 0 || len(h.Recoveries) != 3 {
		t.Errorf("history %+v: the oldest is out, this one is in", h)
	}
}

func TestTheFlapGuardReadsItsSettings(t *testing.T) {
	l := box(t)
	l.ok(configured("flap_limit", 0))
	lost(l, model.ReasonRegistration)
	hello := &command.Recover{Host: "box", Instance: "i1+", Proof: clean}
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	l.ok(configured("flap_limit", 1))
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	l.ok(configured("flap_window_ms", minuteMS))
	lost(l, model.ReasonRegistration)
	hello.Instance = "i1++"
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceUnhealthy, model.ReasonRegistration)
	l.advanceMS(minuteMS)
	l.ok(hello)
	l.wantDevice("box:gpu1", model.DeviceReady, model.ReasonNone)
	if _, err := l.m.View().RecoveryHistory("box:gpu7"); err == nil {
		t.Error("a device that is not there has a history")
	}
}

func TestAnOperatorsClearIsNoAutomaticReturn(t *testing.T) {
	l := box(t)
	lost(l, model.ReasonRegistration)
	l.ok(&command.DeviceClear{Device: "box:gpu1"})
	if h, _ := l.m.View().RecoveryHistory("box:gpu1"); h.Remaining != 3 {
		t.Errorf("history %+v", h)
	}
	if len(told(l, command.EventDeviceRecovered)) != 0 {
		t.Error("it is told as one")
	}
}
