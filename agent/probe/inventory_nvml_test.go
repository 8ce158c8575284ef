//go:build cgo && linux

package probe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func gpusOf(t *testing.T, n Library) []GPU {
	t.Helper()
	gpus, err := n.GPUs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

func TestEveryGPUIsSeenWithItsFacts(t *testing.T) {
	for model, want := range map[string]Facts{
		"dgxa100": {"model": "Mock NVIDIA A100-SXM4-40GB", "vram": "40960M", "vram_free": "39936M", "compute_cap": "8.0", "driver": "550.54.15", "cuda": "12.4"},
		"dgxh100": {"model": "NVIDIA H100 80GB HBM3", "vram": "81920M", "vram_free": "80896M", "compute_cap": "9.0", "driver": "550.54.15", "cuda": "12.4"},
		"dgxb200": {"model": "NVIDIA B200 180GB HBM3e", "vram": "184320M", "vram_free": "183296M", "compute_cap": "10.0", "driver": "560.28.03", "cuda": "12.6"},
	} {
		t.Run(model, func(t *testing.T) {
			s := fleet(model)
			n := looking(t, s)
			node := filepath.Join(n.sys, "bus/pci/devices/0000:03:00.0/numa_node")
			if err := os.MkdirAll(filepath.Dir(node), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(node, []byte("1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			gpus := gpusOf(t, n)
			if len(gpus) != 8 {
				t.Fatalf("%d GPUs", len(gpus))
			}
			for i, g := range gpus {
				facts := maps.Clone(want)
				maps.Copy(facts, Facts{"vendor": "nvidia", "uuid": fmt.Sprintf("GPU-%02x", i), "pci": fmt.Sprintf("0000:%02x:00.0", i), "mig": "off", "ecc": "on", "power_limit": "700"})
				if i == 3 {
					facts["numa"] = "1"
				}
				if !maps.Equal(g.Facts, facts) || g.UUID != facts["uuid"] || g.PCI != facts["pci"] || g.Index != i || g.Err != nil || g.MIG {
					t.Errorf("GPU %d: %+v\nwant %v", i, g, facts)
				}
			}
		})
	}
}

func TestWhatAGPUDoesNotSupportIsLeftOutAndNothingElse(t *testing.T) {
	s := fleet("dgxa100")
	d := card(s, 2)
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetPowerManagementLimitFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_UNKNOWN }
	g := gpusOf(t, looking(t, s))[2]
	if keys := slices.Sorted(maps.Keys(g.Facts)); g.Err != nil || strings.Join(keys, " ") != "compute_cap cuda driver model pci uuid vendor" {
		t.Errorf("%v, %v", keys, g.Err)
	}
}

func TestASplitGPUIsItsInstances(t *testing.T) {
	s := fleet("dgxh100")
	split(card(s, 1), "1g.10gb", 9856, 0, 3)
	gpus := gpusOf(t, looking(t, s))
	g := gpus[1]
	if !g.MIG || g.Facts["mig"] != "on" || len(g.Instances) != 2 || gpus[0].MIG {
		t.Fatalf("%+v", g)
	}
	part := g.Instances[1]
	want := Facts{"vendor": "nvidia", "model": "NVIDIA H100 80GB HBM3", "uuid": "MIG-GPU-01-3", "profile": "1g.10gb", "mig": "on", "vram": "9856M", "vram_free": "9856M",
		"compute_cap": "9.0", "driver": "550.54.15", "cuda": "12.4", "pci": "0000:01:00.0", "ecc": "on"}
	if part.UUID != want["uuid"] || !maps.Equal(part.Facts, want) {
		t.Errorf("%+v\nwant %v", part, want)
	}
}

func TestALostGPUIsSaidWithWhatWasKnownOfIt(t *testing.T) {
	s := fleet("dgxa100")
	n := looking(t, s)
	before := gpusOf(t, n)[5]
	card(s, 5).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	gpus := gpusOf(t, n)
	if g := gpus[5]; !errors.Is(g.Err, ErrLost) || g.UUID != before.UUID || !maps.Equal(g.Facts, before.Facts) {
		t.Errorf("%+v", g)
	}
	if gpus[4].Err != nil || gpus[6].Err != nil {
		t.Errorf("its neighbours: %v, %v", gpus[4].Err, gpus[6].Err)
	}
}

func TestAGPUOfSomebodyElseIsNone(t *testing.T) {
	s := fleet("dgxa100")
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 0 {
			return nil, nvml.ERROR_NO_PERMISSION
		}
		return s.Devices[i], nvml.SUCCESS
	}
	if gpus := gpusOf(t, looking(t, s)); len(gpus) != 7 || gpus[0].UUID != "GPU-01" {
		t.Errorf("%+v", gpus)
	}
}

func TestAHungGPUHoldsUpNoOtherAndKeepsItsLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet("dgxb200")
		n := looking(t, s)
		before := gpusOf(t, n)
		var calls atomic.Int32
		hang := make(chan struct{})
		d := card(s, 6)
		d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
			calls.Add(1)
			<-hang
			return d.MemoryInfo, nvml.SUCCESS
		}
		card(s, 7).MemoryInfo.Free = 0
		for range 10 {
			start := time.Now()
			gpus := gpusOf(t, n)
			if took := time.Since(start); took > patience {
				t.Fatalf("a look took %v", took)
			}
			if g := gpus[6]; !errors.Is(g.Err, ErrHung) || g.UUID != "GPU-06" || !maps.Equal(g.Facts, before[6].Facts) {
				t.Fatalf("the hung one: %+v", g)
			}
			if g := gpus[7]; g.Err != nil || g.Facts["vram_free"] != "0M" {
				t.Fatalf("its neighbour: %+v", g)
			}
			if _, err := onDevice(t.Context(), n, "GPU-06", func(nvml.Device) (int, error) { t.Error("asked beside the call that hangs"); return 0, nil }); !errors.Is(err, ErrHung) {
				t.Fatal(err)
			}
			if _, err := onDevice(t.Context(), n, "GPU-07", func(nvml.Device) (int, error) { return 0, nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if calls.Load() != 1 {
			t.Errorf("%d calls hang, want 1", calls.Load())
		}
		close(hang)
		synctest.Wait()
		if g := gpusOf(t, n)[6]; g.Err != nil {
			t.Errorf("after it came back: %v", g.Err)
		}
	})
}

func TestAHungDriverIsSaidAndOnlyOneThreadIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet("dgxa100")
		n := looking(t, s)
		var calls atomic.Int32
		hang := make(chan struct{})
		s.InitFunc = func() nvml.Return { calls.Add(1); <-hang; return nvml.SUCCESS }
		for range 5 {
			if _, err := n.GPUs(t.Context()); !errors.Is(err, ErrHung) {
				t.Fatal(err)
			}
		}
		close(hang)
		synctest.Wait()
		if gpus := gpusOf(t, n); len(gpus) != 8 || calls.Load() != 1 {
			t.Errorf("%d GPUs, %d calls", len(gpus), calls.Load())
		}
	})
}

