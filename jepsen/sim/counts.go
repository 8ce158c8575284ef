package sim

import (
	"fmt"
	"reflect"
)

// Counts says how often what a storm is for has really happened. A set of runs
// in which one of them hardly did has not tested it.
type Counts struct {
	// Log and leaders.
	Terms, LostEntries, KeptEntries, StaleProposals, GhostEntries, StaleRefused, Crashes, Restores int
	// Controllers.
	Checkpoints, MembersPut, MembersRemoved, Raised, Ghosts, RaiseRefused, FormerRefused, MovedAway int
	// Sessions and hosts.
	Attached, Starts, Kills, RefusedOrders, Fenced, Orphans, Repeated, Survivors, Processes, WrongMachine, Dropped, Frozen, TooLate int
	// What hosts say beside jobs.
	News, Facts, FactsRepeated, LabelsReplaced, SheetsPut, Extends, Prolonged, Rounded, Proofs, Faults, DevicesAdded, DevicesLeftOut, Replaced int
	// Clients.
	Acked, Retries, RepeatsAnswered, Refused, NotPlaced, KeyReused, Overloaded, Arrays, Holds                            int
	AskedAgain, Extended, ExtendedAbove, ExtendRefused, Released, ReleaseRefused, Forced, Allocated, Snatched, Scheduled int
	// Work inside holds, and their clients.
	Inside, InsideRefused, Beside, InsideAsked, InsideAlone, Sessions, SessionsSilent, SessionsHeard, SessionsEnded, SessionsQueued int
	// Operators.
	DevicesRetired, HostsRetired, RetiredAlive, RetireRefused, Permits, Permitted int
	// Verdicts and returns.
	Sweeps, Withheld, FlapWithheld, Lies, Forged, SilentLost, UnnamedLost, RegistrationLost, Requeued, Late, Finalized, Cleared, Recovered, RecoveredLater, WrittenOff, FaultsBusy, FaultsIdle, UnservedJobs, RetiredJobs, Refusals, Pruned int
	// Ends.
	Succeeded, Failed, Killed, Lost int
}

// Add sums two counts.
func (c *Counts) Add(other Counts) {
	into, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(other)
	for i := range into.NumField() {
		into.Field(i).SetInt(into.Field(i).Int() + from.Field(i).Int())
	}
}

// Rare names what happened less than so often.
func (c Counts) Rare(least int64) []string {
	var names []string
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if v.Field(i).Int() < least {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// String lists all counts.
func (c Counts) String() string {
	type plain Counts // has no String of its own
	return fmt.Sprintf("%+v", plain(c))
}
