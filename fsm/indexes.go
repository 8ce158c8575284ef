package fsm

import (
	"rcd/model"
	"rcd/scheduler"
)

// indexJob moves a job's index entries from what old asks for to what now asks
// for; either is nil when there is no such row.
func (t *txn) indexJob(old, now *model.Job) {
	t.indexQueue(old, now)
	if was, is := old != nil && old.State.Active(), now != nil && now.State.Active(); was != is {
		if is {
			t.active.add(now.Number)
		} else {
			t.active.drop(old.Number)
		}
	}
	if was, is := old != nil && old.State.Terminal(), now != nil && now.State.Terminal(); was != is {
		if is {
			t.ended.add(agedKey{now.EndUptimeMS, now.Number})
			t.byEnd.add(endKey{now.State, now.Number})
			t.finishedBytes += jobBytes(now)
		} else {
			t.ended.drop(agedKey{old.EndUptimeMS, old.Number})
			t.byEnd.drop(endKey{old.State, old.Number})
			t.finishedBytes -= jobBytes(old)
		}
	}
	t.indexHistory(old, now)
	t.indexHolds(old, now)
}

// indexHolds keeps what runs inside holds, and holds that their clients must be
// heard for.
func (t *txn) indexHolds(old, now *model.Job) {
	switch {
	case old == nil && now.Hold != 0:
		t.byHold.add(holdKey{now.Hold, now.Number})
	case now == nil && old.Hold != 0:
		t.byHold.drop(holdKey{old.Hold, old.Number})
	}
	if was, is := hasSession(old), hasSession(now); was != is {
		if is {
			t.sessions.add(now.Number)
		} else {
			t.sessions.drop(old.Number)
		}
	}
}

func hasSession(j *model.Job) bool { return j != nil && j.SessionS != 0 && !j.State.Terminal() }

// indexQueue keeps the queue's indexes and the scheduler.
func (t *txn) indexQueue(old, now *model.Job) {
	was, is := old != nil && old.State == model.JobQueued, now != nil && now.State == model.JobQueued
	if was && is && sameQueueing(old, now) {
		return
	}
	if is && t.sched.Moved() {
		t.noteUnserved() // what was before this job came does not count for it
	}
	if was {
		t.queue.drop(scheduler.OrderOf(old))
		if old.Pinned != "" {
			t.pinned.drop(pinnedKey{old.Pinned, scheduler.OrderOf(old)})
		}
		t.targets.change(targetOf(old), -1)
		t.queuedBytes -= jobBytes(old)
		t.sched.Remove(old)
		t.jobLeft(old)
	}
	if is {
		t.queue.add(scheduler.OrderOf(now))
		if now.Pinned != "" {
			t.pinned.add(pinnedKey{now.Pinned, scheduler.OrderOf(now)})
		}
		t.targets.change(targetOf(now), 1)
		t.queuedBytes += jobBytes(now)
		t.sched.Add(now)
	}
}

func sameQueueing(a, b *model.Job) bool {
	return a.QueueAtMS == b.QueueAtMS && a.Pinned == b.Pinned && a.Selector == b.Selector &&
		scheduler.Runtime(a) == scheduler.Runtime(b) && jobBytes(a) == jobBytes(b)
}

// Targets of queued jobs: "d " and a device, or "s " and a selector as written.
const (
	deviceTarget   = "d "
	selectorTarget = "s "
)

func targetOf(j *model.Job) string {
	if j.Pinned != "" {
		return deviceTarget + j.Pinned
	}
	return selectorTarget + j.Selector
}

// What a job takes in memory beside its texts, measured (BenchmarkMemory): the
// row, its older version that a tree node may still hold, its keys in the
// indexes; a string of the command; a variable's place in a map, with the
// rounding of its two strings.
const (
	rowBytes      = 1024
	argBytes      = 16 + 8
	variableBytes = 96
)

// jobBytes is what a job counts against MaxQueuedBytes, then MaxFinishedBytes:
// about what it takes in memory. It does not change while a job is queued, nor
// once it has ended.
func jobBytes(j *model.Job) int64 {
	n := rowBytes + len(j.Pinned) + len(j.Selector) + len(j.Cwd) + len(j.Submitter) +
		len(j.Identity) + len(j.ClientKey) + len(j.Note) + len(j.KillBy) + len(j.EndReason)
	for _, arg := range j.Command {
		n += argBytes + len(arg)
	}
	return int64(n) + int64(len(j.Env))*variableBytes + j.EnvBytes()
}

// indexHistory keeps the jobs of a device and of a submitter.
func (t *txn) indexHistory(old, now *model.Job) {
	if old == nil {
		t.bySubmitter.add(namedKey{now.Submitter, now.Number})
	}
	if now == nil {
		t.bySubmitter.drop(namedKey{old.Submitter, old.Number})
	}
	was, is := historyDevices(old), historyDevices(now)
	for _, d := range was {
		if !contains(is, d) {
			t.byDevice.drop(namedKey{d, old.Number})
		}
	}
	for _, d := range is {
		if !contains(was, d) {
			t.byDevice.add(namedKey{d, now.Number})
		}
	}
}

// historyDevices are the devices in whose history a job stands: those it was
// placed on, else the one it waits for.
func historyDevices(j *model.Job) []string {
	switch {
	case j == nil:
		return nil
	case len(j.Devices) > 0:
		return j.Devices
	case j.Pinned != "":
		return []string{j.Pinned}
	}
	return nil
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
