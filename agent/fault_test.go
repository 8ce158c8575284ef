package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcd/agent/shim"
	"rcd/wire"
)

func TestAFenceThatCannotBeRebuiltTakesEveryDeviceOutUntilSomebodyKnows(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	a := newTestAgent(t, config)
	spec := a.spec(a.newJob(key{1, 10}, []string{"gpu0"}), wire.StartJob{Command: []string{"true"}}, []string{"RC_JOB_ID=j-1", "RC_DEVICE=box:gpu0"})
	for _, name := range []string{"1-10", "1-9"} {
		h, err := shim.Start(shim.Config{Dir: filepath.Join(config.DataDir, jobsDir, name), Exec: executable(t), Spec: spec, Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		<-h.Done()
		h.Close()
	}
	write := func(text string, elem ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(append([]string{config.DataDir}, elem...)...), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The end of the first is known to the cluster: its record is not missed.
	write("rubbish", fenceFile)
	write("rubbish", jobsDir, "1-9", "spec.cbor")
	write("", jobsDir, "1-9", ackedFile)
	if b := newTestAgent(t, config); len(b.Faults()) != 0 {
		t.Errorf("faults %v", b.Faults())
	}
	write("rubbish", fenceFile)
	write("rubbish", jobsDir, "1-10", "spec.cbor")
	b := newTestAgent(t, config)
	if f := b.Faults(); len(f) != 2 || f[0].Device != "gpu0" || f[1].Device != "gpu1" || !strings.Contains(f[0].Detail, "1-10") {
		t.Errorf("faults %v", f)
	}
	b.FaultAcked(wire.FaultAck{DeviceFault: b.Faults()[0], Code: "device_not_found"})
	b.FaultAcked(wire.FaultAck{DeviceFault: wire.DeviceFault{Device: "gpu1", Detail: "of another time"}})
	if len(b.Faults()) != 2 {
		t.Errorf("left %v: neither was an ack", b.Faults())
	}
	// A restart finds nothing wrong any more, and still says it.
	startAgent(t, config)
	eventually(t, "said to the leader", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.faults) >= 2 })
	eventually(t, "acked, on disk", func() bool { return len(newTestAgent(t, config).Faults()) == 0 })
}
