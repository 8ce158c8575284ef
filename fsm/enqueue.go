package fsm

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/model/selector"
	"rcd/scheduler"
)

// Priorities that a submitter may ask for.
const (
	minPriority = -10
	maxPriority = 10
)

// jobEnqueue queues all jobs of the command or none.
func (t *txn) jobEnqueue(b *command.JobEnqueue, identity string) answer {
	if len(b.Jobs) == 0 {
		return refuse(command.BadRequest, "There is no job in the request; name at least one.")
	}
	if int64(len(b.Jobs)) > t.settings.MaxArray {
		return refuse(command.ArrayTooLarge, "An array holds at most %d jobs and this one has %d; split it.", t.settings.MaxArray, len(b.Jobs))
	}
	rows := make([]model.Job, len(b.Jobs))
	for i := range b.Jobs {
		if a := t.checkSpec(&b.Jobs[i]); a.Code != command.OK {
			if len(b.Jobs) > 1 {
				a.Message = fmt.Sprintf("Job %d of the array: %s", i+1, a.Message)
			}
			return a
		}
		rows[i] = t.newJob(&b.Jobs[i], identity)
	}
	if a := t.checkRoomInside(rows); a.Code != command.OK {
		return a
	}
	if a := t.checkQueue(rows); a.Code != command.OK {
		return a
	}
	var a answer
	for _, row := range rows {
		t.meta.LastJob++
		row.Number = t.meta.LastJob
		a.jobs = append(a.jobs, row.Number)
		t.emit(command.Event{Kind: command.EventJobQueued, Job: row.Number})
		if row.Hold != 0 {
			t.enterHold(row) // never in the queue, not even for a moment
			continue
		}
		t.putJob(row)
		if row.NoWait {
			t.noWait = append(t.noWait, row.Number)
		}
	}
	return a
}

// Bounds of what a submitter says of a job, in bytes and seconds. Ten years
// are beyond any job, and far from where nanoseconds overflow.
const (
	maxSubmitter = 256
	maxNote      = 1024
	maxCwd       = 4096
	maxRuntimeS  = 10 * 365 * 24 * 3600
	maxNamed     = 128 // of a name that comes back in a sentence
)

// checkSpec refuses what no queue should hold.
func (t *txn) checkSpec(s *command.JobSpec) answer {
	if a := checkShape(s); a.Code != command.OK {
		return a
	}
	if s.Priority < minPriority || s.Priority > maxPriority {
		return refuse(command.PriorityOutOfRange, "The priority is %d; choose one from %d to %d.", s.Priority, minPriority, maxPriority)
	}
	if n := model.EnvBytes(s.Env); n > t.settings.MaxEnvBytes {
		return refuse(command.EnvTooLarge, "The environment has %d bytes and the limit is %d; pass large values in a file.", n, t.settings.MaxEnvBytes)
	}
	switch {
	case (s.Hold != 0 || s.SessionS != 0) && t.meta.Feature < LevelInside:
		return refuse(command.FeatureRefused, "The cluster is at feature level %d, and jobs inside holds and sessions of holds need %d; upgrade every controller first.", t.meta.Feature, LevelInside)
	case s.Hold != 0:
		return t.checkInside(s)
	case s.Pinned != "":
		return t.checkPinned(s)
	}
	return t.checkSelector(s)
}

func checkShape(s *command.JobSpec) answer {
	bad := func(sentence string) answer { return refuse(command.BadRequest, "%s", sentence) }
	switch {
	case s.Submitter == "":
		return bad("The submitter is missing; say who asks.")
	case badName(s.Submitter):
		return bad("The submitter is longer than 256 bytes or holds a control character; say who asks in a short name.")
	case len(s.Note) > maxNote:
		return bad("The reason is longer than 1024 bytes; say it shorter.")
	case len(s.ClientKey) > command.MaxRequestID:
		return bad("The idempotency key is longer than 256 bytes; use a shorter one, such as a UUID.")
	case len(s.Cwd) > maxCwd:
		return bad("The directory is longer than 4096 bytes; no host has such a path.")
	case s.MaxRuntimeS > maxRuntimeS || s.IdleTimeoutS > maxRuntimeS:
		return bad("A runtime or an idle timeout is at most ten years; ask for less, or leave it out.")
	case s.Hold == 0 && s.Pinned == "" && s.Selector == "":
		return bad("There is no target; name a device or give a selector.")
	case s.Hold == 0 && s.Pinned != "" && s.Selector != "":
		return bad("There are two targets; name a device or give a selector, not both.")
	case s.Kind > model.KindHold:
		return bad("This kind is not known; use job or hold.")
	case s.Stdio > model.StdioPipe:
		return bad("This stdio mode is not known; use tty, pipe or none.")
	case s.Kind == model.KindJob && len(s.Command) > 0 && s.Command[0] == "":
		return bad("The program's name is empty; give a program.")
	case s.Kind == model.KindJob && len(s.Command) == 0:
		return bad("There is no command; give at least a program.")
	case s.Kind == model.KindHold && (len(s.Command) > 0 || s.Cwd != "" || len(s.Env) > 0 || s.IdleTimeoutS != 0 || s.Stdio != model.StdioLogs):
		return bad("A hold runs nothing; leave out command, directory, environment, idle timeout and stdio.")
	case s.Kind == model.KindHold && s.MaxRuntimeS <= 0:
		return bad("A hold needs an end; say for how long.")
	}
	return checkHoldShape(s)
}

// badName reports whether a text is no name of a submitter, or of who speaks for
// one. An administrator need not give any.
func badName(text string) bool {
	return len(text) > maxSubmitter || strings.ContainsFunc(text, unicode.IsControl)
}

