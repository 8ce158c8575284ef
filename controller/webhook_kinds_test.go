package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rcd/api"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// webhookTable is a lease table, and what webhooks tell of each entry.
type webhookTable struct {
	t       *testing.T
	machine *fsm.Machine
	index   uint64
	stamp   time.Time
	kinds   webhookKinds
}

func newWebhookTable(t *testing.T) *webhookTable {
	w := &webhookTable{
		t: t, machine: fsm.New(fsm.Options{PanicOnInvariant: true}), stamp: time.Unix(1_000_000, 0),
		kinds: webhookKinds{out: map[string]quarantined{}},
	}
	w.tell(0, &command.EpochBegin{Node: "c1", WallMS: w.stamp.UnixMilli()})
	w.register("i1")
	return w
}

func (w *webhookTable) register(instance string) []string {
	devices := []command.DeviceSpec{{Name: "gpu0"}, {Name: "gpu1"}}
	if instance != "i1" {
		for i := range devices {
			devices[i].Begun = 1000
		}
	}
	return w.tell(0, &command.AgentRegister{
		Host: "box", MachineID: "m", BootID: "b", Instance: instance, Devices: devices,
		Proof: command.Proof{Isolated: instance == "proof"},
	})
}

// tell applies one entry of commands, later than the last, and returns each
// webhook in a line.
func (w *webhookTable) tell(later time.Duration, bodies ...any) []string {
	w.t.Helper()
	var commands [][]byte
	for _, body := range bodies {
		raw, err := command.Encode(command.Request{}, body)
		if err != nil {
			w.t.Fatal(err)
		}
		commands = append(commands, raw)
	}
	w.index++
	w.stamp = w.stamp.Add(later)
	entry, err := command.EncodeEntry(1, w.stamp.UnixNano(), commands)
	if err != nil {
		w.t.Fatal(err)
	}
	results, events, err := w.machine.Apply(w.index, 1, entry)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range results {
		if r.Code != command.OK {
			w.t.Fatalf("%+v", r)
		}
	}
	var told []string
	for _, o := range w.kinds.of(w.machine.View(), events) {
		if o.ID.Compare(api.PlaceAfter(1, w.index)) > 0 || !o.ID.Above(api.PlaceAfter(1, w.index-1)) {
			w.t.Errorf("the webhook of entry %d has the ID %v", w.index, o.ID)
		}
		told = append(told, strings.Join([]string{o.Event, o.Device, o.Job, o.Reason}, "|"))
	}
	return told
}

func (w *webhookTable) want(what string, told []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(told, want) {
		w.t.Errorf("%s: told\n%q\nwant\n%q", what, told, want)
	}
}

// run places a job and starts it.
func (w *webhookTable) run(kind model.JobKind, device string) command.JobRef {
	w.t.Helper()
	spec := command.JobSpec{Kind: kind, Pinned: "box:" + device, Submitter: "ann", MaxRuntimeS: 3600}
	if kind != model.KindHold {
		spec.Command = []string{"true"}
	}
	w.want("a submit", w.tell(0, &command.JobEnqueue{Jobs: []command.JobSpec{spec}}))
	d := w.machine.View().Device("box:" + device)
	for _, l := range w.machine.View().LeasesOn("box") {
		if l.Number == d.Lease {
			ref := command.JobRef{Job: l.Jobs[0], Lease: l.Number}
			w.want("a start", w.tell(0, &command.JobStart{JobRef: ref, Host: "box", Instance: "i1"}))
			return ref
		}
	}
	w.t.Fatal("the job was not placed")
	return command.JobRef{}
}

func (w *webhookTable) finish(ref command.JobRef, end command.EndKind, reason string) []string {
	w.t.Helper()
	return w.tell(0, &command.JobFinish{JobRef: ref, Host: "box", Instance: "i1", End: end, Reason: reason})
}

func fault(device, detail string) *command.DeviceFault {
	return &command.DeviceFault{Device: "box:" + device, Instance: "i1", Detail: detail}
}

