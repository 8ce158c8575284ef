package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"rcd/model"
	"rcd/wire"
)

// A fault is for what no job is to blame for: a job's own end takes its device
// out of the pool by itself. One is a lost fence that could not be rebuilt whole
// (rebuildFence); a drain's are in drain_book.go.

// fault says that devices must not be given away before a person has looked at
// them. It is on disk when it returns, and said to the leader until acked.
func (a *agent) fault(devices []string, detail string) error {
	err := a.state.addFaults(devices, cut(detail))
	for _, d := range devices {
		a.log.Error("device out of the pool until an operator returns it", "device", d, "detail", detail)
	}
	a.factsChanged()
	return err
}

// takeOut takes those of a job's devices out of the pool that have a text, and
// returns what the job's outcome has to say of them. Where only some are at
// fault that is nothing, if the leader takes the fault of each in time: an
// outcome takes out all of the job's devices.
func (a *agent) takeOut(ctx context.Context, j *job, texts map[string]string) (said string) {
	some := len(texts) < len(j.devices)
	for _, device := range j.devices {
		text := texts[device]
		if text == "" {
			continue
		}
		said = joined(said, text)
		if some {
			a.health.fault(device, text)
		}
	}
	if said != "" && some && a.health.faultsTold(ctx, j) {
		return ""
	}
	return cut(said)
}

// sound fails a job whose devices have faults that came while it waited, or that
// no leader has taken yet: whoever placed it did not know. It returns false when
// j is not to be started, and has its outcome then.
func (a *agent) sound(j *job) bool {
	if j.hold != 0 {
		return true // the lease goes on, whatever has come to its devices
	}
	texts := a.state.faultsSince(j.faults, j.devices)
	if len(texts) == 0 {
		return true
	}
	var all []string
	for _, device := range slices.Sorted(maps.Keys(texts)) {
		all = append(all, device+": "+texts[device])
	}
	o := startFailed(errors.New("the device is out of the pool: "+brief(strings.Join(all, "; "))), model.OriginDevice)
	o.Survivors = a.takeOut(a.ctx, j, texts)
	a.settle(j, o)
	return false
}

// Faults implements session.Handler: what was found, then a drain, each sorted
// by device.
func (a *agent) Faults() []wire.DeviceFault {
	return append(a.state.listFaults(), a.drains.faults()...)
}

// FaultAcked implements session.Handler.
func (a *agent) FaultAcked(ack wire.FaultAck) {
	if ack.Code != "" {
		a.log.Error("fault of a device refused; it is said again in the next session", "device", ack.Device, "code", ack.Code, "message", ack.Message)
	}
	if a.drains.acked(ack) || ack.Code != "" {
		return
	}
	if err := a.state.dropFault(ack.DeviceFault); err != nil {
		a.log.Warn("an acked fault is still on disk and will be said again", "device", ack.Device, "error", err)
	}
}

// addFaults keeps faults, the first one of a device until it is acked. After an
// error they stand for as long as this process does.
func (s *state) addFaults(devices []string, detail string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := faults{Details: maps.Clone(s.faults.Details)}
	if next.Details == nil {
		next.Details = map[string]string{}
	}
	s.raised.count++
	for _, d := range devices {
		if _, ok := next.Details[d]; !ok {
			next.Details[d] = detail
		}
		if s.raised.last == nil {
			s.raised.last = map[string]raisedFault{}
		}
		s.raised.last[d] = raisedFault{number: s.raised.count, detail: next.Details[d]}
	}
	s.faults = next
	return s.writeFaults()
}

// raised is what this process has found: it tells what came after what.
type raised struct {
	count uint64
	last  map[string]raisedFault // by device
}

// raisedFault is the last fault of a device.
type raisedFault struct {
	number uint64
	detail string
}

// faultCount counts the faults that were found so far.
func (s *state) faultCount() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raised.count
}

// faultsSince returns the faults of devices that came after the first count of
// all, and those that nobody has acked, by device.
func (s *state) faultsSince(count uint64, devices []string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := map[string]string{}
	for _, d := range devices {
		if f, ok := s.raised.last[d]; ok && f.number > count {
			texts[d] = f.detail
		}
		if detail, untold := s.faults.Details[d]; untold {
			texts[d] = detail
		}
	}
	return texts
}

func (s *state) listFaults() (all []wire.DeviceFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range slices.Sorted(maps.Keys(s.faults.Details)) {
		all = append(all, wire.DeviceFault{Device: d, Detail: s.faults.Details[d]})
	}
	return all
}

func (s *state) dropFault(f wire.DeviceFault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Details[f.Device] != f.Detail {
		return nil
	}
	s.faults.Details = maps.Clone(s.faults.Details)
	delete(s.faults.Details, f.Device)
	return s.writeFaults()
}

// writeFaults puts them on disk. The caller holds mu.
func (s *state) writeFaults() error {
	if err := writeRecord(filepath.Join(s.dir, faultsFile), kindFaults, s.faults); err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	return nil
}
