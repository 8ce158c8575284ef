package fsm

import (
	"fmt"
	"strings"

	"rcd/model"
)

// WaitCode is why a job waits, for programs.
type WaitCode string

// The codes. Of the first three a job has at most one, and then nothing else.
const (
	// WaitNoDevice: no registered device matches any more, volatile labels
	// aside, or the pinned one is gone.
	WaitNoDevice WaitCode = "no_device"
	// WaitNoneTolerates: no device that matches allows the runtime.
	WaitNoneTolerates WaitCode = "none_tolerates"
	// WaitNoneMatchesNow: a volatile label of every such device keeps it from
	// matching just now.
	WaitNoneMatchesNow WaitCode = "none_matches_now"

	// WaitDeviceBusy: devices that it could use are held.
	WaitDeviceBusy WaitCode = "device_busy"
	// WaitDeviceOut: devices that it could use are out of the pool.
	WaitDeviceOut WaitCode = "device_out_of_pool"
	// WaitBehind: jobs ahead could take a device that it could use.
	WaitBehind WaitCode = "behind"
)

// maxWaitDevices is how many devices a reason names.
const maxWaitDevices = 5

// Waiting is why a queued job waits, and for how long. The slices are the
// caller's.
type Waiting struct {
	Reasons  []WaitReason // at least one
	Expected Expected
}

// WaitReason is one reason why a job waits. Fields that its code does not name
// are zero.
type WaitReason struct {
	Code    WaitCode
	Message string // a sentence for people, without times

	// Devices of device_busy, those first that come free first, and of
	// device_out_of_pool, by ID: the first few. More is how many there are
	// beyond them.
	Devices []WaitDevice
	More    int

	Ahead int // behind: how many jobs
	// Fleet: there are too many jobs ahead to look at each, and Ahead is the
	// number of all of them, whatever devices they want.
	Fleet bool

	RuntimeS, LargestS int64 // none_tolerates: what it asks for and the largest ceiling

	Keys []string // none_matches_now: labels that keep devices from matching, sorted

	// SinceMS is the now since when no registered device can run the job, which
	// ends when that lasts for no_serve_grace_ms: of no_device, none_tolerates
	// and device_out_of_pool, 0 when one can or the job is only thought of.
	SinceMS int64
}

// WaitDevice is a device that a job could use, and what keeps it.
type WaitDevice struct {
	Device string
	State  model.DeviceState
	Absent bool         // its host no longer declares it
	Reason model.Reason // of its quarantine
	Detail string       // for people
	// Person is why only an administrator ends its quarantine, for people; empty
	// when its host's proof can.
	Person string

	Job    uint64 // that holds it, 0: none
	Holder string
	Note   string // of the lease
	// LatestEndMS is when its holder has left it at the latest, 0 when that
	// cannot be said. Past: the job is over its limit and has not ended.
	LatestEndMS int64
	Past        bool
}

// Waiting says why a job waits, as of the view's now; false when there is no
// such job or it is not queued.
func (v *View) Waiting(number uint64) (Waiting, bool) { return v.WaitingAt(number, v.nowMS()) }

// WaitingAt is Waiting for the present now (Unix milliseconds), which on an
// idle log is past the view's. It looks at every registered device once and at
// most 10,000 jobs ahead.
func (v *View) WaitingAt(number uint64, nowMS int64) (Waiting, bool) {
	j := v.jobs.get(number)
	if j == nil || j.State != model.JobQueued {
		return Waiting{}, false
	}
	c, err := claimOf(j)
	if err != nil {
		return Waiting{}, false // refused at submit
	}
	s := v.survey(&c, nowMS)
	w := v.waiting(&c, &s, nowMS)
	v.date(w.Reasons, j)
	return w, true
}

// date adds to the reasons of a job that no registered device can run since
// when that is so. A device that its host no longer declares runs nobody.
func (v *View) date(reasons []WaitReason, j *model.Job) {
	since := v.unservedSinceMS(j)
	if since == 0 {
		return
	}
	for i := range reasons {
		switch r := &reasons[i]; r.Code {
		case WaitNoDevice, WaitNoneTolerates, WaitDeviceOut:
			r.SinceMS = since
			r.Message += fmt.Sprintf(" The job ends when that has lasted for %d s.", v.settings.NoServeGraceMS/secondMS)
		}
	}
}

// waiting says why a claim is not served now. A claim that a free device could
// serve has no reason to wait.
func (v *View) waiting(c *claim, s *survey, nowMS int64) Waiting {
	if len(s.usable) == 0 || s.usable[0].device.State == model.DeviceReady {
		w := Waiting{Expected: expect(s, contest{}, nowMS)}
		if len(s.usable) == 0 {
			w.Reasons = []WaitReason{unusable(c, s)}
		}
		return w
	}
	k := v.contest(c, s, nowMS)
	w := Waiting{Expected: expect(s, k, nowMS)}
	if s.inPool > 0 {
		w.Reasons = append(w.Reasons, v.busy(s.usable[:s.inPool], nowMS))
	}
	if s.inPool < len(s.usable) {
		w.Reasons = append(w.Reasons, v.outOfPool(s.usable[s.inPool:], nowMS))
	}
	if k.ahead > 0 {
		w.Reasons = append(w.Reasons, behind(k))
	}
	return w
}

