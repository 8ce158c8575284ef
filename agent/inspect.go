package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"rcd/agent/probe"
)

// DeviceView is what a device of the host would be declared as.
type DeviceView struct {
	Name string `json:"name"`
	// GPU is ok, silent, gone or swapped; "" : it is no GPU, as far as is known.
	GPU    string `json:"gpu"`
	UUID   string `json:"uuid,omitempty"`
	PCI    string `json:"pci,omitempty"`
	Model  string `json:"model,omitempty"`
	VRAM   string `json:"vram,omitempty"` // <MiB>M
	Detail string `json:"detail,omitempty"`
}

// Inspect looks at the GPUs of a host once, and returns the devices that an
// agent with this configuration would declare, in its order. It changes nothing,
// and works beside an agent. notices are what an agent would log. The error
// wraps probe.ErrAbsent or probe.ErrHung when nothing could be seen; the devices
// are then those that are known without.
func Inspect(ctx context.Context, config Config, lib probe.Library) (devices []DeviceView, notices []string, err error) {
	var kept bindings
	if err := readRecord(filepath.Join(config.DataDir, bindingsFile), kindBindings, &kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	known := kept.Devices
	seen, lookErr := lib.GPUs(ctx)
	s := bind(config.Devices, config.Auto, known, seen)
	if lookErr != nil {
		s = sight{bindings: known}
	}
	for _, d := range declare(config.Devices, config.Auto, s.bindings) {
		v := DeviceView{Name: d.Name}
		if r, ok := s.bindings[d.Name]; ok && !d.Simulated {
			v.UUID, v.PCI, v.GPU = r.UUID, r.PCI, "silent"
		}
		if u, ok := s.found[d.Name]; ok {
			v.GPU, v.Model, v.VRAM = "ok", u.facts["model"], u.facts["vram"]
		}
		if u, ok := s.silent[d.Name]; ok {
			v.GPU, v.Detail = "silent", u.err.Error()
		}
		if why, ok := s.swapped[d.Name]; ok {
			v.GPU, v.Detail = "swapped", why
		}
		if why, ok := s.gone[d.Name]; ok {
			v.GPU, v.Detail = "gone", why
		}
		devices = append(devices, v)
	}
	return devices, s.notices, lookErr
}

// Forget takes a device's GPU off the record of a data directory: the next agent
// knows nothing of it. It fails while an agent runs there (ErrLocked), and when
// the device is not on the record.
func Forget(dataDir, device string) error {
	none := fmt.Errorf("no GPU is on record for device %q in %s; see rcd agent devices", device, dataDir)
	if _, err := os.Stat(filepath.Join(dataDir, bindingsFile)); errors.Is(err, os.ErrNotExist) {
		return none
	}
	unlock, err := lockDir(dataDir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer unlock()
	s, _, _, err := openState(dataDir)
	if err != nil {
		return err
	}
	left := map[string]binding{}
	for name, r := range s.boundDevices() {
		if name != device {
			left[name] = r
		}
	}
	if len(left) == len(s.boundDevices()) {
		return none
	}
	return s.keepBindings(left)
}
