//go:build cgo && linux

package probe

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Use implements Health.
func (n *NVML) Use(ctx context.Context, uuid string) (Use, error) {
	return onDevice(ctx, n, uuid, func(d nvml.Device) (Use, error) {
		use, err := n.memory(d, uuid)
		if err != nil {
			return Use{}, err
		}
		use.Processes, err = n.processes(d, uuid)
		return use, err
	})
}

// memory leaves out what the driver keeps for itself, if the driver says how
// much that is (from r510 on). A GPU that shares the host's memory has none of
// its own to tell of.
func (n *NVML) memory(d nvml.Device, uuid string) (Use, error) {
	if m, ret := d.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
		return Use{TotalBytes: m.Total, UsedBytes: m.Used, Exact: true}, nil
	}
	m, ret := d.GetMemoryInfo()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return Use{}, nil
	}
	if ret != nvml.SUCCESS {
		return Use{}, n.failed("read memory of "+uuid, ret)
	}
	return Use{TotalBytes: m.Total, UsedBytes: m.Used}, nil
}

// processes returns those that compute, draw, or do either through MPS: each
// list leaves out the others. Only the first is there on every GPU.
func (n *NVML) processes(d nvml.Device, uuid string) ([]Process, error) {
	found := map[int]Process{}
	for i, list := range []func() ([]nvml.ProcessInfo, nvml.Return){
		d.GetComputeRunningProcesses, d.GetGraphicsRunningProcesses, d.GetMPSComputeRunningProcesses,
	} {
		infos, ret := list()
		if ret != nvml.SUCCESS {
			err := n.failed("list processes on "+uuid, ret)
			if i > 0 && errors.Is(err, errNotSupported) {
				continue
			}
			return nil, err
		}
		for _, info := range infos {
			p := Process{PID: int(info.Pid), UsedBytes: found[int(info.Pid)].UsedBytes}
			if info.UsedGpuMemory != math.MaxUint64 { // "not available"
				p.UsedBytes = max(p.UsedBytes, info.UsedGpuMemory)
			}
			found[p.PID] = p
		}
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	for i := range all {
		all[i].Command = commandOf(all[i].PID)
	}
	return all, nil
}
