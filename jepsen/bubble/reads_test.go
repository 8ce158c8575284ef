package bubble

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"rcd/jepsen/rig"
	"rcd/wire"
)

// answered is one controller's own answer to a request for the devices.
type answered struct {
	status int
	age    time.Duration // Rc-Age-Ms
	heard  time.Duration // Rc-Heard-Age-Ms, -1 without
	index  string
	views  []wire.DeviceView
	no     wire.Error
}

// get asks one node, and nobody else.
func (f *fleet) get(n *rig.Node, path string) (*http.Response, []byte) {
	f.t.Helper()
	transport := &http.Transport{DialContext: f.net.Dialer("desk"), DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ID+":8080"+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+rig.AdminToken)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		f.t.Fatalf("ask %s: %v", n.ID, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatalf("ask %s: %v", n.ID, err)
	}
	return resp, raw
}

func (f *fleet) devices(n *rig.Node, query string) answered {
	f.t.Helper()
	resp, raw := f.get(n, "/v1/devices"+query)
	a := answered{status: resp.StatusCode, age: -1, heard: -1, index: resp.Header.Get(wire.HeaderIndex)}
	into := any(&a.views)
	if a.status != http.StatusOK {
		into = &a.no
	}
	if err := json.Unmarshal(raw, into); err != nil {
		f.t.Fatalf("%s answered %s: %v", n.ID, raw, err)
	}
	for name, to := range map[string]*time.Duration{wire.HeaderAge: &a.age, wire.HeaderHeardAge: &a.heard} {
		if ms, err := strconv.ParseInt(resp.Header.Get(name), 10, 64); err == nil {
			*to = time.Duration(ms) * time.Millisecond
		}
	}
	return a
}

// wantHeard checks that an answer says of both devices that their host was
// heard so long ago, in both of its words.
func (f *fleet) wantHeard(what string, a answered, low, high time.Duration) {
	f.t.Helper()
	if a.status != http.StatusOK || len(a.views) != 2 {
		f.t.Fatalf("%s: answered %d %+v with %d devices", what, a.status, a.no, len(a.views))
	}
	for _, v := range a.views {
		age, at := time.Duration(v.HeartbeatAgeSeconds)*time.Second, time.Since(v.Device.LastHeartbeatAt)
		if age < low || age > high || at < low || at > high+2*time.Second {
			f.t.Errorf("%s: %s was heard %v ago, and that is %v ago; want %v to %v", what, v.Device.ID, age, at, low, high)
		}
	}
}

func (f *fleet) within(what string, d, low, high time.Duration) {
	f.t.Helper()
	if d < low || d > high {
		f.t.Errorf("%s: %v, want %v to %v", what, d, low, high)
	}
}

const (
	// fresh is the most that a healthy host's heartbeat may seem old: the
	// heartbeats' distance, and that of a follower's questions.
	fresh = 8 * time.Second
	// asked is the most that a follower's knowledge is old while there is a
	// leader.
	asked = 5 * time.Second
	// long is enough to tell what is old from what is fresh: each virtual hour of
	// three controllers costs seconds.
	long = 10 * time.Minute
)

func TestHeartbeatAgesOnAnIdleLogComeFromTheLeaderOnEveryNode(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		time.Sleep(time.Hour)
		leader := f.leader()
		for _, n := range f.nodes {
			stale := f.devices(n, "?stale=true") // before the other teaches it
			f.wantHeard(n.ID+", linearizable", f.devices(n, ""), 0, 3*time.Second)
			f.wantHeard(n.ID+", stale", stale, 0, fresh)
			f.within(n.ID+": age", stale.age, 0, time.Second)
			f.within(n.ID+": age of what was heard", stale.heard, 0, asked)
			if n == leader && stale.heard != 0 {
				t.Errorf("the leader's own word is %v old", stale.heard)
			}
			if stale.index == "" {
				t.Errorf("%s: a stale answer without its index", n.ID)
			}
		}
		// A silent host grows old on every node alike.
		f.net.Isolate("box")
		time.Sleep(long)
		for _, n := range f.nodes {
			f.wantHeard(n.ID+", silent, linearizable", f.devices(n, ""), long-time.Second, long+fresh)
			f.wantHeard(n.ID+", silent, stale", f.devices(n, "?stale=true"), long-time.Second, long+fresh)
		}
	})
}

func TestAnIsolatedNodeSaysHowOldItsLastKnownHeartbeatsAre(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				time.Sleep(long)
				cut := f.leader()
				if who == "follower" {
					cut = f.others(cut)[0]
				}
				f.net.Cut("box", cut.ID)
				for _, n := range f.others(cut) {
					f.net.Cut(cut.ID, n.ID)
				}
				time.Sleep(long)
				stale := f.devices(cut, "?stale=true")
				f.wantHeard("cut off", stale, long-asked, long+fresh)
				f.within("age", stale.age, long-asked, long+asked)
				f.within("age of what was heard", stale.heard, long-asked, long+asked)
				if a := f.devices(cut, ""); a.no.Code != wire.CodeNoLeader {
					t.Errorf("it answers a linearizable read with %d %+v", a.status, a.no)
				}
				for _, n := range f.others(cut) {
					f.wantHeard(n.ID, f.devices(n, ""), 0, 3*time.Second)
				}
			})
		})
	}
}

func TestWithoutALeaderContactWithANodeStillCounts(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		time.Sleep(long)
		leader := f.leader()
		alone := f.others(leader)[0]
		for _, n := range f.others(alone) {
			if err := n.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(long)
		stale := f.devices(alone, "?stale=true")
		f.wantHeard("with the host about", stale, 0, time.Minute)
		f.within("age", stale.age, long-asked, long+asked)
		f.within("age of the leader's word", stale.heard, long-asked, long+asked)
		f.net.Isolate("box")
		time.Sleep(long)
		f.wantHeard("with the host gone", f.devices(alone, "?stale=true"), long-time.Minute, long+time.Minute)
		for _, n := range f.others(alone) {
			if err := n.Start(); err != nil {
				t.Fatal(err)
			}
		}
		f.leader()
	})
}

func TestANodeStartedAloneInventsNoFreshHeartbeat(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		time.Sleep(time.Hour) // until there is a snapshot, or it has no state at all
		f.net.Isolate("box")
		for _, n := range f.nodes {
			if err := n.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(long)
		alone := f.nodes[0]
		if err := alone.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		// All that is left is the registration.
		stale := f.devices(alone, "?stale=true")
		f.wantHeard("alone", stale, time.Hour+long-time.Minute, time.Hour+long+time.Minute)
		if stale.heard >= 0 {
			t.Errorf("no leader has said anything, and that is %v old", stale.heard)
		}
		f.within("age", stale.age, long, time.Hour+long+time.Minute)
		for _, n := range f.others(alone) {
			if err := n.Start(); err != nil {
				t.Fatal(err)
			}
		}
		f.leader()
	})
}

// When a host was heard in the last epoch, a new leader says so, and not when
// it registered, before there is a sweep or a session.
func TestANewLeaderKnowsWhatTheLastOneHeard(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		time.Sleep(long)
		old := f.leader()
		f.net.Isolate("box")
		if err := old.Stop(); err != nil {
			t.Fatal(err)
		}
		f.wantHeard("new leader", f.devices(f.leader(), ""), 0, fresh)
		time.Sleep(long)
		if err := old.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		f.wantHeard("started again", f.devices(old, "?stale=true"), long, long+10*time.Second+fresh)
	})
}
