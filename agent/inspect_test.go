package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"rcd/agent/probe"
)

func viewed(devices []DeviceView) string {
	var parts []string
	for _, d := range devices {
		parts = append(parts, strings.TrimSpace(fmt.Sprint(d.Name, " ", d.GPU, " ", d.UUID)))
	}
	return strings.Join(parts, ", ")
}

func TestInspectShowsWhatAnAgentWouldDeclareAndChangesNothing(t *testing.T) {
	config := Config{Host: "box", DataDir: t.TempDir(), Auto: true, Devices: []Device{{Name: "oven"}, {Name: "gpu7", Simulated: true}}}
	lib := new(glass).show(rack("ab"), nil)
	look := func() string {
		t.Helper()
		devices, _, err := Inspect(t.Context(), config, lib)
		if err != nil {
			t.Fatal(err)
		}
		return viewed(devices)
	}
	for range 2 {
		if got, want := look(), "oven, gpu7, gpu0 ok GPU-a, gpu1 ok GPU-b"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		lib.show(rack("ba"), nil)
	}
	newGPUAgent(t, config, lib)
	lib.show(rack("b"), nil)
	if got, want := look(), "oven, gpu7, gpu0 gone GPU-a, gpu1 ok GPU-b"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	lib.show(nil, probe.ErrHung)
	devices, _, err := Inspect(t.Context(), config, lib)
	if got, want := viewed(devices), "oven, gpu7, gpu0 silent GPU-a, gpu1 silent GPU-b"; got != want || !errors.Is(err, probe.ErrHung) {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}

func TestAForgottenGPUIsNoDeviceAnyMore(t *testing.T) {
	config := Config{Host: "box", DataDir: t.TempDir(), Auto: true}
	lib := new(glass).show(rack("ab"), nil)
	newGPUAgent(t, config, lib)
	if err := Forget(config.DataDir, "gpu0"); err != nil {
		t.Fatal(err)
	}
	if err := Forget(config.DataDir, "gpu0"); err == nil {
		t.Error("forgotten twice")
	}
	if a := newGPUAgent(t, config, lib.show(rack("b"), nil)); len(a.config.Devices) != 1 || a.config.Devices[0].Name != "gpu1" {
		t.Errorf("%+v", a.config.Devices)
	}
	unlock, err := lockDir(config.DataDir, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := Forget(config.DataDir, "gpu1"); !errors.Is(err, ErrLocked) {
		t.Errorf("beside an agent: %v", err)
	}
}
