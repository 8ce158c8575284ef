package probe

import (
	"cmp"
	"fmt"
	"slices"
)

// Meaning says what an error that a GPU reports is evidence of.
type Meaning string

// The meanings, as they are written in a host's configuration.
const (
	MeansDevice Meaning = "device" // the GPU must be looked at before it runs another job
	MeansJob    Meaning = "job"    // the job that was on it: the GPU goes on as before
	MeansIgnore Meaning = "ignore" // neither
)

// XID is an NVIDIA error number with what it is taken for.
type XID struct {
	Number  uint64
	Meaning Meaning
	Text    string // a few words for people, no full stop
	// Known is false for a number that is not in the table.
	Known bool
}

// String returns the error as it stands in the reason of a job or a fault:
// "XID 79 (the GPU has fallen off the bus)".
func (x XID) String() string { return fmt.Sprintf("XID %d (%s)", x.Number, x.Text) }

// unknownText stands for numbers that are not in the table.
const unknownText = "not in the table of this release; see NVIDIA's Xid catalog"

// LookUp returns what a number means on this site: the site's word, then the
// table's. A number that neither knows means the job: it stands in the job's
// reason, where somebody reads it, and takes no device away, because most of
// the numbers are errors of programs and a new driver's first new number must
// not empty a fleet.
func LookUp(number uint64, site map[uint64]Meaning) XID {
	x := XID{Number: number, Meaning: MeansJob, Text: unknownText}
	if at, ok := slices.BinarySearchFunc(xids, number, func(x XID, n uint64) int { return cmp.Compare(x.Number, n) }); ok {
		x = xids[at]
	}
	if m, ok := site[number]; ok {
		x.Meaning = m
	}
	return x
}

// Table returns every number that is known, sorted.
func Table() []XID { return slices.Clone(xids) }

// Numbers that are told by other means than an event with a number in it, and
// mean what the number means.
const (
	XIDDoubleBit    = 48  // an uncorrectable memory error, as the ECC counter shows it
	XIDRemapped     = 63  // a remapped row or retired page waits for a reset
	XIDRemapFailed  = 64  // a row could not be remapped
	XIDOffTheBus    = 79  // NVML says that the GPU is lost
	XIDRecoveryWish = 154 // the driver asks for a reset or a reboot
)

// xids is sorted by number. The facts are from NVIDIA's "Xid Errors" (r555 and
// later) and its Xid catalog, https://docs.nvidia.com/deploy/xid-errors/: what
// it answers by restarting the application means the job, what it answers by a
// reset, a reboot or a look at the hardware means the device, and what it says
// to leave alone is ignored, unless a program dies of it. Where the
// catalog leaves it to the circumstances, the line says why it is where it is.
var xids = func() []XID {
	var all []XID
	for meaning, texts := range map[Meaning]map[uint64]string{MeansDevice: deviceXIDs, MeansJob: jobXIDs, MeansIgnore: ignoredXIDs} {
		for number, text := range texts {
			all = append(all, XID{Number: number, Meaning: meaning, Text: text, Known: true})
		}
	}
	for _, engine := range engineXIDs {
		for number := engine.first; number <= engine.last; number++ {
			all = append(all, XID{Number: number, Meaning: MeansJob, Text: engine.text, Known: true})
		}
	}
	slices.SortFunc(all, func(a, b XID) int { return cmp.Compare(a.Number, b.Number) })
	return all
}()

var deviceXIDs = map[uint64]string{
	46:              "the GPU stopped processing",
	XIDDoubleBit:    "uncorrectable memory error",
	54:              "the auxiliary power of the board is not connected",
	61:              "an internal controller stopped at a breakpoint",
	62:              "an internal controller halted",
	XIDRemapFailed:  "a faulty row or page of memory could not be retired",
	74:              "NVLink error", // the link's other end is on another job's GPU
	XIDOffTheBus:    "the GPU has fallen off the bus",
	95:              "uncontained memory error",
	109:             "a context switch timed out",
	110:             "security fault",
	119:             "the GPU's system processor (GSP) did not answer",
	120:             "error of the GPU's system processor (GSP)",
	136:             "a link could not be trained",
	140:             "unrecovered memory error",
	143:             "the GPU could not be initialized",
	151:             "key rotation failed",
	XIDRecoveryWish: "the driver asks for a reset", // State.Recovery: the event itself may also take it back
	155:             "NVLink error that software has declared",
	156:             "a part of the GPU was retired and needs a reset",
	158:             "fatal timeout of the GPU",
	167:             "fatal timeout on PCIe",
	168:             "the GPU has less memory than it should",
	169:             "a security controller halted",
	171:             "uncorrectable error of DRAM",
	172:             "uncorrectable error of SRAM",
}

var jobXIDs = map[uint64]string{
	8:   "the GPU stopped processing a channel",
	11:  "invalid or corrupted command stream",
	13:  "graphics engine exception",
	25:  "invalid or illegal command stream",
	31:  "GPU memory page fault",
	32:  "invalid or corrupted command stream",
	37:  "firmware method that does not exist",
	38:  "watchdog of the context switch firmware",
	43:  "the GPU stopped processing",
	44:  "graphics engine fault during a context switch",
	45:  "cleanup of a channel after an earlier error",
	60:  "video processor exception",
	66:  "illegal access by the driver",
	67:  "illegal access by the driver",
	68:  "video decoder exception",
	69:  "graphics engine class error",
	78:  "a virtual GPU could not be started",
	80:  "corrupted data was sent to the GPU",
	82:  "image decoder error",
	86:  "optical flow exception",
	94:  "contained memory error", // the driver ends the program; 48 or 64 speak for the GPU
	137: "NVLink access that the other end refused",
	139: "optical flow exception",
	141: "CUDA fast path error",
	142: "video encoder error",
	// The catalog decides these by sub-codes that NVML does not pass on, and most
	// are harmless. Where one is not, the driver asks for a reset as well
	// (XIDRecoveryWish), which is a fault of the device.
	144: "NVLink error",
	145: "NVLink error",
	146: "NVLink error",
	147: "NVLink error",
	148: "NVLink error",
	149: "NVLink error",
	150: "NVLink error",
	159: "coherent interface error",
	160: "a channel was retired",
	161: "a channel could not be retired",
}

// engineXIDs are the numbers of engines of which a GPU has many.
var engineXIDs = []struct {
	first, last uint64
	text        string
}{
	{39, 41, "copy engine exception"}, {70, 72, "copy engine exception"}, {75, 77, "copy engine exception"}, {85, 85, "copy engine exception"},
	{126, 135, "copy engine exception"},
	{83, 84, "video decoder error"}, {88, 89, "video decoder error"}, {96, 98, "video decoder error"},
	{99, 105, "image decoder error"},
}

var ignoredXIDs = map[uint64]string{
	14:          "unused",
	XIDRemapped: "a faulty row or page of memory was retired", // the label remap_pending says so until the next reset
	92:          "high rate of corrected memory errors",
	93:          "wear limit of the board's storage",
	106:         "test message",
	107:         "test message",
	108:         "unused",
	121:         "corrected error of the link to the CPU",
	152:         "accelerator address error",
	153:         "accelerator timeout",
	157:         "a part of the GPU could not be retired",
	162:         "power smoothing is on again",
	163:         "power smoothing is off",
	164:         "power smoothing nears the end of its life",
	165:         "power smoothing is at the end of its life",
}