// clip cuts a text for people to what a row keeps of it.
func clip(text string) string {
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote], "") + "…"
}

// short cuts a text that is to come back in a sentence.
func short(text string) string {
	if len(text) <= maxNamed {
		return text
	}
	return strings.ToValidUTF8(text[:maxNamed], "") + "…"
}

func (t *txn) checkPinned(s *command.JobSpec) answer {
	d := t.devices.get(s.Pinned)
	if d == nil {
		return refuse(command.UnknownDevice, "No host has registered a device %q; list the devices to see their names.", short(s.Pinned))
	}
	if d.Absent {
		return refuse(command.UnknownDevice, "The host of %s no longer declares it; list the devices and choose another.", d.ID)
	}
	if !scheduler.Tolerates(d.MaxRuntimeS, s.MaxRuntimeS) {
		return refuse(command.RuntimeAboveLimit, "The job asks for %d s and %s allows %d s at most; ask for less or use another device.", s.MaxRuntimeS, d.ID, d.MaxRuntimeS)
	}
	return answer{}
}

func (t *txn) checkSelector(s *command.JobSpec) answer {
	parsed, err := selector.Parse(s.Selector)
	if err != nil {
		return refuse(command.BadSelector, "%s.", err)
	}
	matched, tolerated := t.sched.Serves(s.Selector, parsed, s.MaxRuntimeS)
	switch {
	case !matched:
		return refuse(command.NoMatchingDevice, "No registered device matches %q; list the devices to see their labels.", short(s.Selector))
	case !tolerated:
		return refuse(command.RuntimeAboveLimit, "The job asks for %d s and no device that matches %q allows as much; ask for less.", s.MaxRuntimeS, short(s.Selector))
	}
	return answer{}
}

// newJob returns the row of a checked job, without its number.
func (t *txn) newJob(s *command.JobSpec, identity string) model.Job {
	j := model.Job{
		Kind: s.Kind, State: model.JobQueued, Pinned: s.Pinned, Selector: s.Selector, Count: 1,
		Command: s.Command, Cwd: s.Cwd, Env: s.Env,
		Submitter: s.Submitter, Identity: identity, ClientKey: s.ClientKey, Priority: s.Priority,
		MaxRuntimeS: max(s.MaxRuntimeS, 0), IdleTimeoutS: max(s.IdleTimeoutS, 0),
		CeilingAsked: s.MaxRuntimeS > 0,
		Stdio:        s.Stdio, Note: s.Note, NoWait: s.NoWait,
		Hold: s.Hold, SessionS: s.SessionS,
		SubmittedAtMS: t.nowMS(), QueuedAtMS: t.nowMS(), QueuedUptimeMS: t.uptimeMS(),
	}
	if j.Kind == model.KindHold {
		j.Command = []string{"hold"}
	}
	t.inheritCeiling(&j)
	j.QueueAtMS = scheduler.KeyAt(j.QueuedUptimeMS, j.Priority, t.settings.AgingMS)
	return j
}

// inheritCeiling shows a waiting job that asked for no runtime the ceiling of
// the device it is pinned to; a selector job gets one where it lands.
func (t *txn) inheritCeiling(j *model.Job) {
	if j.CeilingAsked {
		return
	}
	j.MaxRuntimeS = 0
	if d := t.devices.get(j.Pinned); d != nil {
		j.MaxRuntimeS = d.MaxRuntimeS
	}
}

// checkQueue refuses what would pass the bounds of the queue, which jobs inside
// holds never see. A single job that
// a free device can take does not wait, so a queue that is full of jobs for other
// devices does not shut it out. Several of them in one entry may want the same
// device: what then waits all the same is above the bound by less than an entry.
func (t *txn) checkQueue(all []model.Job) answer {
	rows := make([]model.Job, 0, len(all))
	for i := range all {
		if all[i].Hold == 0 {
			rows = append(rows, all[i])
		}
	}
	if len(rows) == 0 {
		return answer{}
	}
	full := int64(t.queue.len()+len(rows)) > t.settings.MaxQueued
	if full && !(len(rows) == 1 && t.sched.Placeable(&rows[0])) {
		return refuse(command.QueueFull, "The queue is full (max_queued is %d); wait until some jobs have started.", t.settings.MaxQueued)
	}
	bytes := t.queuedBytes
	var fresh []string
	for i := range rows {
		bytes += jobBytes(&rows[i])
		if target := targetOf(&rows[i]); rows[i].Selector != "" {
			if _, known := t.targets.tree.Get(target); !known {
				fresh = append(fresh, target)
			}
		}
	}
	if bytes > t.settings.MaxQueuedBytes {
		return refuse(command.QueueFull, "Queued jobs take at most %d bytes in all; wait until some have started, or shrink environments and commands.", t.settings.MaxQueuedBytes)
	}
	if len(fresh) == 0 {
		return answer{}
	}
	slices.Sort(fresh)
	if n := int64(t.queuedSelectors() + len(slices.Compact(fresh))); n > t.settings.MaxSelectors {
		return refuse(command.TooManySelectors, "Queued jobs use at most %d different selectors; use one that others use, or wait.", t.settings.MaxSelectors)
	}
	return answer{}
}

// queuedSelectors counts the distinct selectors among queued jobs. Their names
// come after all others in the tally.
func (v *View) queuedSelectors() int {
	low, high := 0, v.targets.tree.Len()
	for low < high {
		middle := (low + high) / 2
		if name, _, _ := v.targets.tree.GetAt(middle); name < selectorTarget {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return v.targets.tree.Len() - low
}
