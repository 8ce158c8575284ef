//go:build cgo && linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// NVML is what the driver's library says. All methods may be called
// concurrently.
//
// It keeps the driver open from the first look that succeeds: without that,
// every look would bring each idle GPU up and down again.
type NVML struct {
	api      nvml.Interface
	fallback Library // asked while there is no library; may be nil
	sys      string  // where sysfs is
	lanes    lanes

	mu    sync.Mutex     // guards what follows
	ready bool           // the library is initialised
	last  map[int]GPU    // what each GPU said last, by index
	lane  map[string]int // index of each GPU, by the UUIDs of it and of its instances
}

var _ Library = (*NVML)(nil)

// NVIDIA returns what this build looks at GPUs with.
func NVIDIA() Library {
	n := NewNVML(nvml.New())
	n.fallback = NewSMI()
	return n
}

// NewNVML looks through a library that nobody else initialises. It does nothing
// before it is first asked.
func NewNVML(api nvml.Interface) *NVML {
	return &NVML{api: api, sys: sysfs, last: map[int]GPU{}, lane: map[string]int{}}
}

// driverLane is for what is no single GPU's.
const driverLane = "the NVIDIA driver"

// laneOf returns the lane of a GPU.
func laneOf(index int) string { return fmt.Sprintf("GPU %d", index) }

// onDevice runs f with the handle of a GPU, or of an instance, in the lane of
// that GPU and within patience.
func onDevice[T any](ctx context.Context, n *NVML, uuid string, f func(nvml.Device) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var none T
	if _, err := in(ctx, &n.lanes, driverLane, n.open); err != nil {
		return none, err
	}
	n.mu.Lock()
	index, known := n.lane[uuid]
	n.mu.Unlock()
	lane := laneOf(index)
	if !known {
		lane = uuid
	}
	return in(ctx, &n.lanes, lane, func() (T, error) {
		d, ret := n.api.DeviceGetHandleByUUID(uuid)
		if ret != nvml.SUCCESS {
			return none, n.failed("find "+uuid, ret)
		}
		return f(d)
	})
}

// open initialises the library if it is not. It may hang: it belongs into the
// driver's lane.
func (n *NVML) open() (struct{}, error) {
	n.mu.Lock()
	ready := n.ready
	n.mu.Unlock()
	if ready {
		return struct{}{}, nil
	}
	if ret := n.api.Init(); ret != nvml.SUCCESS && ret != nvml.ERROR_ALREADY_INITIALIZED {
		return struct{}{}, n.failed("initialise NVML", ret)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = true
	return struct{}{}, nil
}

// errNotSupported: this GPU, or this driver, does not say that.
var errNotSupported = errors.New("not supported")

// failed returns the error of a call. After one that says that the driver is
// not there the library is initialised anew when it is asked again.
func (n *NVML) failed(what string, ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%s: %w: libnvidia-ml.so.1 is not installed", what, n.gone())
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED:
		return fmt.Errorf("%s: %w: its kernel module is not loaded", what, n.gone())
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%s: %w: its library and its kernel module differ in version; reload the module, then restart the agent", what, n.gone())
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_INSUFFICIENT_POWER:
		return fmt.Errorf("%s: %w (NVML error %d)", what, ErrLost, ret)
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%s: %w (NVML error %d)", what, errNotSupported, ret)
	case nvml.ERROR_NOT_FOUND:
		return fmt.Errorf("%s: %w", what, ErrUnknown)
	}
	return fmt.Errorf("%s: NVML error %d", what, ret)
}

// gone returns ErrAbsent, after which nothing is ready.
func (n *NVML) gone() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = false
	return ErrAbsent
}
