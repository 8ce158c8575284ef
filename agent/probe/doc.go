// Package probe looks at a host's devices: which there are, what they are like,
// what runs on them, what they complain of.
//
// It must never decide what follows from that (package agent does), change a
// device, or let one look that hangs hold up another: a driver that is wedged
// keeps the thread that asked it, and nothing else.
//
// NVIDIA GPUs are seen through the driver's library (nvml.go), or through
// nvidia-smi where that cannot be had (smi.go). Start with gpu.go; their errors and what
// those mean are in events.go and xid.go, what is on a GPU in processes.go.
//
// Executables of an operator that print labels are in dropins.go: in which order
// they run, what of their output counts, and what becomes of the word of one
// that fails. How a program is run and ended is the caller's, a floor above.
package probe
