package fsm

import (
	"fmt"

	"rcd/fsm/command"
	"rcd/model"
)

// judgeSession judges a hold that lives and dies with its client by how long that
// has been silent. Half of what it allows is said, all of it ends the hold, in
// the queue too: it must not take a device for nobody. No evidence reaches back
// before the epoch or the submission, and within the holdoff nobody is ended.
func (t *txn) judgeSession(s command.SessionSilence, age int64, judging bool) {
	j := t.jobs.get(s.Job)
	if !hasSession(j) || j.KillRequested {
		return
	}
	if s.SilenceMS <= 0 {
		if j.SessionSilent {
			t.markSilent(j, false)
		}
		return
	}
	silence, bound := min(s.SilenceMS, age, t.uptimeMS()-j.QueuedUptimeMS), j.SessionS*secondMS
	if silence >= bound/2 && !j.SessionSilent {
		j = t.markSilent(j, true)
	}
	if silence >= bound && judging {
		// Whether its host is in contact is known here well enough: endByWish asks
		// for what a sweep has said.
		t.endByWish(j, fmt.Sprintf("the session of its client has ended: no word for %d s", silence/secondMS), true)
	}
}

// markSilent notes that the client of a hold falls silent, or is heard again.
func (t *txn) markSilent(j *model.Job, silent bool) *model.Job {
	row := *j
	row.SessionSilent = silent
	kind := command.EventHoldHeard
	if silent {
		kind = command.EventHoldSilent
	}
	t.emit(command.Event{Kind: kind, Job: j.Number, Host: j.Host})
	return t.putJob(row)
}

// Sessions returns the holds that have a session and have not ended, by number:
// those whose clients a leader listens for. The caller owns the slice.
func (v *View) Sessions() []*model.Job {
	rows := make([]*model.Job, 0, v.sessions.len())
	v.sessions.tree.Scan(func(number uint64) bool {
		rows = append(rows, v.jobs.get(number))
		return true
	})
	return rows
}
