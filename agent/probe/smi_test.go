package probe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// fakeSMI prints lines in answer to every question for GPUs.
func fakeSMI(t *testing.T, lines ...string) *SMI {
	return scriptSMI(t, "case $1 in\n--query-gpu=*) cat <<'END'\n"+strings.Join(lines, "\n")+"\nEND\n;; --version) echo 'CUDA Version        : 12.4';; esac")
}

func scriptSMI(t *testing.T, script string) *SMI {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &SMI{path: path, sys: t.TempDir()}
}

func seen(t *testing.T, s *SMI) []GPU {
	t.Helper()
	gpus, err := s.GPUs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

func TestNvidiaSMIIsReadWithItsGapsAndCommas(t *testing.T) {
	gpus := seen(t, fakeSMI(t,
		"1, GPU-bb, 00000000:AF:00.0, 550.54.15, 81559, 81007, 9.0, Enabled, 700.00, Disabled, NVIDIA H100 80GB HBM3",
		"0, GPU-aa, 00000000:3B:00.0, 550.54.15, 24576, [Unknown Error], 8.6, [N/A], [Not Supported], [N/A], NVIDIA GeForce RTX 3090, special edition",
		"a line of something else",
	))
	if len(gpus) != 2 {
		t.Fatalf("%+v", gpus)
	}
	for i, want := range []Facts{
		{"vendor": "nvidia", "uuid": "GPU-aa", "pci": "0000:3b:00.0", "driver": "550.54.15", "cuda": "12.4", "vram": "24576M", "compute_cap": "8.6", "model": "NVIDIA GeForce RTX 3090, special edition"},
		{"vendor": "nvidia", "uuid": "GPU-bb", "pci": "0000:af:00.0", "driver": "550.54.15", "cuda": "12.4", "vram": "81559M", "vram_free": "81007M", "compute_cap": "9.0", "ecc": "on", "power_limit": "700", "mig": "off", "model": "NVIDIA H100 80GB HBM3"},
	} {
		if g := gpus[i]; !maps.Equal(g.Facts, want) || g.Index != i || g.UUID != want["uuid"] || g.PCI != want["pci"] || g.Err != nil {
			t.Errorf("%+v\nwant %v", g, want)
		}
	}
}

func TestAnOldNvidiaSMIIsAskedForLess(t *testing.T) {
	gpus := seen(t, scriptSMI(t, `case $1 in
*compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;;
--query-gpu=*) echo '0, GPU-aa, 00000000:00:1E.0, 418.87.00, 15079, 15068, Tesla T4';;
*) echo 'Invalid combination of input arguments.'; exit 1;;
esac`))
	if len(gpus) != 1 || gpus[0].Facts["model"] != "Tesla T4" || gpus[0].Facts["vram"] != "15079M" {
		t.Errorf("%+v", gpus)
	}
}

func TestTheInstancesOfASplitGPUAreListed(t *testing.T) {
	gpus := seen(t, scriptSMI(t, `case $1 in
--query-gpu=*) echo '0, GPU-aa, 00000000:07:00.0, 525.60.13, 40960, 40950, 8.0, Enabled, 400.00, Enabled, NVIDIA A100-SXM4-40GB'
echo '1, GPU-bb, 00000000:0F:00.0, 525.60.13, 40960, 40950, 8.0, Enabled, 400.00, Disabled, NVIDIA A100-SXM4-40GB';;
-L) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)'
echo '  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)'
echo '  MIG 1c.3g.20gb  Device  1: (UUID: MIG-28a2fe1d-fc8a-5d3a-a0d5-4c0d1f3c3c33)'
echo 'GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)';;
*) exit 1;;
esac`))
	parts := gpus[0].Instances
	if !gpus[0].MIG || gpus[1].MIG || len(parts) != 2 || len(gpus[1].Instances) != 0 {
		t.Fatalf("%+v", gpus)
	}
	want := Facts{"vendor": "nvidia", "uuid": "MIG-28a2fe1d-fc8a-5d3a-a0d5-4c0d1f3c3c33", "pci": "0000:07:00.0", "driver": "525.60.13", "compute_cap": "8.0", "ecc": "on", "mig": "on",
		"profile": "1c.3g.20gb", "model": "NVIDIA A100-SXM4-40GB"}
	if !maps.Equal(parts[1].Facts, want) || parts[1].UUID != want["uuid"] {
		t.Errorf("%+v\nwant %v", parts[1], want)
	}
}

func TestNvidiaSMINamesALostGPUAndSeesTheOthers(t *testing.T) {
	gpus := seen(t, scriptSMI(t, `case $1 in
--query-gpu=*) echo '0, GPU-aa, 00000000:07:00.0, 525.60.13, 40960, 40950, 8.0, Enabled, 400.00, Disabled, NVIDIA A100-SXM4-40GB'
echo 'Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU'; exit 15;;
*) exit 1;;
esac`))
	if len(gpus) != 2 || gpus[0].PCI != "0000:02:00.0" || !errors.Is(gpus[0].Err, ErrLost) || gpus[1].Err != nil {
		t.Errorf("%+v", gpus)
	}
}

func TestWhatNvidiaSMICannotSayIsNoGPU(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		want         error
	}{
		{"no driver", "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"; exit 9", ErrAbsent},
		{"no GPU", "echo 'No devices were found'; exit 6", nil},
	} {
		gpus, err := scriptSMI(t, tt.script).GPUs(t.Context())
		if !errors.Is(err, tt.want) || len(gpus) != 0 {
			t.Errorf("%s: %v, %v", tt.name, gpus, err)
		}
	}
	if _, err := (&SMI{path: "no-such-nvidia-smi"}).GPUs(t.Context()); !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
	if _, err := scriptSMI(t, "echo rubbish; exit 3").GPUs(t.Context()); err == nil || errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "rubbish") {
		t.Error(err)
	}
}

func TestOneCallAtATimeHoldsALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		hang := make(chan struct{})
		ask := func(lane string) error {
			_, err := in(t.Context(), &l, lane, func() (int, error) { return 1, nil })
			return err
		}
		go in(t.Context(), &l, "a", func() (int, error) { <-hang; return 1, nil })
		synctest.Wait()
		if err := ask("a"); !errors.Is(err, ErrHung) || !strings.Contains(err.Error(), fmt.Sprint(patience)) {
			t.Error(err)
		}
		if err := ask("b"); err != nil {
			t.Error(err)
		}
		close(hang)
		synctest.Wait()
		if err := ask("a"); err != nil {
			t.Error(err)
		}
	})
}

func TestPCIAddressesAreComparedInOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "0000:3b:00.0": "0000:3b:00.0", "3B:00.0": "0000:3b:00.0", "3b:0": "0000:3b:00.0", "10001:00:1f.7": "10001:00:1f.7",
		"": "", "3b": "", "0000:3b:00.8": "", "0000:100:00.0": "", "0000:3b:20.0": "", "a:b:c:d": "", "GPU-1": "",
	} {
		if got, ok := CanonicalPCI(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, ok, want)
		}
	}
}
