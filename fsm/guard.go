package fsm

import (
	"fmt"
	"slices"

	"rcd/fsm/command"
)

// recentMS is the hour whose agents count for the guard below, in uptime.
const recentMS = hourMS

// writeOffAll writes off the agents whose silence is past the bound, unless so
// many are silent that the fault is more likely here than there: then nobody is
// written off until an operator says so. Those that were written off before are
// not at stake.
func (t *txn) writeOffAll(due []string) {
	t.reviewWithholding()
	if slices.ContainsFunc(due, func(host string) bool { return !t.agents.get(host).WrittenOff }) {
		if silent, recent := t.silentAgents(); t.tooMany(silent, recent) {
			if !t.settings.MassPermit {
				t.withhold(silent, recent)
				return
			}
			t.endWithholding() // the permit was for this time
		}
	}
	for _, host := range due {
		t.writeOff(host)
	}
}

func (v *View) tooMany(silent, recent int64) bool {
	return silent > v.settings.MassFloor && silent*100 > v.settings.MassPercent*recent
}

// silentAgents counts the agents that a write-off now would be about, and those
// heard in the last hour. All that are silent count, not only those past the
// bound: a cut network silences its hosts within seconds, but not within one
// sweep. What was written off counts for an hour, so that a mass does not pass
// in slices; what was not counts however long it waits, so that waiting is no
// permit.
func (v *View) silentAgents() (silent, recent int64) {
	for _, a := range v.Agents() {
		lately := !a.Silent || v.uptimeMS()-a.HeardUptimeMS <= recentMS
		if lately {
			recent++
		}
		if a.Silent && (lately || !a.WrittenOff) {
			silent++
		}
	}
	return silent, recent
}

// reviewWithholding ends a withholding when no longer too many are silent.
func (t *txn) reviewWithholding() {
	if t.meta.WithheldUptime == 0 {
		return
	}
	if silent, recent := t.silentAgents(); !t.tooMany(silent, recent) {
		t.endWithholding()
	}
}

// endWithholding forgets a withholding, and the permit with it: one that nobody
// needed must not open the way for the next fault.
func (t *txn) endWithholding() {
	t.meta.WithheldTerm, t.meta.WithheldUptime, t.meta.WithheldLast = 0, 0, 0
	if t.settings.MassPermit {
		t.settings.MassPermit = false
		t.emit(command.Event{Kind: command.EventSettings})
	}
}

// withhold notes that a mass write-off waits, once an epoch.
func (t *txn) withhold(silent, recent int64) {
	if t.meta.WithheldUptime == 0 {
		t.meta.WithheldTerm, t.meta.WithheldUptime = t.meta.Term, max(t.meta.Uptime, 1)
	}
	if t.meta.WithheldLast == t.meta.Term {
		return
	}
	t.meta.WithheldLast = t.meta.Term
	t.emit(command.Event{Kind: command.EventWriteOffWithheld, Reason: fmt.Sprintf("%d of %d agents", silent, recent)})
}

// Withheld is a mass write-off that waits for an operator.
type Withheld struct {
	FirstTerm uint64 // epoch that withheld it first
	LastTerm  uint64 // latest epoch that withheld it
	SinceMS   int64  // of uptime
}

// Withheld returns the mass write-off that waits, false when none does.
func (v *View) Withheld() (Withheld, bool) {
	return Withheld{v.meta.WithheldTerm, v.meta.WithheldLast, v.meta.WithheldUptime / nsPerMS}, v.meta.WithheldUptime != 0
}

// StillWithheld reports whether the epoch of a term has withheld a mass
// write-off and would do so again: no agent that was heard since, no setting and
// no permit has changed that.
func (v *View) StillWithheld(term uint64) bool {
	return v.meta.WithheldUptime != 0 && v.meta.WithheldLast == term && !v.settings.MassPermit && v.tooMany(v.silentAgents())
}
