//go:build cgo && linux

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

var _ Health = (*NVML)(nil)

// sick is a GPU that answers for its health. A test changes what it says before
// it looks.
type sick struct {
	compute, graphics, mps []nvml.ProcessInfo
	used                   uint64
	uncorrected            uint64
	pending, failed        bool
	recovery               uint32
	events                 uint64 // that it can report
	queue                  chan nvml.EventData
	freed, registered      atomic.Int32
}

// sicken extends a GPU of a mock server, or an instance: a mock panics at what
// it does not know.
func sicken(d *mock.Device) *sick {
	s := &sick{events: nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeClock, queue: make(chan nvml.EventData, 10)}
	list := func(infos *[]nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() ([]nvml.ProcessInfo, nvml.Return) { return *infos, nvml.SUCCESS }
	}
	d.GetComputeRunningProcessesFunc = list(&s.compute)
	d.GetGraphicsRunningProcessesFunc = list(&s.graphics)
	d.GetMPSComputeRunningProcessesFunc = list(&s.mps)
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 80 << 30, Used: s.used, Reserved: 600 << 20}, nvml.SUCCESS
	}
	d.GetTotalEccErrorsFunc = func(kind nvml.MemoryErrorType, counter nvml.EccCounterType) (uint64, nvml.Return) {
		if kind != nvml.MEMORY_ERROR_TYPE_UNCORRECTED || counter != nvml.VOLATILE_ECC {
			return 99, nvml.SUCCESS
		}
		return s.uncorrected, nvml.SUCCESS
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 1, 0, s.pending, s.failed, nvml.SUCCESS }
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		binary.LittleEndian.PutUint32(values[0].Value[:], s.recovery)
		return nvml.SUCCESS
	}
	d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return s.events, nvml.SUCCESS }
	d.RegisterEventsFunc = func(events uint64, set nvml.EventSet) nvml.Return {
		if events&^s.events != 0 {
			return nvml.ERROR_NOT_SUPPORTED
		}
		s.registered.Add(1)
		set.(*mock.EventSet).WaitFunc = func(ms uint32) (nvml.EventData, nvml.Return) {
			select {
			case e := <-s.queue:
				if e.EventType == 0 {
					return e, nvml.ERROR_GPU_IS_LOST
				}
				return e, nvml.SUCCESS
			case <-time.After(time.Duration(ms) * time.Millisecond):
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
		}
		set.(*mock.EventSet).FreeFunc = func() nvml.Return { s.freed.Add(1); return nvml.SUCCESS }
		return nvml.SUCCESS
	}
	return s
}

// ward returns a machine of each model, its first GPU extended.
func ward(t *testing.T, f func(t *testing.T, n *NVML, m *server.Server, s *sick)) {
	for model := range fleets {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			m := fleet(model)
			m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return &mock.EventSet{}, nvml.SUCCESS }
			f(t, looking(t, m), m, sicken(&card(m, 0).Device))
		})
	}
}

// listener keeps what a watch tells.
type listener struct {
	mu     sync.Mutex // guards what follows
	events []Event
	err    error
	over   chan struct{}
	stop   context.CancelFunc
}

func listen(t *testing.T, n *NVML, uuid string) *listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{over: make(chan struct{}), stop: stop}
	go func() {
		defer close(l.over)
		l.err = n.Watch(ctx, uuid, func(e Event) { l.mu.Lock(); defer l.mu.Unlock(); l.events = append(l.events, e) })
	}()
	t.Cleanup(func() { stop(); <-l.over })
	return l
}

// want waits for so many events and compares their numbers.
func (l *listener) want(t *testing.T, xids ...uint64) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		var got []uint64
		for _, e := range l.events {
			got = append(got, e.XID)
		}
		l.mu.Unlock()
		if slices.Equal(got, xids) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("heard %v, want %v", got, xids)
		}
	}
}

// heard is that the GPU has reported all that it was to.
func (s *sick) heard(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(s.queue) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("events are not asked for")
		}
	}
}

