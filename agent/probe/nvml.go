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
type NVML struct {
	api   nvml.Interface
	lanes lanes

	mu    sync.Mutex // guards what follows
	ready bool       // the library is initialised
}

// NVIDIA returns what this build looks at GPUs with.
func NVIDIA() Library { return NewNVML(nvml.New()) }

// NewNVML looks through a library that nobody else initialises. It does nothing
// before it is first asked.
func NewNVML(api nvml.Interface) *NVML { return &NVML{api: api} }

// GPUs implements Library.
func (n *NVML) GPUs(ctx context.Context) ([]GPU, error) {
	return nil, ErrAbsent
}

// onDevice runs f with the handle of a GPU, or of an instance, in the lane of
// that GPU and within patience.
func onDevice[T any](ctx context.Context, n *NVML, uuid string, f func(nvml.Device) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var none T
	if err := n.open(ctx); err != nil {
		return none, err
	}
	return in(ctx, &n.lanes, uuid, func() (T, error) {
		d, ret := n.api.DeviceGetHandleByUUID(uuid)
		if ret != nvml.SUCCESS {
			return none, n.failed("find "+uuid, ret)
		}
		return f(d)
	})
}

// open initialises the library if it is not, in a lane of its own.
func (n *NVML) open(ctx context.Context) error {
	n.mu.Lock()
	ready := n.ready
	n.mu.Unlock()
	if ready {
		return nil
	}
	_, err := in(ctx, &n.lanes, "driver", func() (struct{}, error) {
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
		n.ready = true
		n.mu.Unlock()
		return struct{}{}, nil
	})
	return err
}

// errNotSupported: this GPU, or this driver, does not know that.
var errNotSupported = errors.New("not supported")

// failed returns the error of a call.
func (n *NVML) failed(what string, ret nvml.Return) error {
	var kind error
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED, nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		n.mu.Lock()
		n.ready = false
		n.mu.Unlock()
		kind = ErrAbsent
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_INSUFFICIENT_POWER:
		kind = ErrLost
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NO_PERMISSION:
		kind = errNotSupported
	case nvml.ERROR_NOT_FOUND:
		kind = ErrUnknown
	default:
		return fmt.Errorf("%s: NVML error %d", what, ret)
	}
	return fmt.Errorf("%s: %w (NVML error %d)", what, kind, ret)
}
