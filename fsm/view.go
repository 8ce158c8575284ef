package fsm

import (
	"rcd/model"
	"rcd/scheduler"
)

// View is the state at one index. Everything it returns is a row of the state
// and must not be written. A View is safe for concurrent use, never changes
// and may be kept; holding one costs what changed since.
type View struct {
	index  uint64
	digest Digest

	meta     metaRow
	settings model.Settings
	sealed   struct{ meta, settings Digest } // their shares of digest

	jobs     table[uint64, model.Job]
	leases   table[uint64, model.Lease]
	devices  table[string, model.Device]
	agents   table[string, model.Agent]
	requests table[string, model.Request]
	sheets   table[string, model.Sheet]    // by model.DeviceID(host, name)
	members  table[string, model.Member]   // by ID
	unserved table[string, model.Unserved] // by target

	queue         index[scheduler.Order] // queued jobs
	pinned        index[pinnedKey]       // queued jobs with a pinned device
	targets       tally                  // queued jobs by target
	active        index[uint64]          // assigned and running jobs
	ended         index[agedKey]         // terminal jobs by end
	byEnd         index[endKey]          // terminal jobs by state
	byDevice      index[namedKey]        // jobs by device
	bySubmitter   index[namedKey]        // jobs by submitter
	requestAge    index[requestKey]      // requests by age
	byHold        index[holdKey]         // jobs by the hold that they run or ran inside
	sessions      index[uint64]          // holds with a session that have not ended
	queuedBytes   int64                  // of queued jobs, by jobBytes
	finishedBytes int64                  // of terminal jobs
}

// metaRow is what the state knows beside its tables.
type metaRow struct {
	Generation  uint64 `cbor:"1,keyasint"`
	Feature     uint32 `cbor:"2,keyasint"`
	Term        uint64 `cbor:"3,keyasint"` // the epoch
	EpochNode   string `cbor:"4,keyasint"`
	EpochIndex  uint64 `cbor:"5,keyasint"`
	EpochUptime int64  `cbor:"6,keyasint"` // uptime in ns when the epoch began
	Stamp       int64  `cbor:"7,keyasint"` // latest stamp in the epoch, Unix ns
	Now         int64  `cbor:"8,keyasint"` // Unix ns
	Uptime      int64  `cbor:"9,keyasint"` // ns
	LastJob     uint64 `cbor:"10,keyasint"`
	LastLease   uint64 `cbor:"11,keyasint"`

	CheckIndex uint64 `cbor:"12,keyasint"` // of the last checkpoint whose voters agreed
	CheckHigh  uint64 `cbor:"13,keyasint"` // its digest
	CheckLow   uint64 `cbor:"14,keyasint"`

	// A mass write-off is withheld since WithheldUptime (ns, 0: none is), first
	// in the epoch of WithheldTerm.
	WithheldTerm   uint64 `cbor:"15,keyasint"`
	WithheldUptime int64  `cbor:"16,keyasint"`
	WithheldLast   uint64 `cbor:"17,keyasint"` // latest epoch that withheld it
}

type pinnedKey struct {
	device string
	order  scheduler.Order
}

type namedKey struct {
	name   string
	number uint64
}

type holdKey struct{ hold, number uint64 }

type agedKey struct {
	uptime int64
	number uint64
}

type requestKey struct {
	uptime int64
	key    string
}

// featureLevel is the highest level of meanings of commands and rows that this
// version knows; a fresh cluster begins at firstLevel, whatever its version, so
// that its log gives every version the same digests.
const (
	featureLevel = LevelInside
	firstLevel   = 1
)

// LevelInside is the feature level from which jobs run inside holds and holds
// have sessions. Below it neither may be proposed: an older build would halt.
const LevelInside = 2

func emptyView() *View {
	return &View{
		meta:     metaRow{Generation: 1, Feature: firstLevel},
		settings: model.DefaultSettings(),
		jobs:     newTable[uint64, model.Job](tableJobs),
		leases:   newTable[uint64, model.Lease](tableLeases),
		devices:  newTable[string, model.Device](tableDevices),
		agents:   newTable[string, model.Agent](tableAgents),
		requests: newTable[string, model.Request](tableRequests),
		sheets:   newTable[string, model.Sheet](tableSheets),
		members:  newTable[string, model.Member](tableMembers),
		unserved: newTable[string, model.Unserved](tableUnserved),
		queue:    newIndex(scheduler.Order.Less),
		pinned: newIndex(func(a, b pinnedKey) bool {
			if a.device != b.device {
				return a.device < b.device
			}
			return a.order.Less(b.order)
		}),
		targets: newTally(),
		active:  newIndex(func(a, b uint64) bool { return a < b }),
		ended: newIndex(func(a, b agedKey) bool {
			if a.uptime != b.uptime {
				return a.uptime < b.uptime
			}
			return a.number < b.number
		}),
		byEnd:       newIndex(endKey.less),
		byDevice:    newIndex(namedKey.less),
		bySubmitter: newIndex(namedKey.less),
		requestAge: newIndex(func(a, b requestKey) bool {
			if a.uptime != b.uptime {
				return a.uptime < b.uptime
			}
			return a.key < b.key
		}),
		byHold: newIndex(func(a, b holdKey) bool {
			if a.hold != b.hold {
				return a.hold < b.hold
			}
			return a.number < b.number
		}),
		sessions: newIndex(func(a, b uint64) bool { return a < b }),
	}
}

func (k namedKey) less(l namedKey) bool {
	if k.name != l.name {
		return k.name < l.name
	}
	return k.number < l.number
}

const partCount = 19

func (v *View) parts() [partCount]part {
	return [partCount]part{
		&v.jobs, &v.leases, &v.devices, &v.agents, &v.requests,
		&v.sheets, &v.members, &v.unserved,
		&v.queue, &v.pinned, &v.targets, &v.active, &v.ended, &v.byEnd,
		&v.byDevice, &v.bySubmitter, &v.requestAge, &v.byHold, &v.sessions,
	}
}

// publish returns an immutable copy of v; last is the one published before.
func (v *View) publish(last *View) *View {
	out := new(View)
	*out = *v
	work, dst, old := v.parts(), out.parts(), last.parts()
	for i := range work {
		work[i].publish(dst[i], old[i])
	}
	return out
}

// restore makes v equal to last again.
func (v *View) restore(last *View) {
	work, old := v.parts(), last.parts()
	for i := range work {
		work[i].restore(old[i])
	}
	v.index, v.digest, v.meta, v.settings = last.index, last.digest, last.meta, last.settings
	v.sealed, v.queuedBytes, v.finishedBytes = last.sealed, last.queuedBytes, last.finishedBytes
}
