package fsm

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// ErrNotFound means that no row has this ID, or none any more.
var ErrNotFound = errors.New("no such row")

// ErrAmbiguous means that several jobs have this prefix.
var ErrAmbiguous = errors.New("several jobs have this prefix")

// Index returns the index of the last entry.
func (v *View) Index() uint64 { return v.index }

// LastLease returns the highest lease number that has been given, 0 before the
// first.
func (v *View) LastLease() uint64 { return v.meta.LastLease }

// LastJob returns the highest number given to any job. One above it is not forgotten: it is not known yet.
func (v *View) LastJob() uint64 { return v.meta.LastJob }

// Digest returns the digest of the rows.
func (v *View) Digest() Digest { return v.digest }

// Term returns the epoch: the term that has begun last.
func (v *View) Term() uint64 { return v.meta.Term }

// EpochIndex returns the index of the entry that began the epoch.
func (v *View) EpochIndex() uint64 { return v.meta.EpochIndex }

// EpochNode returns the ID of the controller that began the epoch.
func (v *View) EpochNode() string { return v.meta.EpochNode }

// NowMS returns the cluster's now in Unix milliseconds, for display.
func (v *View) NowMS() int64 { return v.nowMS() }

// UptimeMS returns the cluster's uptime, which rules count in.
func (v *View) UptimeMS() int64 { return v.uptimeMS() }

// EpochUptimeMS returns the uptime at which the epoch began.
func (v *View) EpochUptimeMS() int64 { return v.meta.EpochUptime / nsPerMS }

// Settings returns the replicated settings.
func (v *View) Settings() model.Settings { return v.settings }

// Generation returns the generation of the cluster.
func (v *View) Generation() uint64 { return v.meta.Generation }

// FeatureLevel returns the level that commands and rows are written in.
func (v *View) FeatureLevel() uint32 { return v.meta.Feature }

// Job returns the job with this number, or nil.
func (v *View) Job(number uint64) *model.Job { return v.jobs.get(number) }

// ResolveJob returns the job with exactly this ID, else the only one whose ID
// begins with it. It fails with ErrNotFound or ErrAmbiguous.
func (v *View) ResolveJob(idOrPrefix string) (*model.Job, error) {
	if n, ok := model.ParseJobID(idOrPrefix); ok {
		if j := v.jobs.get(n); j != nil {
			return j, nil
		}
	}
	var found []*model.Job
	if idOrPrefix == "j" || idOrPrefix == "j-" {
		v.jobs.scan(func(_ uint64, j *model.Job) bool {
			found = append(found, j)
			return len(found) < 2
		})
	} else if n, ok := model.ParseJobID(idOrPrefix); ok {
		found = v.jobsFromDigits(n, len(idOrPrefix)-len("j-"))
	}
	switch len(found) {
	case 0:
		return nil, ErrNotFound
	case 1:
		return found[0], nil
	}
	return nil, ErrAmbiguous
}

// jobsFromDigits returns up to two jobs whose decimal number begins with the
// digits of n and is longer.
func (v *View) jobsFromDigits(n uint64, digits int) []*model.Job {
	var found []*model.Job
	const longest = 19 // digits of a number that 10× still fits
	low, high := n, n
	for ; digits < longest && len(found) < 2; digits++ {
		low, high = low*10, high*10+9
		v.jobs.ascend(low, func(number uint64, j *model.Job) bool {
			if number > high {
				return false
			}
			found = append(found, j)
			return len(found) < 2
		})
	}
	return found
}

// Device returns the device with this ID, or nil.
func (v *View) Device(id string) *model.Device { return v.devices.get(id) }

// Devices returns all devices by ID. The caller owns the slice.
func (v *View) Devices() []*model.Device {
	rows := make([]*model.Device, 0, v.devices.len())
	v.devices.scan(func(_ string, d *model.Device) bool {
		rows = append(rows, d)
		return true
	})
	return rows
}

// DevicesOn returns the devices of a host by ID. The caller owns the slice.
func (v *View) DevicesOn(host string) []*model.Device { return v.devicesOn(host) }

func (v *View) devicesOn(host string) []*model.Device {
	var rows []*model.Device
	prefix := host + ":"
	v.devices.ascend(prefix, func(id string, d *model.Device) bool {
		if !strings.HasPrefix(id, prefix) {
			return false
		}
		if d.Host == host {
			rows = append(rows, d)
		}
		return true
	})
	return rows
}

// Agent returns the agent of a host, or nil.
func (v *View) Agent(host string) *model.Agent { return v.agents.get(host) }

// Agents returns all agents by host. The caller owns the slice.
func (v *View) Agents() []*model.Agent {
	rows := make([]*model.Agent, 0, v.agents.len())
	v.agents.scan(func(_ string, a *model.Agent) bool {
		rows = append(rows, a)
		return true
	})
	return rows
}

