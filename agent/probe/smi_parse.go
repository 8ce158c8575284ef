package probe

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lostAddress finds the GPUs that nvidia-smi cannot open, for which it prints a
// sentence in place of a row.
var lostAddress = regexp.MustCompile(`(?m)^Unable to determine the device handle for .*?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])`)

// parseSMI reads the rows that answer a question for fields. Rows that are none
// are left out.
func parseSMI(text string, fields []string) []GPU {
	var gpus []GPU
	for line := range strings.Lines(text) {
		values := strings.SplitN(strings.TrimSpace(line), ", ", len(fields))
		if len(values) != len(fields) {
			continue
		}
		row := make(map[string]string, len(fields))
		for i, field := range fields {
			if v := strings.TrimSpace(values[i]); told(v) {
				row[field] = v
			}
		}
		index, err := strconv.Atoi(row["index"])
		if err != nil || !strings.HasPrefix(row["uuid"], "GPU-") {
			continue
		}
		gpus = append(gpus, gpuOf(index, row))
	}
	for _, found := range lostAddress.FindAllStringSubmatch(text, -1) {
		address, _ := CanonicalPCI(found[1])
		gpus = append(gpus, GPU{Index: -1, PCI: address, Err: fmt.Errorf("open the GPU at %s: %w", address, ErrLost)})
	}
	return gpus
}

// told reports whether nvidia-smi has answered for a field: it writes
// [N/A], [Not Supported] or [Unknown Error] where it does not.
func told(v string) bool {
	return v != "" && v != "N/A" && !strings.HasPrefix(v, "[")
}

func gpuOf(index int, row map[string]string) GPU {
	g := GPU{Index: index, UUID: row["uuid"], Facts: Facts{factVendor: vendorNVIDIA}}
	for key, field := range map[string]string{factUUID: "uuid", factModel: "name", factDriver: "driver_version", factCompute: "compute_cap"} {
		if v, ok := row[field]; ok {
			g.Facts[key] = v
		}
	}
	if address, ok := CanonicalPCI(row["pci.bus_id"]); ok {
		g.PCI, g.Facts[factPCI] = address, address
	}
	for key, field := range map[string]string{factVRAM: "memory.total", factVRAMFree: "memory.free"} {
		if n, err := strconv.ParseUint(row[field], 10, 32); err == nil {
			g.Facts[key] = mebibytes(n << 20)
		}
	}
	if watts, err := strconv.ParseFloat(row["power.limit"], 64); err == nil && watts >= 0 {
		g.Facts[factPower] = strconv.Itoa(int(watts))
	}
	for key, field := range map[string]string{factECC: "ecc.mode.current", factMIG: "mig.mode.current"} {
		if v, ok := row[field]; ok {
			g.Facts[key] = onOff(v == "Enabled")
		}
	}
	g.MIG = row["mig.mode.current"] == "Enabled"
	return g
}

var (
	listedGPU      = regexp.MustCompile(`^GPU \d+: .*\(UUID: (GPU-[^)]+)\)`)
	listedInstance = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)`)
	cudaVersion    = regexp.MustCompile(`(?mi)^CUDA Version\s*:\s*(\d+\.\d+)`)
)

// parseInstances reads nvidia-smi -L: the instances of each GPU, by its UUID,
// with their profile.
func parseInstances(text string) map[string][]Instance {
	out, gpu := map[string][]Instance{}, ""
	for line := range strings.Lines(text) {
		if m := listedGPU.FindStringSubmatch(line); m != nil {
			gpu = m[1]
		}
		if m := listedInstance.FindStringSubmatch(line); m != nil && gpu != "" {
			out[gpu] = append(out[gpu], Instance{UUID: m[2], Facts: Facts{factProfile: m[1]}})
		}
	}
	return out
}

// parseCUDA reads nvidia-smi --version, "" when that does not tell.
func parseCUDA(text string) string {
	if m := cudaVersion.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// sortByPCI puts GPUs into the order of their addresses; those whose address is
// not known come last.
func sortByPCI(gpus []GPU) {
	slices.SortFunc(gpus, func(a, b GPU) int {
		if (a.PCI == "") != (b.PCI == "") {
			return strings.Compare(b.PCI, a.PCI)
		}
		// Domains have four digits, or more when they are larger.
		return cmp.Or(cmp.Compare(len(a.PCI), len(b.PCI)), strings.Compare(a.PCI, b.PCI), cmp.Compare(a.Index, b.Index))
	})
}