func TestWhatIsOnAGPUIsMemoryAndEveryKindOfProcess(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, m *server.Server, s *sick) {
		s.used = 3 << 30
		s.compute = []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: 1203 << 20}, {Pid: 12, UsedGpuMemory: math.MaxUint64}}
		s.graphics = []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: 10}, {Pid: 5, UsedGpuMemory: 7}}
		s.mps = []nvml.ProcessInfo{{Pid: 900, UsedGpuMemory: 1}}
		u, err := n.Use(t.Context(), "GPU-00")
		if err != nil || !u.Exact || u.TotalBytes != 80<<30 || u.UsedBytes != 3<<30 {
			t.Fatalf("%+v, %v", u, err)
		}
		var pids []int
		for _, p := range u.Processes {
			pids = append(pids, p.PID)
		}
		if !slices.Equal(pids, []int{5, 12, 900, 4711}) || u.Processes[1].UsedBytes != 0 || u.Processes[3].UsedBytes != 1203<<20 {
			t.Errorf("processes %+v", u.Processes)
		}
		// An older driver does not know the other kinds, nor what it keeps for itself.
		d := card(m, 0)
		unknown := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_FUNCTION_NOT_FOUND }
		d.GetGraphicsRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = unknown, unknown
		d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_FUNCTION_NOT_FOUND }
		if u, err = n.Use(t.Context(), "GPU-00"); err != nil || u.Exact || len(u.Processes) != 2 {
			t.Errorf("older driver: %+v, %v", u, err)
		}
		d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_GPU_IS_LOST }
		if _, err = n.Use(t.Context(), "GPU-00"); !errors.Is(err, ErrLost) {
			t.Errorf("lost: %v", err)
		}
	})
}

// A GPU on the host's memory (GB10, Jetson) says that it cannot tell how much of
// it is in use, at each look: that is no failure to answer.
func TestAGPUWithoutMemoryOfItsOwnTellsItsProcesses(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, m *server.Server, s *sick) {
		s.compute = []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: math.MaxUint64}}
		d := card(m, 0)
		d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_NOT_SUPPORTED }
		d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED }
		if u, err := n.Use(t.Context(), "GPU-00"); err != nil || u.Exact || u.TotalBytes+u.UsedBytes != 0 || len(u.Processes) != 1 {
			t.Errorf("%+v, %v", u, err)
		}
	})
}

func TestAGPUTellsItsErrorsAsTheyHappen(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, _ *server.Server, s *sick) {
		l := listen(t, n, "GPU-00")
		s.queue <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 31}
		s.queue <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: XIDRecoveryWish} // State tells what is asked for
		s.queue <- nvml.EventData{EventType: nvml.EventTypeDoubleBitEccError}
		l.want(t, 31, XIDDoubleBit)
		s.queue <- nvml.EventData{} // the driver's error
		<-l.over
		if !errors.Is(l.err, ErrLost) || s.freed.Load() != 1 {
			t.Errorf("error %v, %d sets given back", l.err, s.freed.Load())
		}
		again := listen(t, n, "GPU-00")
		s.queue <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 13}
		again.want(t, 13)
		again.stop()
		<-again.over
		if again.err != nil || s.freed.Load() != 2 {
			t.Errorf("after its end: %v, %d sets given back", again.err, s.freed.Load())
		}
	})
}

func TestAGPUWithoutEventsSaysSo(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, m *server.Server, s *sick) {
		s.events = nvml.EventTypeXidCriticalError // a board without ECC
		l := listen(t, n, "GPU-00")
		s.queue <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 8}
		l.want(t, 8)
		s.events = nvml.EventTypeClock
		if err := n.Watch(t.Context(), "GPU-00", nil); !errors.Is(err, ErrNoEvents) {
			t.Errorf("no such events: %v", err)
		}
		m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
		s.events = nvml.EventTypeXidCriticalError
		l.stop()
		<-l.over
		if err := n.Watch(t.Context(), "GPU-00", nil); !errors.Is(err, ErrNoEvents) {
			t.Errorf("no events at all: %v", err)
		}
	})
}

func TestAnInstanceHearsItsOwnErrorsAndThoseOfNobody(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, m *server.Server, s *sick) {
		d := card(m, 0)
		instance := &mock.Device{
			GetDeviceHandleFromMigDeviceHandleFunc: func() (nvml.Device, nvml.Return) { return d, nvml.SUCCESS },
			GetGpuInstanceIdFunc:                   func() (int, nvml.Return) { return 3, nvml.SUCCESS },
			GetComputeInstanceIdFunc:               func() (int, nvml.Return) { return 0, nvml.SUCCESS },
		}
		part := sicken(instance)
		part.used, part.compute = 5<<30, []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 4 << 30, GpuInstanceId: 3}}
		find := m.DeviceGetHandleByUUIDFunc
		m.DeviceGetHandleByUUIDFunc = func(uuid string) (nvml.Device, nvml.Return) {
			if uuid == "MIG-3" {
				return instance, nvml.SUCCESS
			}
			return find(uuid)
		}
		l := listen(t, n, "MIG-3")
		for xid, place := range [][2]uint32{{3, 0}, {4, 0}, {3, 1}, {math.MaxUint32, math.MaxUint32}, {3, math.MaxUint32}} {
			s.queue <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: uint64(xid), GpuInstanceId: place[0], ComputeInstanceId: place[1]}
		}
		s.heard(t)
		l.want(t, 0, 3, 4)
		if u, err := n.Use(t.Context(), "MIG-3"); err != nil || u.UsedBytes != 5<<30 || len(u.Processes) != 1 {
			t.Errorf("%+v, %v", u, err)
		}
		s.uncorrected = 2
		if st, err := n.State(t.Context(), "MIG-3"); err != nil || st.Uncorrected != 2 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

