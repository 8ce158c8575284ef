package probe

import (
	"context"
	"errors"
)

// What can be wrong with a look at the GPUs of a host.
var (
	// ErrAbsent: the host has no NVIDIA driver that answers. It may come later.
	ErrAbsent = errors.New("no NVIDIA driver")
	// ErrHung: a call has outlived its deadline, and is still under way. Until it
	// is over, what it was about is not asked again.
	ErrHung = errors.New("the driver does not answer")
	// ErrLost: the driver says that the GPU does not work any more.
	ErrLost = errors.New("the GPU is lost")
	// ErrUnknown: the host has no such GPU.
	ErrUnknown = errors.New("no such GPU")
)

// Library is a source of what is known of NVIDIA GPUs. All methods may be
// called concurrently, and return soon after ctx ends at the latest, also when
// the driver hangs. What else a source may know has interfaces of its own.
type Library interface {
	// GPUs returns every GPU of the host in the order of their PCI addresses. One
	// that does not answer, or is lost, is among them with its Err set and what was
	// seen of it last. The error wraps ErrAbsent, or ErrHung when the driver as a
	// whole does not answer.
	GPUs(ctx context.Context) ([]GPU, error)
}

// GPU is one NVIDIA GPU. Of what the driver cannot say the value is zero.
type GPU struct {
	Index int    // as the driver counts since it was loaded; not the same after a boot
	UUID  string // GPU-…; "" : it has not answered yet
	PCI   string // see CanonicalPCI
	// Facts are the labels of the GPU that do not change with its load, and
	// vram_free, which does.
	Facts Facts
	// MIG: it is split, and usable only as its Instances.
	MIG       bool
	Instances []Instance // in the driver's order; of a split GPU only
	Err       error      // wraps ErrHung or ErrLost; nil: it answers
}

// Instance is a part of a split GPU that is used like one.
type Instance struct {
	UUID  string // MIG-…
	Facts Facts
}

// Facts are what the driver says of a GPU, or of an instance, as labels: by key,
// without those that it does not know.
type Facts map[string]string

// Process is one that uses a GPU.
type Process struct {
	PID       int    // as the driver sees it: in the host's namespace
	UsedBytes uint64 // of the GPU's memory; 0: not told
	Command   string // "" : not to be seen from here
}