func TestEachWebhookOfTheSpecIsToldOnce(t *testing.T) {
	t.Run("watchdogs", func(t *testing.T) {
		w := newWebhookTable(t)
		for _, reason := range []string{"max_runtime exceeded (1h0m0s)", "idle: no output for 5m0s"} {
			job := w.run(model.KindJob, "gpu0")
			w.want(reason, w.finish(job, command.EndKilled, reason), "watchdog_trip|box:gpu0|"+model.JobID(job.Job)+"|"+reason)
		}
		w.want("the end of a hold", w.finish(w.run(model.KindHold, "gpu0"), command.EndKilled, "max_runtime exceeded (1h0m0s)"))
		w.want("an exit", w.finish(w.run(model.KindJob, "gpu0"), command.EndExited, "exit code 1"))
		w.want("a dead supervisor", w.finish(w.run(model.KindJob, "gpu0"), command.EndSupervisorDied, "supervisor_died"))
	})
	t.Run("faults", func(t *testing.T) {
		w := newWebhookTable(t)
		w.want("a fault", w.tell(0, fault("gpu0", "ECC")), "device_unhealthy|box:gpu0||ECC")
		w.want("the same", w.tell(0, fault("gpu0", "ECC")))
		w.want("one more", w.tell(0, fault("gpu0", "verify failed: 20-mem: bad")), "verify_failed|box:gpu0||verify failed: 20-mem: bad")
		w.want("a clear", w.tell(0, &command.DeviceClear{Device: "box:gpu0"}))
		w.want("a fault after it", w.tell(0, fault("gpu0", "ECC")), "device_unhealthy|box:gpu0||ECC")
		w.want("two in one entry", w.tell(0, fault("gpu1", "verify failed: x"), fault("gpu0", "XID 79")),
			"verify_failed|box:gpu1||verify failed: x", "device_unhealthy|box:gpu0||XID 79")
	})
	t.Run("a silent host", func(t *testing.T) {
		w := newWebhookTable(t)
		job := w.run(model.KindJob, "gpu0")
		hour := time.Hour.Milliseconds()
		silent := &command.Sweep{EpochMS: hour, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: hour, DetachedMS: hour}}}
		w.want("silence in the holdoff", w.tell(time.Second, silent))
		w.want("the write-off", w.tell(time.Hour, silent),
			"job_lost||"+model.JobID(job.Job)+"|"+fsm.HostSilent, "worker_lost|box:gpu0||"+fsm.HostSilent, "worker_lost|box:gpu1||"+fsm.HostSilent)
		w.want("the same sweep", w.tell(time.Second, silent))
		w.want("a return with proof", w.register("proof"), "device_recovered|box:gpu0||worker_lost", "device_recovered|box:gpu1||worker_lost")
	})
	t.Run("an unnamed lease", func(t *testing.T) {
		w := newWebhookTable(t)
		job := w.run(model.KindJob, "gpu0")
		hour := time.Hour.Milliseconds()
		unnamed := &command.Sweep{EpochMS: hour, Unnamed: []command.LeaseUnnamed{{Lease: job.Lease, UnnamedMS: hour}}}
		w.want("the lapse", w.tell(time.Hour, unnamed),
			"lease_expired|box:gpu0|"+model.JobID(job.Job)+"|"+fsm.LeaseUnnamed,
			"device_unhealthy|box:gpu0||lease "+model.LeaseID(job.Lease)+": "+fsm.LeaseUnnamed)
		w.want("the same sweep", w.tell(time.Second, unnamed))
	})
	t.Run("jobs lost at a registration", func(t *testing.T) {
		w := newWebhookTable(t)
		w.run(model.KindJob, "gpu0")
		w.want("another agent without the job", w.register("i2"))
	})
}

// TestAQuarantineFromBeforeASnapshotIsNotToldAgain: the words that a fault adds
// are told, those that were there are not.
func TestAQuarantineFromBeforeASnapshotIsNotToldAgain(t *testing.T) {
	w := newWebhookTable(t)
	w.tell(0, fault("gpu0", "ECC"))
	w.kinds = webhookKinds{}
	w.kinds.restored(w.machine.View())
	w.want("the same", w.tell(0, fault("gpu0", "ECC")))
	w.want("one more", w.tell(0, fault("gpu0", "XID 79")), "device_unhealthy|box:gpu0||XID 79")
}
