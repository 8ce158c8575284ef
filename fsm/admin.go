package fsm

import (
	"rcd/fsm/command"
	"rcd/model"
	"rcd/scheduler"
)

// deviceClear is an operator's word that a quarantined device is free. It
// cannot contradict the lease table, nor make a silent host reachable.
func (t *txn) deviceClear(b *command.DeviceClear) answer {
	d := t.devices.get(b.Device)
	switch {
	case d == nil:
		return refuse(command.DeviceNotCleared, "There is no device %q; list the devices to see their names.", short(b.Device))
	case d.State != model.DeviceUnhealthy:
		return refuse(command.DeviceNotCleared, "%s is %s, not in quarantine; there is nothing to clear.", d.ID, d.State)
	case d.Lease != 0:
		return refuse(command.DeviceNotCleared, "%s", t.heldBy(d))
	}
	row := *d
	t.release(&row)
	return answer{device: d.ID}
}

// maxPruneRows bounds what one prune may cost.
const maxPruneRows = 10_000

// jobPrune forgets the oldest finished jobs past the bounds, and the oldest
// request IDs when their table is nearly full.
func (t *txn) jobPrune(b *command.JobPrune) answer {
	limit := min(int(b.Limit), maxPruneRows)
	for range limit {
		oldest, ok := t.prunableJob()
		if !ok {
			break
		}
		t.dropJob(oldest)
	}
	for range limit {
		if !t.requestsNearlyFull() || !t.dropOldestRequest() {
			break
		}
	}
	return answer{}
}

// prunableJob returns the oldest finished job when a bound is passed.
func (v *View) prunableJob() (uint64, bool) {
	oldest, ok := v.ended.tree.Min()
	if !ok {
		return 0, false
	}
	tooMany := int64(v.ended.len()) > v.settings.MaxFinished
	tooOld := v.uptimeMS()-oldest.uptime > v.settings.FinishedAgeMS
	tooLarge := v.finishedBytes > v.settings.MaxFinishedBytes
	return oldest.number, tooMany || tooOld || tooLarge
}

// requestsNearlyFull leaves a prune an eighth of the table to clear, so that
// the bound is met only under real pressure.
func (v *View) requestsNearlyFull() bool {
	return int64(v.requests.len()) > v.settings.MaxRequests-(v.settings.MaxRequests+7)/8
}

// configSet changes settings, all or none.
func (t *txn) configSet(b *command.ConfigSet) answer {
	if len(b.Settings) == 0 {
		return refuse(command.BadRequest, "There is no setting in the request; name at least one.")
	}
	next := t.settings
	for _, s := range b.Settings {
		rule := settingNamed(s.Name)
		if rule == nil {
			return refuse(command.UnknownSetting, "There is no setting %q; list the settings to see their names.", short(s.Name))
		}
		if s.Value < rule.min || s.Value > rule.max {
			return refuse(command.SettingRefused, "%s is from %d to %d; %d is outside.", s.Name, rule.min, rule.max, s.Value)
		}
		rule.set(&next, s.Value)
	}
	if next.WriteOffAfterMS <= max(next.UnknownAfterMS, next.UnknownSilenceMS) {
		return refuse(command.SettingRefused, "write_off_after_ms must be above unknown_after_ms and unknown_silence_ms; raise it first.")
	}
	aging := t.settings.AgingMS != next.AgingMS
	t.settings = next
	if aging {
		t.rekeyQueue()
	}
	t.reviewWithholding()
	t.emit(command.Event{Kind: command.EventSettings})
	return answer{}
}

// rekeyQueue gives every queued job its place under the present aging.
func (t *txn) rekeyQueue() {
	rows := make([]*model.Job, 0, t.queue.len())
	for j := range t.View.Queued() {
		rows = append(rows, j)
	}
	for _, j := range rows {
		row := *j
		row.QueueAtMS = scheduler.KeyAt(row.QueuedUptimeMS, row.Priority, t.settings.AgingMS)
		t.putJob(row)
	}
}
