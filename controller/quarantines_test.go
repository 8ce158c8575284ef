package controller

import "testing"

func TestTheLatestQuarantineOfAHostIsKnownForItsEpoch(t *testing.T) {
	var q quarantines
	q.note("box", 5) // before any epoch: nobody asks
	q.reset()
	if q.last("box") != 0 {
		t.Error("known of before the epoch")
	}
	q.note("box", 7)
	q.note("other", 9)
	q.note("box", 8)
	if q.last("box") != 8 || q.last("other") != 9 || q.last("nobody") != 0 {
		t.Error(q.last("box"), q.last("other"))
	}
	q.reset()
	if q.last("box") != 0 {
		t.Error("outlives its epoch")
	}
}
