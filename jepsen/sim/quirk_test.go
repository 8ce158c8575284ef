package sim

import (
	"strings"
	"testing"
)

// TestTheWitnessSeesABrokenPart breaks one part at a time. A witness that lets
// every storm pass then would prove nothing.
func TestTheWitnessSeesABrokenPart(t *testing.T) {
	quirks := []struct {
		name  string
		quirk Quirk
		seeds int    // within which it has to be seen
		as    string // what has to be said of it
	}{
		{"hosts without a fence", QuirkNoFence, 4000, "law 3"},
		{"hosts that forget outcomes unacked", QuirkForgetOutcome, 200, "law 9"},
		{"hellos admitted while a sweep is in flight", QuirkAdmitInVerdict, 4000, "law"},
		{"passed leaders that order what a later one placed", QuirkOrderAhead, 4000, "law 3"},
		{"leaders that forget what they ordered", QuirkForgetOrders, 1000, "law 3"},
		{"hosts that prove without looking", QuirkBlindProof, 4000, "law 1"},
		{"leaders that end nothing on an idle log", QuirkNoServeSweep, 1000, "past the grace"},
		{"leadership that moves away again and again", QuirkMoveAgain, 1000, "moves away again"},
		{"hosts that take for told what they said once", QuirkForgetFacts, 1000, "its host says"},
		{"leaders that order no extension", QuirkNoExtend, 1000, "and its host ended it"},
		{"hosts without a watchdog", QuirkNoWatchdog, 1000, "past the limit"},
		{"leaders that listen for no client of a hold", QuirkDeaf, 1000, "the client of a hold is gone"},
		{"a copy of the table that is damaged", QuirkDamagedCopy, 1000, "says that c2 differs"},
		{"a machine that withholds no mass write-off", QuirkMachineNoGuard, 1000, "need a person's word"},
		{"a machine that counts no automatic returns", QuirkMachineFlaps, 1000, "returned by itself"},
		{"a machine that returns devices against their host's wish", QuirkMachineNoManual, 1000, "without evidence"},
		{"a machine that ends too soon what nobody serves", QuirkMachineHasty, 1000, "unserved true"},
		{"a machine that ends too late what nobody serves", QuirkMachineSlow, 1000, "past the grace"},
		{"a machine with a short holdoff", QuirkMachineShortHoldoff, 1000, "law 4"},
		{"a machine that hears who is silent", QuirkMachineHearsSilence, 1000, "without a word of its host"},
		{"a machine that forgives faults", QuirkMachineForgives, 1000, "without an operator"},
		{"a machine that retires devices by itself", QuirkMachineRetires, 1000, "nobody has retired it"},
		{"a machine that forgets faults", QuirkMachineNoFault, 1000, "was reported unfit"},
		{"a machine that forgets request IDs", QuirkMachineNoRequests, 1000, "law 3"},
		{"a machine that clamps runtimes", QuirkMachineClamps, 1000, "was granted"},
		{"a machine with another aging", QuirkMachineAging, 1000, "in front of it"},
		{"a machine that reverses priorities", QuirkMachineReverses, 1000, "asked for"},
		{"a machine that raises the feature level by one word", QuirkMachineWord, 1000, "feature level is"},
		{"a machine that changes something when it refuses", QuirkMachineLeaks, 1000, "law 10"},
	}
	for _, q := range quirks {
		t.Run(q.name, func(t *testing.T) {
			seen := false
			sweepSeeds(t, *firstFlag, q.seeds, q.quirk, func(seed uint64, err error) bool {
				if !strings.Contains(err.Error(), q.as) {
					return seen
				}
				if !seen {
					t.Logf("seen at seed %d: %.300v", seed, err)
				}
				seen = true
				return true
			})
			if !seen {
				t.Errorf("%d seeds passed, or failed without %q", q.seeds, q.as)
			}
		})
	}
}