// Lease returns the live lease with this number, or nil.
func (v *View) Lease(number uint64) *model.Lease { return v.leases.get(number) }

// Leases returns the live leases by number. The caller owns the slice.
func (v *View) Leases() []*model.Lease {
	rows := make([]*model.Lease, 0, v.leases.len())
	v.leases.scan(func(_ uint64, l *model.Lease) bool {
		rows = append(rows, l)
		return true
	})
	return rows
}

// LeasesOn returns the live leases on a host by number. The caller owns the
// slice.
func (v *View) LeasesOn(host string) []*model.Lease {
	var numbers []uint64
	for _, d := range v.devicesOn(host) {
		if d.Lease != 0 {
			numbers = append(numbers, d.Lease)
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers) // a lease may hold several devices
	rows := make([]*model.Lease, len(numbers))
	for i, number := range numbers {
		rows[i] = v.leases.get(number)
	}
	return rows
}

// LiveJobsOn returns the jobs with a live lease on a host, by lease. A job
// that its agent supervises and that is not among them must end there. The
// caller owns the slice.
func (v *View) LiveJobsOn(host string) []*model.Job {
	var rows []*model.Job
	for _, l := range v.LeasesOn(host) {
		for _, number := range l.Jobs {
			rows = append(rows, v.jobs.get(number))
		}
	}
	return rows
}

// RequestFor returns what is kept of a request ID, or nil.
func (v *View) RequestFor(scope, id string) *model.Request {
	return v.requests.get(requestName(scope, id))
}

// RecoveryHistory is what the flap guard knows about a device.
type RecoveryHistory struct {
	Recoveries []model.Recovery // inside the window, newest first
	Remaining  int64            // automatic returns left; 0: the next quarantine waits for a person
	Limit      int64
	WindowMS   int64
}

// RecoveryHistory returns the automatic returns of a device inside the window;
// ErrNotFound when there is no such device.
func (v *View) RecoveryHistory(device string) (RecoveryHistory, error) {
	d := v.devices.get(device)
	if d == nil {
		return RecoveryHistory{}, ErrNotFound
	}
	h := RecoveryHistory{Limit: v.settings.FlapLimit, WindowMS: v.settings.FlapWindowMS}
	for i := len(d.Recoveries) - 1; i >= 0; i-- {
		if r := d.Recoveries[i]; r.UptimeMS > v.uptimeMS()-h.WindowMS {
			h.Recoveries = append(h.Recoveries, r)
		}
	}
	h.Remaining = max(0, h.Limit-int64(len(h.Recoveries)))
	return h, nil
}

// Matching returns the IDs of the devices that match a selector now, volatile
// labels included, and of those that are ready, both sorted. The error is a
// *selector.Error.
func (v *View) Matching(text string) (all, free []string, err error) {
	parsed, err := selector.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	v.devices.scan(func(id string, d *model.Device) bool {
		if parsed.Match(d.Label) {
			all = append(all, id)
			if d.State == model.DeviceReady {
				free = append(free, id)
			}
		}
		return true
	})
	return all, free, nil
}

// Counts are sizes for status pages and metrics.
type Counts struct {
	Jobs, Queued, Active, Finished int
	QueuedBytes, FinishedBytes     int64 // about what they take in memory
	Selectors                      int   // distinct, among queued jobs
	Leases, Devices, Agents        int
	Requests                       int
}

// Counts returns the sizes of the tables. It costs the same at every size.
func (v *View) Counts() Counts {
	return Counts{
		Jobs: v.jobs.len(), Queued: v.queue.len(), Active: v.active.len(), Finished: v.ended.len(),
		QueuedBytes: v.queuedBytes, FinishedBytes: v.finishedBytes, Selectors: v.queuedSelectors(),
		Leases: v.leases.len(), Devices: v.devices.len(), Agents: v.agents.len(), Requests: v.requests.len(),
	}
}

// PruneNeeded reports whether a job.prune would forget anything.
func (v *View) PruneNeeded() bool {
	if _, ok := v.prunableJob(); ok {
		return true
	}
	oldest, ok := v.requestAge.tree.Min()
	return ok && v.requestsNearlyFull() && v.uptimeMS()-oldest.uptime >= v.settings.RequestMinAgeMS
}

// String names the view for logs.
func (v *View) String() string {
	return "index " + strconv.FormatUint(v.index, 10) + " digest " + v.digest.String()
}

// position is QueuePosition for a row of this view.
func (v *View) position(j *model.Job) int {
	if j.State != model.JobQueued {
		return 0
	}
	order := scheduler.OrderOf(j)
	if j.Pinned == "" {
		return v.queue.rank(order) + 1
	}
	first := v.pinned.rank(pinnedKey{device: j.Pinned, order: firstOrder})
	return v.pinned.rank(pinnedKey{device: j.Pinned, order: order}) - first + 1
}
