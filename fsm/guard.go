package fsm

import (
	"fmt"

	"rcd/fsm/command"
)

// recentMS is the hour whose agents count for the guard below, in uptime.
const recentMS = hourMS

// writeOffAll writes off the agents whose silence is past the bound, unless so
// many are silent that the fault is more likely here than there: then nobody is
// written off until an operator says so.
func (t *txn) writeOffAll(due []string) {
	silent, recent := t.silentAgents()
	many := silent > t.settings.MassFloor && silent*100 > t.settings.MassPercent*recent
	if many && t.anyLeftToWriteOff(due) && !t.settings.MassPermit {
		t.withhold(silent, recent)
		return
	}
	if t.meta.WithheldUptime != 0 && (!many || len(due) > 0) {
		t.meta.WithheldTerm, t.meta.WithheldUptime, t.meta.WithheldLast = 0, 0, 0
	}
	if many && t.settings.MassPermit && t.anyLeftToWriteOff(due) {
		t.settings.MassPermit = false // it was for this time
		t.emit(command.Event{Kind: command.EventSettings})
	}
	for _, host := range due {
		t.writeOff(host)
	}
}

// anyLeftToWriteOff reports whether one of the hosts has not been written off.
func (t *txn) anyLeftToWriteOff(due []string) bool {
	for _, host := range due {
		if !t.agents.get(host).WrittenOff {
			return true
		}
	}
	return false
}

// silentAgents counts the agents heard in the last hour, and those of them that
// are silent now. All that are silent count, not only those past the bound: a
// cut network silences its hosts within seconds, but not within one sweep.
func (t *txn) silentAgents() (silent, recent int64) {
	for _, a := range t.View.Agents() {
		switch {
		case !a.Silent:
			recent++
		case t.uptimeMS()-a.HeardUptimeMS <= recentMS:
			recent++
			silent++
		}
	}
	return silent, recent
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
