package fsm

import (
	"fmt"
	"slices"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/scheduler"
)

// txn is the application of one entry: the state being changed and what will
// be answered. Everything that changes a row goes through its put methods,
// which keep the indexes, the scheduler and the digest in step.
type txn struct {
	*View
	last     *View // published before this entry
	hash     *hasher
	sched    *scheduler.Scheduler
	raftTerm uint64
	atIndex  uint64
	entry    command.Entry

	answers []answer
	noWait  []uint64 // no-wait jobs of this entry
	// notPlaced are those of them that found no free device.
	notPlaced []uint64
	placed    []uint64 // jobs that got a device in this entry
	// unknownLevel is a feature level that this entry made the cluster's and
	// that this build does not know, or 0.
	unknownLevel uint32
	knows        uint32 // the highest level that this machine can apply
	results      []command.Result
	events       []command.Event
}

// answer is a result before the entry's scheduling.
type answer struct {
	command.Result
	jobs   []uint64
	device string
	placed bool // jobs are those that the entry's scheduling places
	// known is the key of the request row that a repeat was known by, or "", and
	// outcome what that row said then; requests are the keys of the rows that
	// this command added.
	known    string
	outcome  command.Code
	requests []string
}

// Milliseconds of the two clocks.
func (v *View) nowMS() int64    { return v.meta.Now / nsPerMS }
func (v *View) uptimeMS() int64 { return v.meta.Uptime / nsPerMS }

const nsPerMS = 1_000_000

func (t *txn) emit(e command.Event) {
	e.Index, e.Term = t.atIndex, t.raftTerm
	if t.events == nil {
		t.events = make([]command.Event, 0, 8) // a finish that places has six
	}
	t.events = append(t.events, e)
}

// refuse returns a rejection: a code and a sentence that says what to do next.
func refuse(code command.Code, format string, args ...any) answer {
	return answer{Result: command.Result{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// abandon answers for an entry that was undone.
func (t *txn) abandon(name string, commands int) {
	t.events = nil
	t.emit(command.Event{Kind: command.EventInvariant, Reason: name})
	t.results = make([]command.Result, commands)
	for i := range t.results {
		t.results[i] = command.Result{
			Code:    command.InternalInvariant,
			Message: "The state machine found an inconsistency (" + name + ") and undid this; nothing was changed. Tell the operators; the same request may work alone.",
		}
	}
}

func (t *txn) putJob(row model.Job) *model.Job {
	now, old := t.jobs.put(&t.digest, row.Number, row)
	t.indexJob(old, now)
	return now
}

func (t *txn) dropJob(number uint64) {
	t.indexJob(t.jobs.remove(&t.digest, number), nil)
}

func (t *txn) putLease(row model.Lease) *model.Lease {
	now, _ := t.leases.put(&t.digest, row.Number, row)
	return now
}

func (t *txn) dropLease(l *model.Lease) {
	t.leases.remove(&t.digest, l.Number)
}

// putDevice stores a device, tells the scheduler and reports what people and
// watchers see of it.
func (t *txn) putDevice(row model.Device) *model.Device {
	now, old := t.devices.put(&t.digest, row.ID, row)
	switch {
	case old == nil || old.MaxRuntimeS != now.MaxRuntimeS || old.Absent != now.Absent || !sameLabels(old, now):
		t.sched.PutDevice(now)
	default:
		t.sched.SetDeviceState(now)
	}
	if old == nil || old.State != now.State || old.Reason != now.Reason || old.Detail != now.Detail {
		t.emit(command.Event{Kind: command.EventDeviceState, Device: now.ID, Host: now.Host, Lease: now.Lease, Reason: now.Reason.String()})
	}
	if old != nil && !sameLabels(old, now) {
		t.emit(command.Event{Kind: command.EventLabels, Device: now.ID, Host: now.Host})
	}
	return now
}

// sameLabels leaves the ages of labels aside.
func sameLabels(a, b *model.Device) bool {
	same := func(x, y model.Label) bool { return x.Key == y.Key && x.Value == y.Value }
	return slices.EqualFunc(a.Declared, b.Declared, same) && slices.EqualFunc(a.Detected, b.Detected, same)
}

func (t *txn) putAgent(row model.Agent) *model.Agent {
	now, _ := t.agents.put(&t.digest, row.Host, row)
	return now
}

// mustJob, mustLease and mustDevice follow a reference from another row.
func (t *txn) mustJob(number uint64) *model.Job {
	j := t.jobs.get(number)
	assert(j != nil, "a lease names a job that is not there")
	return j
}

func (t *txn) mustLease(number uint64) *model.Lease {
	l := t.leases.get(number)
	assert(l != nil, "a lease that must be live is not there")
	return l
}

func (t *txn) mustDevice(id string) *model.Device {
	d := t.devices.get(id)
	assert(d != nil, "a lease names a device that is not there")
	return d
}

// seal brings the digest up to date with the rows of the entry.
func (t *txn) seal() {
	t.jobs.seal(&t.digest, t.hash)
	t.leases.seal(&t.digest, t.hash)
	t.devices.seal(&t.digest, t.hash)
	t.agents.seal(&t.digest, t.hash)
	t.requests.seal(&t.digest, t.hash)
	t.sheets.seal(&t.digest, t.hash)
	t.members.seal(&t.digest, t.hash)
	t.unserved.seal(&t.digest, t.hash)
	t.sealMeta(t.hash)
	if t.settings != t.last.settings {
		t.sealSettings(t.hash)
	}
}

// sealMeta and sealSettings do the same for the two rows outside tables.
func (v *View) sealMeta(h *hasher) {
	v.digest.sub(v.sealed.meta)
	v.sealed.meta = hashRow(h, tableMeta, "", &v.meta)
	v.digest.add(v.sealed.meta)
}

func (v *View) sealSettings(h *hasher) {
	v.digest.sub(v.sealed.settings)
	v.sealed.settings = hashRow(h, tableSettings, "", &v.settings)
	v.digest.add(v.sealed.settings)
}
