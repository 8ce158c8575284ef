//go:build !cgo || !linux

package probe

// NVIDIA returns what this build looks at GPUs with: nvidia-smi, because the
// driver's library cannot be had without cgo.
func NVIDIA() Library { return NewSMI() }