func TestAGPURemembersWhatIsWrongWithIt(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, m *server.Server, s *sick) {
		s.uncorrected, s.pending, s.failed, s.recovery = 3, true, true, 1
		if st, err := n.State(t.Context(), "GPU-00"); err != nil || st != (State{3, true, true, "a reset of the GPU"}) {
			t.Errorf("%+v, %v", st, err)
		}
		s.recovery = 77
		if st, _ := n.State(t.Context(), "GPU-00"); st.Recovery != "recovery action 77" {
			t.Errorf("%+v", st)
		}
		// A board before Ampere, with a driver before r570 and ECC off.
		d := card(m, 0)
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.ERROR_NOT_SUPPORTED }
		d.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS }
		d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
			values[0].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			return nvml.SUCCESS
		}
		if st, err := n.State(t.Context(), "GPU-00"); err != nil || st != (State{RemapPending: true}) {
			t.Errorf("older board: %+v, %v", st, err)
		}
		d.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		if st, err := n.State(t.Context(), "GPU-00"); err != nil || st != (State{}) {
			t.Errorf("board that remembers nothing: %+v, %v", st, err)
		}
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_GPU_IS_LOST
		}
		if _, err := n.State(t.Context(), "GPU-00"); !errors.Is(err, ErrLost) {
			t.Errorf("lost: %v", err)
		}
	})
}

func TestAHungGPUHoldsUpNeitherTheOthersNorItsOwnWatch(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, m *server.Server, s *sick) {
		other := sicken(&card(m, 1).Device)
		l := listen(t, n, "GPU-00")
		s.queue <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 45}
		l.want(t, 45)
		back := make(chan struct{})
		t.Cleanup(func() { close(back) })
		card(m, 0).GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			<-back
			return nil, nvml.SUCCESS
		}
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := n.Use(short, "GPU-00"); !errors.Is(err, ErrHung) {
			t.Errorf("hung: %v", err)
		}
		other.used = 5
		if u, err := n.Use(t.Context(), "GPU-01"); err != nil || u.UsedBytes != 5 {
			t.Errorf("the other: %+v, %v", u, err)
		}
		s.queue <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 79}
		l.want(t, 45, 79)
	})
}

func TestAWatchThatHangsEndsWithItsContext(t *testing.T) {
	ward(t, func(t *testing.T, n *NVML, m *server.Server, s *sick) {
		back, waits := make(chan struct{}), make(chan struct{}, 1)
		t.Cleanup(func() { close(back) })
		m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return &mock.EventSet{}, nvml.SUCCESS }
		card(m, 0).RegisterEventsFunc = func(_ uint64, set nvml.EventSet) nvml.Return {
			set.(*mock.EventSet).WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
				waits <- struct{}{}
				<-back
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
			return nvml.SUCCESS
		}
		l := listen(t, n, "GPU-00")
		<-waits
		l.stop()
		select {
		case <-l.over:
		case <-time.After(30 * time.Second):
			t.Fatal("it does not end")
		}
	})
}

func TestARealGPUSaysWhatIsOnItAndHowItIs(t *testing.T) {
	n, _ := NVIDIA().(*NVML)
	all, err := n.GPUs(t.Context())
	if err != nil || len(all) == 0 || all[0].UUID == "" {
		t.Skipf("this machine has no NVIDIA GPU that answers: %v", err)
	}
	uuid := all[0].UUID
	if u, err := n.Use(t.Context(), uuid); err != nil || u.TotalBytes == 0 || u.UsedBytes > u.TotalBytes {
		t.Errorf("use %+v, %v", u, err)
	}
	if _, err := n.State(t.Context(), uuid); err != nil {
		t.Errorf("state: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := n.Watch(ctx, uuid, func(Event) {}); err != nil && !errors.Is(err, ErrNoEvents) {
		t.Errorf("watch: %v", err)
	}
}
