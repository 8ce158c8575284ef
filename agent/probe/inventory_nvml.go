//go:build cgo && linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// driverFacts are what all GPUs share.
type driverFacts struct {
	count int
	facts Facts
}

// GPUs implements Library. All GPUs are looked at at once, each in its own lane.
func (n *NVML) GPUs(ctx context.Context) ([]GPU, error) {
	driver, err := n.driver(ctx)
	if errors.Is(err, ErrAbsent) && n.fallback != nil {
		gpus, other := n.fallback.GPUs(ctx)
		if errors.Is(other, ErrAbsent) {
			return nil, err // which says more
		}
		return gpus, other
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen := make([]GPU, driver.count)
	var wait sync.WaitGroup
	for i := range seen {
		wait.Go(func() { seen[i] = n.gpu(ctx, i, driver.facts) })
	}
	wait.Wait()
	var gpus []GPU
	for _, g := range seen {
		if !errors.Is(g.Err, errNotSupported) { // as when it is given to somebody else
			gpus = append(gpus, g)
		}
	}
	sortByPCI(gpus)
	return gpus, nil
}

// driver says what is no single GPU's.
func (n *NVML) driver(ctx context.Context) (driverFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return in(ctx, &n.lanes, driverLane, func() (driverFacts, error) {
		if _, err := n.open(); err != nil {
			return driverFacts{}, err
		}
		d := driverFacts{facts: Facts{factVendor: vendorNVIDIA}}
		count, ret := n.api.DeviceGetCount()
		if ret != nvml.SUCCESS {
			return driverFacts{}, n.failed("count the GPUs", ret)
		}
		d.count = count
		if version, ret := n.api.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			d.facts[factDriver] = version
		}
		if version, ret := n.api.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
			d.facts[factCUDA] = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
		}
		return d, nil
	})
}

// gpu returns what a GPU says, or said last.
func (n *NVML) gpu(ctx context.Context, index int, shared Facts) GPU {
	g, err := in(ctx, &n.lanes, laneOf(index), func() (GPU, error) { return n.look(index, shared) })
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		g = n.last[index]
		g.Index, g.Err = index, err
		return g
	}
	n.last[index] = g
	for uuid, at := range n.lane {
		if at == index {
			delete(n.lane, uuid)
		}
	}
	n.lane[g.UUID] = index
	for _, part := range g.Instances {
		n.lane[part.UUID] = index
	}
	return g
}

// look asks a GPU for all of it. What it does not support is left out; without
// a UUID it is none.
func (n *NVML) look(index int, shared Facts) (GPU, error) {
	d, ret := n.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return GPU{}, n.failed(fmt.Sprintf("find GPU %d", index), ret)
	}
	uuid, ret := d.GetUUID()
	if ret != nvml.SUCCESS {
		return GPU{}, n.failed(fmt.Sprintf("ask GPU %d for its UUID", index), ret)
	}
	g := GPU{Index: index, UUID: uuid, Facts: Facts{factUUID: uuid}}
	for key, value := range shared {
		g.Facts[key] = value
	}
	ask := asking{facts: g.Facts}
	if info, ret := d.GetPciInfo(); ask.answered(ret) {
		g.PCI = pciOf(info)
		g.Facts[factPCI] = g.PCI
		if node, ok := numaNode(n.sys, g.PCI); ok {
			g.Facts[factNUMA] = node
		}
	}
	name, ret := d.GetName()
	ask.set(factModel, name, ret)
	major, minor, ret := d.GetCudaComputeCapability()
	ask.set(factCompute, fmt.Sprintf("%d.%d", major, minor), ret)
	memory, ret := d.GetMemoryInfo()
	ask.set(factVRAM, mebibytes(memory.Total), ret)
	ask.set(factVRAMFree, mebibytes(memory.Free), ret)
	ecc, _, ret := d.GetEccMode()
	ask.set(factECC, onOff(ecc == nvml.FEATURE_ENABLED), ret)
	milliwatts, ret := d.GetPowerManagementLimit()
	ask.set(factPower, strconv.FormatUint(uint64(milliwatts)/1000, 10), ret)
	mig, _, ret := d.GetMigMode()
	ask.set(factMIG, onOff(mig == nvml.DEVICE_MIG_ENABLE), ret)
	if ret == nvml.SUCCESS && mig == nvml.DEVICE_MIG_ENABLE {
		g.MIG = true
		g.Instances = ask.instances(d, g.Facts)
	}
	if ask.lost != nvml.SUCCESS {
		return GPU{}, n.failed("look at "+uuid, ask.lost)
	}
	return g, nil
}

// asking collects the answers of one GPU.
type asking struct {
	facts Facts
	lost  nvml.Return // the first answer that is no GPU's in order
}

// set keeps a fact if the call for it has succeeded.
func (a *asking) set(key, value string, ret nvml.Return) {
	if a.answered(ret) {
		a.facts[key] = value
	}
}

// answered reports whether a call has succeeded. Most that fail say only that
// this GPU has no such thing.
func (a *asking) answered(ret nvml.Return) bool {
	switch ret {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED:
		if a.lost == nvml.SUCCESS {
			a.lost = ret
		}
	}
	return ret == nvml.SUCCESS
}

// instances returns the parts of a split GPU.
func (a *asking) instances(d nvml.Device, whole Facts) []Instance {
	most, ret := d.GetMaxMigDeviceCount()
	if !a.answered(ret) {
		return nil
	}
	var out []Instance
	for i := range most {
		part, ret := d.GetMigDeviceHandleByIndex(i)
		if !a.answered(ret) {
			continue // no instance has this number now
		}
		uuid, ret := part.GetUUID()
		if !a.answered(ret) {
			continue
		}
		of := asking{facts: whole.ofInstance()}
		of.facts[factUUID] = uuid
		if name, ret := part.GetName(); ret == nvml.SUCCESS && profileOf(name) != "" {
			of.facts[factProfile] = profileOf(name)
		}
		memory, ret := part.GetMemoryInfo()
		of.set(factVRAM, mebibytes(memory.Total), ret)
		of.set(factVRAMFree, mebibytes(memory.Free), ret)
		a.answered(of.lost)
		out = append(out, Instance{UUID: uuid, Facts: of.facts})
	}
	return out
}

// pciOf returns the address of a GPU, from the text if there is one.
func pciOf(info nvml.PciInfo) string {
	text := make([]byte, 0, len(info.BusId))
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	if address, ok := CanonicalPCI(string(text)); ok {
		return address
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", info.Domain, info.Bus, info.Device)
}
