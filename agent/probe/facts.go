package probe

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Keys of the facts, as labels of the device.
const (
	factVendor   = "vendor"
	factModel    = "model"
	factVRAM     = "vram"      // <MiB>M
	factVRAMFree = "vram_free" // <MiB>M
	factDriver   = "driver"
	factCUDA     = "cuda" // the highest that the driver takes
	factUUID     = "uuid"
	factPCI      = "pci"
	factNUMA     = "numa" // node
	factCompute  = "compute_cap"
	factMIG      = "mig" // on or off; missing where there is none
	factProfile  = "profile"
	factECC      = "ecc"         // on or off
	factPower    = "power_limit" // W
)

const vendorNVIDIA = "nvidia"

// onOff writes a mode.
func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// mebibytes writes an amount of memory, so that vram>=16G compares.
func mebibytes(n uint64) string { return fmt.Sprintf("%dM", n>>20) }

// ofInstance returns the facts of a split GPU that its instances share. The
// limit of power is of all of them together.
func (f Facts) ofInstance() Facts {
	out := maps.Clone(f)
	for _, key := range []string{factUUID, factVRAM, factVRAMFree, factPower} {
		delete(out, key)
	}
	return out
}

// profileOf returns the profile in the driver's name of an instance, such as
// 1g.10gb in "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "" if there is none.
func profileOf(name string) string {
	_, profile, _ := strings.Cut(name, " MIG ")
	return strings.TrimSpace(profile)
}

// sysfs is where the kernel shows devices.
const sysfs = "/sys"

// numaNode returns the NUMA node that a PCI device is near to, false where the
// kernel knows of none.
func numaNode(sys, pci string) (string, bool) {
	text, err := os.ReadFile(filepath.Join(sys, "bus/pci/devices", pci, "numa_node"))
	if err != nil {
		return "", false
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || node < 0 {
		return "", false
	}
	return strconv.Itoa(node), true
}