func TestWithoutALibraryThereIsNoGPUUntilItComes(t *testing.T) {
	s := fleet("dgxa100")
	n := looking(t, s)
	for _, ret := range []nvml.Return{nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH} {
		s.InitFunc = func() nvml.Return { return ret }
		if _, err := n.GPUs(t.Context()); !errors.Is(err, ErrAbsent) {
			t.Errorf("%d: %v", ret, err)
		}
	}
	s.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	if gpus := gpusOf(t, n); len(gpus) != 8 {
		t.Errorf("%d GPUs", len(gpus))
	}
	// The module was unloaded behind our back and loaded again.
	inits := 0
	s.InitFunc = func() nvml.Return { inits++; return nvml.SUCCESS }
	count := s.DeviceGetCountFunc
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNINITIALIZED }
	if _, err := n.GPUs(t.Context()); !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
	s.DeviceGetCountFunc = count
	if gpus := gpusOf(t, n); len(gpus) != 8 || inits != 1 {
		t.Errorf("%d GPUs after %d more inits", len(gpus), inits)
	}
}

func TestWithoutALibraryNvidiaSMIIsAsked(t *testing.T) {
	s := fleet("dgxa100")
	s.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	n := looking(t, s)
	n.fallback = fakeSMI(t, "0, GPU-aa, 00000000:01:00.0, 470.82.01, 15109, 15106, 7.5, Enabled, 70.00, [N/A], Tesla T4")
	if gpus := gpusOf(t, n); len(gpus) != 1 || gpus[0].UUID != "GPU-aa" {
		t.Errorf("%+v", gpus)
	}
	n.fallback = &SMI{path: filepath.Join(t.TempDir(), "nvidia-smi")}
	if _, err := n.GPUs(t.Context()); !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "libnvidia-ml") {
		t.Error(err)
	}
}

func TestTheIndexIsTheDriversAndTheOrderThatOfPCI(t *testing.T) {
	s := fleet("dgxh100")
	permute(s, 3, 2, 1, 0)
	for i, g := range gpusOf(t, looking(t, s)) {
		if g.PCI != fmt.Sprintf("0000:%02x:00.0", i) || g.Index != 3-i {
			t.Errorf("%d: %s is index %d", i, g.PCI, g.Index)
		}
	}
}

func TestTheGPUsOfThisMachine(t *testing.T) {
	gpus, err := NVIDIA().GPUs(t.Context())
	if err != nil || len(gpus) == 0 {
		t.Skipf("this machine has no NVIDIA GPU: %v", err)
	}
	for _, g := range gpus {
		t.Logf("%+v", g)
		if g.Err != nil {
			t.Errorf("GPU %d: %v", g.Index, g.Err)
			continue
		}
		for _, key := range []string{"vendor", "model", "driver", "cuda", "uuid", "pci", "compute_cap"} {
			if g.Facts[key] == "" {
				t.Errorf("GPU %d: no %s in %v", g.Index, key, g.Facts)
			}
		}
	}
	byTool, err := NewSMI().GPUs(t.Context())
	if errors.Is(err, ErrAbsent) {
		t.Skip("there is no nvidia-smi to compare with")
	}
	if err != nil || len(byTool) != len(gpus) {
		t.Fatalf("nvidia-smi sees %d GPUs: %v", len(byTool), err)
	}
	for i, g := range gpus {
		other := byTool[i]
		for _, key := range []string{"uuid", "pci", "model", "driver", "vram", "compute_cap", "ecc", "mig", "power_limit"} {
			if g.Facts[key] != other.Facts[key] {
				t.Errorf("GPU %d: %s is %q, nvidia-smi says %q", g.Index, key, g.Facts[key], other.Facts[key])
			}
		}
	}
}
