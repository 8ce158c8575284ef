package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcd/agent/probe"
	"rcd/fsm/command"
	"rcd/wire"
)

// The first start of a host whose driver takes its time: gpu0 is the GPU that the
// configuration names, and never the one that the driver counts as 0.
func TestAJobWaitsForTheGPUThatTheConfigurationNames(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.Devices = devicesNamed("gpu0@GPU-b", "gpu1@"+slot('a'))
	lib := new(glass).show(nil, errors.New("no answer yet"))
	a := newGPUAgent(t, config, lib)
	note := filepath.Join(config.DataDir, "seen")
	a.Order(t.Context(), order(wire.OrderStart, 1, 1, sh("echo $CUDA_VISIBLE_DEVICES >"+note)...))
	a.lookAtGPUs(t)
	if phase, o := a.phase(key{1, 1}); phase != wire.PhaseStarting || o != nil {
		t.Fatalf("it did not wait: %v, %+v", phase, o)
	}
	lib.show(rack("ab"), nil)
	a.lookAtGPUs(t)
	a.awaitOutcome(t, key{1, 1})
	if got := strings.TrimSpace(read(t, note)); got != "GPU-b" {
		t.Errorf("the job saw %q", got)
	}
}

func TestANamedGPUWhoseDriverNeverComesIsOutOfThePool(t *testing.T) {
	config := Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0@GPU-b", "gpu1")}
	a := newGPUAgent(t, config, new(glass).show(nil, probe.ErrAbsent))
	a.lookAtGPUs(t)
	a.gpus.mu.Lock()
	for name, since := range a.gpus.silent {
		a.gpus.silent[name] = since.Add(-absentFor)
	}
	a.gpus.mu.Unlock()
	a.lookAtGPUs(t)
	if got := a.faulted(); len(got) != 1 || !strings.Contains(got["gpu0"], "the GPU of gpu0, which is not known yet, has not answered") {
		t.Errorf("faults %v", got)
	}
}

// A device whose name counts another device's GPU must not put a second job on
// it.
func TestAJobIsNotPutOnTheGPUOfAnotherDevice(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.Devices = devicesNamed("gpu0", "big@GPU-a")
	a := newGPUAgent(t, config, new(glass).show(rack("ab"), nil))
	a.lookAtGPUs(t)
	a.Order(t.Context(), order(wire.OrderStart, 1, 1, "true"))
	o := a.awaitOutcome(t, key{1, 1})
	if o.End != uint8(command.EndStartFailed) || !strings.Contains(o.Reason, "GPU 0 is GPU-a, which is device big already") {
		t.Errorf("outcome %+v", o)
	}
	if got := a.faulted(); len(got) != 1 || got["gpu0"] == "" {
		t.Errorf("faults %v", got)
	}
}

// The driver's numbers may be others after each boot, so where one device of a
// job is known to be a GPU no number counts.
func TestAJobOnAGPUAndAnotherDeviceSeesThatGPUAlone(t *testing.T) {
	for _, other := range []string{"board9", "oven"} { // with a number in its name, and without
		config := Config{Host: "box", DataDir: t.TempDir(), Devices: devicesNamed("gpu0", other)}
		newGPUAgent(t, config, new(glass).show(rack("a"), nil)).lookAtGPUs(t)
		a := newGPUAgent(t, config, new(glass).show(rack("ba"), nil))
		a.lookAtGPUs(t)
		if got := a.gpus.cuda([]string{other, "gpu0"})["CUDA_VISIBLE_DEVICES"]; got != "GPU-a" {
			t.Errorf("with %s it sees %q", other, got)
		}
	}
}

// Neither a record that cannot be read nor a driver that is away keeps an agent
// from the jobs that run.
func TestALostRecordOfGPUsWithoutADriverLeavesTheHostItsAgent(t *testing.T) {
	config := testConfig(dataDir(t), newControl(t))
	config.Devices, config.Auto = nil, true
	a := newGPUAgent(t, config, new(glass).show(rack("ab"), nil))
	a.lookAtGPUs(t)
	o := order(wire.OrderStart, 1, 1, "sleep", "600")
	o.Start.Devices = []string{"box:gpu1"}
	a.Order(t.Context(), o)
	eventually(t, "running", func() bool { p, _ := a.phase(key{1, 1}); return p == wire.PhaseRunning })
	if err := os.WriteFile(filepath.Join(config.DataDir, bindingsFile), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	lib := new(glass).show(nil, probe.ErrAbsent)
	b := newGPUAgent(t, config, lib)
	if err := b.adopt(); err != nil {
		t.Fatal(err)
	}
	if len(b.config.Devices) != 1 || b.config.Devices[0].Name != "gpu1" || len(b.Jobs()) != 1 {
		t.Errorf("devices %+v, jobs %v", b.config.Devices, b.Jobs())
	}
	if f := b.faulted(); len(f) != 1 || !strings.Contains(f["gpu1"], "bindings.cbor.corrupt") || !strings.Contains(f["gpu1"], "no GPU answers") {
		t.Errorf("faults %v", f)
	}
	// Once the driver is back a person has to look once more.
	ack(b)
	lib.show(rack("ab"), nil)
	b.lookAtGPUs(t)
	if f := b.faulted(); !strings.Contains(f["gpu1"], "it is GPU-b now") {
		t.Errorf("faults %v", f)
	}
}

// The order was there before the look that finds the other card, and before
// anybody could know.
func TestAJobThatWaitedIsNotPutOnACardThatWasSwapped(t *testing.T) {
	config := testConfig(dataDir(t), newControl(t))
	newGPUAgent(t, config, new(glass).show(rack("ab"), nil)).lookAtGPUs(t)
	a := newGPUAgent(t, config, new(glass).show([]probe.GPU{{UUID: "GPU-x", PCI: slot('a')}, rack("ab")[1]}, nil))
	a.Order(t.Context(), order(wire.OrderStart, 1, 1, "true"))
	a.mu.Lock() // it cannot go on before the leader has taken the fault
	labels := make(chan struct{})
	go func() { defer close(labels); _, _ = a.gpus.look(t.Context()) }()
	<-labels
	ack(a)
	a.mu.Unlock()
	o := a.awaitOutcome(t, key{1, 1})
	if o.End != uint8(command.EndStartFailed) || !strings.Contains(o.Reason, "gpu0 is another GPU than before") || o.Survivors == "" {
		t.Errorf("outcome %+v", o)
	}
	a.Acked(wire.OutcomeAck{Job: 1, Lease: 1})
	if o := a.runJob(t, 2, "true"); o.End != uint8(command.EndExited) {
		t.Errorf("once a person has seen it: %+v", o)
	}
}

func TestAFaultThatNobodyHasTakenKeepsJobsOff(t *testing.T) {
	a := newTestAgent(t, testConfig(dataDir(t), newControl(t)))
	if err := a.fault([]string{"gpu0"}, "XID 79"); err != nil {
		t.Fatal(err)
	}
	if o := a.runJob(t, 1, "true"); o.End != uint8(command.EndStartFailed) || o.Reason != "start: the device is out of the pool: gpu0: XID 79" || o.Survivors != "XID 79" {
		t.Errorf("outcome %+v", o)
	}
	ack(a)
	a.Acked(wire.OutcomeAck{Job: 1, Lease: 1})
	if o := a.runJob(t, 2, "true"); o.End != uint8(command.EndExited) {
		t.Errorf("once an operator has returned the device: %+v", o)
	}
}
