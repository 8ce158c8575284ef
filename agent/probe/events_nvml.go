//go:build cgo && linux

package probe

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	// wantedEvents are not those of corrected errors: nothing follows from one, and
	// a GPU that has many reports XID 92.
	wantedEvents = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
	// eventWait is how long one wait for an event lasts in the driver: so long may
	// the end of a watch take.
	eventWait = 500 * time.Millisecond
	// anyInstance stands where an error belongs to no instance.
	anyInstance = math.MaxUint32
)

// watch is a set of events that the driver fills.
type watch struct {
	set nvml.EventSet
	// Of an instance.
	split           bool
	gpuID, engineID uint32
}

// Watch implements Health. It has a lane of its own: a wait for an event that
// hangs keeps nobody from looking at the GPU.
func (n *NVML) Watch(ctx context.Context, uuid string, emit func(Event)) error {
	d, err := onDevice(ctx, n, uuid, func(d nvml.Device) (nvml.Device, error) { return d, nil })
	if err != nil {
		return err
	}
	lane := "events of " + uuid
	begin, cancel := context.WithTimeout(ctx, patience)
	w, err := in(begin, &n.lanes, lane, func() (*watch, error) { return n.beginWatch(begin, d, uuid) })
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*eventWait)
		defer cancel()
		_, _ = in(end, &n.lanes, lane, func() (nvml.Return, error) { return w.set.Free(), nil })
	}()
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, eventWait+patience)
		e, err := in(call, &n.lanes, lane, func() (*Event, error) { return n.next(w, uuid) })
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return err
		case e != nil:
			emit(*e)
		}
	}
	return nil
}

// beginWatch registers for what the GPU can report.
func (n *NVML) beginWatch(ctx context.Context, d nvml.Device, uuid string) (*watch, error) {
	var w watch
	whole, err := n.whole(d, uuid)
	if err != nil {
		return nil, err
	}
	if whole != d {
		gpu, ret1 := d.GetGpuInstanceId()
		engine, ret2 := d.GetComputeInstanceId()
		if ret1 != nvml.SUCCESS || ret2 != nvml.SUCCESS {
			return nil, n.failed("find the place of "+uuid, cmp.Or(ret1, ret2))
		}
		w.split, w.gpuID, w.engineID = true, uint32(gpu), uint32(engine)
	}
	events := uint64(wantedEvents)
	if supported, ret := whole.GetSupportedEventTypes(); ret == nvml.SUCCESS {
		events &= supported
	}
	if events == 0 {
		return nil, fmt.Errorf("watch %s: %w", uuid, ErrNoEvents)
	}
	set, ret := n.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, noEvents(n.failed("watch "+uuid, ret))
	}
	ret = whole.RegisterEvents(events, set)
	switch {
	case ret != nvml.SUCCESS:
		err = noEvents(n.failed("watch "+uuid, ret))
	case ctx.Err() != nil: // nobody waits for it any more
		err = fmt.Errorf("watch %s: %w", uuid, ErrHung)
	}
	if err != nil {
		_ = set.Free()
		return nil, err
	}
	w.set = set
	return &w, nil
}

// noEvents tells what never works from what does not work now.
func noEvents(err error) error {
	if errors.Is(err, errNotSupported) {
		return fmt.Errorf("%w: %w", ErrNoEvents, err)
	}
	return err
}

// next returns an event, nil if there was none for a while or it is another
// instance's.
func (n *NVML) next(w *watch, uuid string) (*Event, error) {
	data, ret := w.set.Wait(uint32(eventWait.Milliseconds()))
	switch {
	case ret == nvml.ERROR_TIMEOUT:
		return nil, nil
	case ret != nvml.SUCCESS:
		return nil, n.failed("wait for events of "+uuid, ret)
	case w.split && !w.owns(data):
		return nil, nil
	case data.EventType == nvml.EventTypeXidCriticalError && data.EventData == XIDRecoveryWish:
		return nil, nil // it may also say that nothing is asked for any more: State tells
	case data.EventType == nvml.EventTypeXidCriticalError:
		return &Event{XID: data.EventData}, nil
	case data.EventType == nvml.EventTypeDoubleBitEccError:
		return &Event{XID: XIDDoubleBit, Detail: "told by an event"}, nil
	}
	return nil, nil
}

func (w *watch) owns(data nvml.EventData) bool {
	return (data.GpuInstanceId == anyInstance || data.GpuInstanceId == w.gpuID) &&
		(data.ComputeInstanceId == anyInstance || data.ComputeInstanceId == w.engineID)
}

// whole returns the GPU that an instance is a part of, and a GPU itself.
func (n *NVML) whole(d nvml.Device, uuid string) (nvml.Device, error) {
	if !strings.HasPrefix(uuid, "MIG-") {
		return d, nil
	}
	whole, ret := d.GetDeviceHandleFromMigDeviceHandle()
	if ret != nvml.SUCCESS {
		return nil, n.failed("find the GPU of "+uuid, ret)
	}
	return whole, nil
}

// State implements Health.
func (n *NVML) State(ctx context.Context, uuid string) (State, error) {
	return onDevice(ctx, n, uuid, func(d nvml.Device) (State, error) {
		d, err := n.whole(d, uuid)
		if err != nil {
			return State{}, err
		}
		var s State
		for _, read := range []func(nvml.Device, *State) nvml.Return{readUncorrected, readRemapped, readRecovery} {
			ret := read(d, &s)
			if ret == nvml.SUCCESS {
				continue
			}
			if err := n.failed("read the state of "+uuid, ret); !errors.Is(err, errNotSupported) {
				return State{}, err
			}
		}
		return s, nil
	})
}

func readUncorrected(d nvml.Device, s *State) (ret nvml.Return) {
	s.Uncorrected, ret = d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	return ret
}

// readRemapped reads remapped rows, which there are from Ampere on, or retired
// pages.
func readRemapped(d nvml.Device, s *State) (ret nvml.Return) {
	if _, _, s.RemapPending, s.RemapFailed, ret = d.GetRemappedRows(); ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_FUNCTION_NOT_FOUND {
		return ret
	}
	pending, ret := d.GetRetiredPagesPendingStatus()
	s.RemapPending = ret == nvml.SUCCESS && pending == nvml.FEATURE_ENABLED
	return ret
}

// recoveries are the words for nvmlDeviceGpuRecoveryAction_t by number.
var recoveries = [...]string{"", "a reset of the GPU", "a reboot of the host", "an end to all peer-to-peer traffic", "an end to all peer-to-peer traffic, then a reset of the GPU",
	"a recovery of the IMEX domain", "a reset of the GPU's PCIe bus", "a reboot of the system"}

// readRecovery asks for a field that drivers have from r570 on.
func readRecovery(d nvml.Device, s *State) nvml.Return {
	field := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := d.GetFieldValues(field); ret != nvml.SUCCESS {
		return ret
	}
	if ret := nvml.Return(field[0].NvmlReturn); ret != nvml.SUCCESS {
		return ret
	}
	switch action := binary.LittleEndian.Uint32(field[0].Value[:4]); {
	case int(action) < len(recoveries):
		s.Recovery = recoveries[action]
	default:
		s.Recovery = fmt.Sprintf("recovery action %d", action)
	}
	return nvml.SUCCESS
}
