package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
)

// tableOf is a lease table of the hosts named.
func tableOf(t *testing.T, hosts ...string) *fsm.Machine {
	t.Helper()
	machine := fsm.New(fsm.Options{PanicOnInvariant: true})
	apply := func(index uint64, body any) {
		cmd, err := command.Encode(command.Request{}, body)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := command.EncodeEntry(1, time.Now().UnixNano(), [][]byte{cmd})
		if err != nil {
			t.Fatal(err)
		}
		results, _, err := machine.Apply(index, 1, entry)
		if err != nil || results[0].Code != command.OK {
			t.Fatal(results, err)
		}
	}
	apply(1, &command.EpochBegin{Node: "c1", WallMS: time.Now().UnixMilli()})
	for i, host := range hosts {
		apply(uint64(i)+2, &command.AgentRegister{Host: host, MachineID: host, BootID: "b", Instance: "i1", Devices: []command.DeviceSpec{{Name: "gpu0"}}})
	}
	return machine
}

func TestWhatALeaderHeardIsKeptUntilAnotherHeardLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := tableOf(t, "box", "den").View()
		var known told
		if _, old := known.hosts(time.Now()); old >= 0 || !known.old(time.Now()) {
			t.Errorf("nobody has said anything, and that is %v old", old)
		}
		begun := time.Now()
		known.take(view, map[string]time.Duration{"box": time.Second, "den": 2 * time.Second, "gone": time.Second}, begun)
		time.Sleep(time.Minute)
		// Another leader, which was started a moment ago.
		known.take(view, map[string]time.Duration{"box": 0}, time.Now())
		known.take(view, map[string]time.Duration{"box": 0, "den": 0}, begun) // came late
		time.Sleep(time.Second)
		ages, old := known.hosts(time.Now())
		if len(ages) != 2 || ages["box"] != time.Second || ages["den"] != time.Minute+3*time.Second || old != time.Second {
			t.Errorf("ages %v, %v old; want box 1 s, den 1 min 3 s, 1 s old: a host that is not in the table is forgotten", ages, old)
		}
		if known.old(time.Now()) {
			t.Error("it is asked for again after a second")
		}
	})
}

func TestTheClustersNowRunsOnWhileNothingIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Now().Add(time.Hour) // the cluster's clock is not this host's
		var node told
		node.entrySays(ahead)
		time.Sleep(time.Minute)
		if now := node.clock(ahead); !now.Equal(ahead.Add(time.Minute)) {
			t.Errorf("a minute after an entry it is %v", now.Sub(ahead))
		}
		// While a log is read again, its entries say what is long past.
		node.leaderSays(ahead.Add(time.Hour))
		node.entrySays(ahead)
		time.Sleep(time.Minute)
		if now := node.clock(ahead); !now.Equal(ahead.Add(time.Hour + time.Minute)) {
			t.Errorf("an old entry moved the clock to %v", now.Sub(ahead))
		}
		// A view that is newer than what was noted of its entry.
		if now := node.clock(ahead.Add(2 * time.Hour)); !now.Equal(ahead.Add(2 * time.Hour)) {
			t.Errorf("the clock says %v before its own state", now.Sub(ahead))
		}
		behind := time.Now().Add(-time.Hour)
		var alone told
		alone.entrySays(behind) // from its log; how long it was away it cannot know
		if now := alone.clock(behind); !now.Equal(behind.Add(time.Hour)) {
			t.Errorf("alone after a start it is %v after the last entry, want what its own clock says", now.Sub(behind))
		}
		alone.leaderSays(behind)
		if now := alone.clock(behind); !now.Equal(behind) {
			t.Errorf("the leader's word counts for %v less than the wall clock", now.Sub(behind))
		}
	})
}