// unusable is the reason of a claim that no device could serve even if all were
// free.
func unusable(c *claim, s *survey) WaitReason {
	switch {
	case s.matching == 0 && c.pinned != "":
		return WaitReason{Code: WaitNoDevice, Message: "Its device " + short(c.pinned) + " is no longer registered."}
	case s.matching == 0:
		return WaitReason{Code: WaitNoDevice, Message: "No registered device matches it."}
	case s.tolerated == 0:
		return WaitReason{Code: WaitNoneTolerates, RuntimeS: c.runtimeS, LargestS: s.largestS, Message: tooLong(c, s.largestS)}
	}
	return WaitReason{
		Code: WaitNoneMatchesNow, Keys: s.unmet,
		Message: "Devices match it but for what changes with their use, just now: " + strings.Join(s.unmet, ", ") + ".",
	}
}

// tooLong says what a claim asks for and what it could have instead.
func tooLong(c *claim, largestS int64) string {
	allowed := fmt.Sprintf("no device that matches allows more than %d s", largestS)
	if c.pinned != "" {
		allowed = fmt.Sprintf("%s allows %d s at most", short(c.pinned), largestS)
	}
	next := "ask for less"
	if c.queued {
		next = "kill it and submit it again with less"
	}
	return fmt.Sprintf("It asks for %d s and %s; %s.", c.runtimeS, allowed, next)
}

func (v *View) busy(held []candidate, nowMS int64) WaitReason {
	r := WaitReason{Code: WaitDeviceBusy}
	r.Devices, r.More = v.waitDevices(held, nowMS)
	first := &r.Devices[0]
	holder := first.Device + " is held by " + short(first.Holder) + " with job " + model.JobID(first.Job)
	end := "."
	switch {
	case first.Past:
		end = ", which is past its limit and has not ended yet."
	case first.LatestEndMS == 0:
		end = ", which has no limit."
	}
	if len(held) == 1 {
		r.Message = holder + end
		return r
	}
	r.Message = fmt.Sprintf("Each of the %d devices of the pool that it could use is held; %s%s", len(held), holder, end)
	return r
}

func (v *View) outOfPool(out []candidate, nowMS int64) WaitReason {
	r := WaitReason{Code: WaitDeviceOut}
	r.Devices, r.More = v.waitDevices(out, nowMS)
	r.Message = outSentence(&r.Devices[0])
	if len(out) > 1 {
		r.Message = fmt.Sprintf("%d devices that it could use are out of the pool; %s", len(out), r.Message)
	}
	return r
}

// outSentence says why a device is out of the pool, and whose turn it is.
func outSentence(d *WaitDevice) string {
	switch {
	case d.State == model.DeviceUnhealthy && d.Person != "":
		return d.Device + " is in quarantine (" + withDetail(d) + ") until an administrator clears it: " + d.Person + "."
	case d.State == model.DeviceUnhealthy:
		return d.Device + " is in quarantine (" + withDetail(d) + ") until its host proves that nothing is left on it, or an administrator clears it."
	case d.Absent:
		return d.Device + " is no longer declared by its host."
	}
	return d.Device + " is not in contact: its host's agent is silent."
}

// person says why no proof of its host returns a device from quarantine.
func (v *View) person(d *model.Device) string {
	if d.State != model.DeviceUnhealthy {
		return ""
	}
	if d.Reason == model.ReasonFault || d.Reason == model.ReasonUnrecorded {
		return "no proof answers for that"
	}
	if a := v.agents.get(d.Host); a != nil && a.ManualClear {
		return "its host wants no automatic return"
	}
	if h, err := v.RecoveryHistory(d.ID); err == nil && h.Remaining == 0 {
		return "its automatic returns are used up for now"
	}
	return ""
}

func withDetail(d *WaitDevice) string {
	if d.Detail == "" {
		return d.Reason.String()
	}
	return d.Reason.String() + ": " + short(d.Detail)
}

func (v *View) waitDevices(of []candidate, nowMS int64) (devices []WaitDevice, more int) {
	n := min(len(of), maxWaitDevices)
	for _, c := range of[:n] {
		devices = append(devices, v.waitDevice(c, nowMS))
	}
	return devices, len(of) - n
}

func (v *View) waitDevice(c candidate, nowMS int64) WaitDevice {
	d := c.device
	w := WaitDevice{Device: d.ID, State: d.State, Absent: d.Absent, Reason: d.Reason, Detail: d.Detail, Person: v.person(d)}
	l := v.leases.get(d.Lease)
	if l == nil {
		return w
	}
	w.Job, w.Holder, w.Note = l.Jobs[0], l.Holder, l.Note
	if c.freeMS != noEnd {
		w.LatestEndMS = c.freeMS
		return w
	}
	_, w.Past = v.leaseEndMS(l, nowMS)
	return w
}

func behind(k contest) WaitReason {
	r := WaitReason{Code: WaitBehind, Ahead: k.ahead, Fleet: k.tooMany}
	switch {
	case k.tooMany:
		r.Message = fmt.Sprintf("%d jobs are ahead of it in the queue of the whole fleet, too many to say which of them want its devices.", k.ahead)
	case k.ahead == 1:
		r.Message = "1 job ahead of it could take a device that it could use."
	default:
		r.Message = fmt.Sprintf("%d jobs ahead of it could take a device that it could use.", k.ahead)
	}
	return r
}

// unservedSinceMS returns the now since when no registered device can run a
// queued job, 0 when that is not known.
func (v *View) unservedSinceMS(j *model.Job) int64 {
	since, ok := v.UnservedSince(j)
	if !ok {
		return 0
	}
	return v.nowMS() - (v.uptimeMS() - since)
}
