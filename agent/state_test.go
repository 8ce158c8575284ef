package agent

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcd/agent/probe"
	"rcd/agent/shim"
	"rcd/wire"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing")

func TestStateFilesKeepTheirFormat(t *testing.T) {
	code := int32(143)
	for _, tt := range []struct {
		name string
		kind uint16
		v    any
	}{
		{"fence", kindFence, fence{Begun: map[string]uint64{"gpu0": 41, "gpu1": 7}}},
		{"fence-inside", kindFence, fence{Begun: map[string]uint64{"gpu0": 41, "gpu1": 7}, Inside: map[string]begunInside{"gpu0": {Lease: 41, Floor: 50, Jobs: []uint64{52, 300}}}}},
		{"cluster", kindCluster, cluster{ClusterID: "k", Generation: 2, Term: 5, Index: 900, Controllers: []wire.Controller{{ID: "c1", Addr: "a:1"}}}},
		{"drain", kindDrain, drainRecord{SinceMS: 1790000000123, Reason: "new fans", Closed: true, Devices: map[string]uint8{"gpu0": drainSettled, "gpu1": drainUnsettled}, Rest: true}},
		{"outcome", kindOutcome, wire.Outcome{Job: 7, Lease: 41, End: 1, ExitCode: &code, Reason: "cancelled", Origin: 4, OutputKnown: true}},
		{"bindings", kindBindings, bindings{Devices: map[string]binding{
			"gpu0": {UUID: "GPU-1", PCI: "0000:3b:00.0", Auto: true}, "big": {UUID: "GPU-2", Asked: "0000:af:00.0"}, "gpu1-mig0": {UUID: "MIG-1", Parent: "GPU-3"}}}},
		{"probes", kindProbes, probesRecord{Words: map[string]probe.Word{"10-site": {"rack": "r7", "gpu0.fan": "3"}, "20-none": {}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			if err := writeRecord(path, tt.kind, tt.v); err != nil {
				t.Fatal(err)
			}
			got := hex.EncodeToString([]byte(read(t, path))) + "\n"
			golden := filepath.Join("testdata", tt.name+".hex")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := read(t, golden); got != want {
				t.Errorf("format changed; an upgraded agent could not read it\ngot  %swant %s", got, want)
			}
		})
	}
}

func TestStateSurvivesAndIsReadBack(t *testing.T) {
	dir := t.TempDir()
	s, _, _, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.begin([]string{"a", "b"}, claim{lease: 5}); v != fenceOpen || err != nil {
		t.Fatal(v, err)
	}
	if err := s.update(true, func(c *cluster) { c.Term = 9 }); err != nil {
		t.Fatal(err)
	}
	back, lost, problems, err := openState(dir)
	if err != nil || lost || len(problems) != 0 {
		t.Fatal(lost, problems, err)
	}
	for _, tt := range []struct {
		devices []string
		lease   uint64
		want    fenceVerdict
	}{
		{[]string{"a"}, 6, fenceOpen}, {[]string{"a"}, 5, fenceBegun}, {[]string{"a"}, 4, fenceStale},
		{[]string{"a", "c"}, 5, fenceBegun}, {[]string{"c", "a"}, 4, fenceStale}, {[]string{"c"}, 1, fenceOpen},
	} {
		if got := back.look(tt.devices, claim{lease: tt.lease}); got != tt.want {
			t.Errorf("lease %d on %v: %v, want %v", tt.lease, tt.devices, got, tt.want)
		}
	}
	if v, _ := back.begin([]string{"c", "a"}, claim{lease: 5}); v != fenceBegun || back.begun("c") != 0 {
		t.Error("a refused lease moved the fence")
	}
	if back.facts().Term != 9 {
		t.Errorf("facts %+v", back.facts())
	}
}

func TestADamagedRecordIsNeverBelieved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := writeRecord(path, kindFence, fence{Begun: map[string]uint64{"gpu0": 41}}); err != nil {
		t.Fatal(err)
	}
	whole := []byte(read(t, path))
	for i := range whole {
		for _, damaged := range [][]byte{whole[:i], flip(whole, i)} {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			var f fence
			if err := readRecord(path, kindFence, &f); !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), path) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
}

func flip(b []byte, i int) []byte {
	out := bytes.Clone(b)
	out[i] ^= 0x20
	return out
}

func TestALostFenceIsRebuiltFromTheJobs(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	a := newTestAgent(t, config)
	dir := filepath.Join(config.DataDir, jobsDir, "1-10")
	spec := a.spec(a.newJob(key{1, 10}, []string{"gpu0"}), wire.StartJob{Command: []string{"true"}}, []string{"RC_JOB_ID=j-1", "RC_DEVICE=box:gpu0,box:gpu1"})
	h, err := shim.Start(shim.Config{Dir: dir, Exec: executable(t), Spec: spec, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	<-h.Done()
	h.Close()
	if err := os.WriteFile(filepath.Join(config.DataDir, fenceFile), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newTestAgent(t, config)
	if b.state.begun("gpu0") != 10 || b.state.begun("gpu1") != 10 {
		t.Errorf("fence at %d and %d, want 10", b.state.begun("gpu0"), b.state.begun("gpu1"))
	}
	if _, err := os.Stat(filepath.Join(config.DataDir, fenceFile+".corrupt")); err != nil {
		t.Errorf("the damaged file was not set aside: %v", err)
	}
}
