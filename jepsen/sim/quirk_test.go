package sim

import "testing"

// TestTheWitnessSeesABrokenPart breaks one fake part at a time. A witness that
// lets every storm pass then would prove nothing.
func TestTheWitnessSeesABrokenPart(t *testing.T) {
	quirks := []struct {
		name  string
		quirk Quirk
		seeds int // within which it has to be seen
	}{
		{"hosts without a fence", QuirkNoFence, 4000},
		{"hosts that forget outcomes unacked", QuirkForgetOutcome, 200},
		{"hellos admitted while a sweep is in flight", QuirkAdmitInVerdict, 4000},
		{"passed leaders that order what a later one placed", QuirkOrderAhead, 4000},
		{"leaders that forget what they ordered", QuirkForgetOrders, 1000},
		{"hosts that prove without looking", QuirkBlindProof, 4000},
	}
	for _, q := range quirks {
		t.Run(q.name, func(t *testing.T) {
			seen := false
			sweepSeeds(t, *firstFlag, q.seeds, q.quirk, func(seed uint64, err error) bool {
				if !seen {
					t.Logf("seen at seed %d: %.300v", seed, err)
				}
				seen = true
				return true
			})
			if !seen {
				t.Errorf("%d seeds passed", q.seeds)
			}
		})
	}
}
