//go:build cgo && linux

package probe

import (
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// fleets are the machines that the tests look at, each new on every call.
var fleets = map[string]func() *server.Server{"dgxa100": dgxa100.New, "dgxh100": dgxh100.New, "dgxb200": dgxb200.New}

// fleet returns a machine that also answers for what the mock does not know: it
// panics otherwise.
func fleet(model string) *server.Server {
	s := fleets[model]()
	for i := range s.Devices {
		extend(card(s, i))
	}
	return s
}

// card is the GPU in a slot: what the mock calls its index.
func card(s *server.Server, slot int) *server.Device { return s.Devices[slot].(*server.Device) }

func extend(d *server.Device) {
	d.UUID = fmt.Sprintf("GPU-%02x", d.Index)
	d.MemoryInfo.Free = d.MemoryInfo.Total - 1<<30
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		info := nvml.PciInfo{Bus: uint32(d.Index)}
		for i, c := range []byte("0000" + d.PciBusID) {
			info.BusId[i] = int8(c)
		}
		return info, nvml.SUCCESS
	}
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetPowerManagementLimitFunc = func() (uint32, nvml.Return) { return 700_000, nvml.SUCCESS }
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_NOT_FOUND }
}

// split turns MIG on, with instances at these numbers.
func split(d *server.Device, profile string, mib uint64, at ...int) {
	d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	parts := map[int]*mock.Device{}
	for _, n := range at {
		parts[n] = &mock.Device{
			GetUUIDFunc: func() (string, nvml.Return) { return fmt.Sprintf("MIG-%s-%d", d.UUID, n), nvml.SUCCESS },
			GetNameFunc: func() (string, nvml.Return) { return d.Config.Name + " MIG " + profile, nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: mib << 20, Free: mib << 20}, nvml.SUCCESS
			},
		}
	}
	d.GetMigDeviceHandleByIndexFunc = func(n int) (nvml.Device, nvml.Return) {
		if p, ok := parts[n]; ok {
			return p, nvml.SUCCESS
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
}

// permute exchanges the indices of GPUs, as a boot may; the slots stay.
func permute(s *server.Server, order ...int) {
	devices := make([]nvml.Device, len(order))
	for i, slot := range order {
		devices[i] = s.Devices[slot]
	}
	s.Devices = devices
}

func looking(t *testing.T, s *server.Server) *NVML {
	n := NewNVML(s)
	n.sys = t.TempDir()
	return n
}
