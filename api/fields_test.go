package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/wire"
)

// ask returns an answer that must have a status.
func (n *node) ask(method, path, body string, status int, headers ...string) string {
	n.cluster.t.Helper()
	resp, raw := n.do(method, path, adminToken, body, headers...)
	if resp.StatusCode != status {
		n.cluster.t.Fatalf("%s %s: %d %s, want %d", method, path, resp.StatusCode, raw, status)
	}
	return raw
}

func TestADeviceOutOfThePoolSaysWhyWhereverItIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.ask("POST", "/v1/devices/box:gpu0/fault", `{"reason":"fan stopped"}`, 200)
		n.submit(submitLimited)
		view := decode[wire.JobView](t, n.ask("GET", "/v1/jobs/j-1", "", 200))
		if d := view.Waiting.Reasons[0].Devices[0]; d.QuarantineReason != "fault" || d.Detail != "fan stopped" || d.State != "unhealthy" {
			t.Errorf("waiting: %+v", d)
		}
		e := decode[wire.Explain](t, n.ask("GET", "/v1/explain?job=j-1", "", 200))
		if d := e.Devices[0]; d.QuarantineReason != "fault" || d.Detail != "fan stopped" || d.NotDeclared {
			t.Errorf("explain: %+v", d)
		}
		c.must(&command.AgentRegister{Host: "box", MachineID: "machine", BootID: "boot", Instance: "agent-2", Devices: []command.DeviceSpec{{Name: "gpu1"}}})
		views := decode[[]wire.DeviceView](t, n.ask("GET", "/v1/devices", "", 200))
		if !views[0].NotDeclared || views[1].NotDeclared {
			t.Errorf("devices: %+v", views)
		}
		view = decode[wire.JobView](t, n.ask("GET", "/v1/jobs/j-1", "", 200))
		if d := view.Waiting.Reasons[0].Devices[0]; !d.NotDeclared {
			t.Errorf("waiting: %+v", d)
		}
		if e = decode[wire.Explain](t, n.ask("GET", "/v1/explain?job=j-1", "", 200)); !e.Devices[0].NotDeclared {
			t.Errorf("explain: %+v", e.Devices[0])
		}
	})
}

func TestHowLongADeviceIsHeldAndThatItsJobIsOverItsLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitLimited)
		c.start(1)
		n.submit(submitLimited)
		c.advance(700 * time.Second)
		if views := decode[[]wire.DeviceView](t, n.ask("GET", "/v1/devices", "", 200)); views[0].ElapsedSeconds != 700 {
			t.Errorf("devices: %+v", views[0])
		}
		if d := decode[wire.Describe](t, n.ask("GET", "/v1/devices/box:gpu0/describe", "", 200)); d.ElapsedSeconds != 700 {
			t.Errorf("describe: %+v", d)
		}
		view := decode[wire.JobView](t, n.ask("GET", "/v1/jobs/j-2", "", 200))
		if d := view.Waiting.Reasons[0].Devices[0]; !d.PastLimit {
			t.Errorf("waiting: %+v", d)
		}
		if e := decode[wire.Explain](t, n.ask("GET", "/v1/explain?job=j-2", "", 200)); !e.Devices[0].PastLimit {
			t.Errorf("explain: %+v", e.Devices[0])
		}
	})
}

func TestWhatCannotBeServedSaysSinceWhenAndByWhichLabel(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitLimited) // keeps gpu0 busy
		n.submit(strings.Replace(submitTrue, `"device_id":"box:gpu1"`, `"selector":"disk_free_bytes>=500"`, 1))
		n.submit(strings.Replace(submitTrue, `"device_id":"box:gpu1"`, `"selector":"disk_free_bytes>=500"`, 1))
		scarce := []command.KV{{Key: "disk_free_bytes", Value: "10"}}
		c.must(&command.AgentRegister{Host: "box", MachineID: "machine", BootID: "boot", Instance: "agent-1", Devices: []command.DeviceSpec{
			{Name: "gpu0", MaxRuntimeS: 3600, Detected: scarce}, {Name: "gpu1", Detected: scarce},
		}})
		reason := decode[wire.JobView](t, n.ask("GET", "/v1/jobs/j-3", "", 200)).Waiting.Reasons[0]
		if reason.Code != wire.WaitNoneMatchesNow || len(reason.Labels) != 1 || reason.Labels[0] != "disk_free_bytes" {
			t.Errorf("%+v", reason)
		}
		n.submit(strings.Replace(submitLimited, `"device_id":"box:gpu0"`, `"device_id":"box:gpu1"`, 1))
		c.must(&command.AgentRegister{Host: "box", MachineID: "machine", BootID: "boot", Instance: "agent-1"})
		c.advance(time.Minute)
		reason = decode[wire.JobView](t, n.ask("GET", "/v1/jobs/j-4", "", 200)).Waiting.Reasons[0]
		if reason.Since == nil || reason.Since.IsZero() {
			t.Errorf("%+v", reason)
		}
	})
}

// A fleet larger than an answer names is counted.
func TestWhatIsLeftOutIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c1"]
		n.ask("PATCH", "/v1/settings", `{"max_devices_in_host":300}`, 200)
		var many []command.DeviceSpec
		for i := range 300 {
			many = append(many, command.DeviceSpec{Name: fmt.Sprintf("n%03d", i), Declared: []command.KV{{Key: "kind", Value: "cpu"}}})
		}
		c.must(&command.AgentRegister{Host: "farm", MachineID: "m2", BootID: "b2", Instance: "agent-9", Devices: many, Proof: command.Proof{SurvivorsChecked: true}})
		one := strings.Replace(submitTrue, `"device_id":"box:gpu1"`, `"selector":"kind=cpu"`, 1)
		for range 11 {
			n.ask("POST", "/v1/jobs:batch", `{"jobs":[`+strings.TrimSuffix(strings.Repeat(one+",", 1000), ",")+`]}`, 201)
		}
		if e := decode[wire.Explain](t, n.ask("GET", "/v1/explain?selector=kind=cpu", "", 200)); len(e.Devices)+e.MoreDevices != 300 || e.MoreDevices == 0 {
			t.Errorf("%d devices, %d more", len(e.Devices), e.MoreDevices)
		}
		reasons := decode[wire.JobView](t, n.ask("GET", "/v1/jobs/j-11000", "", 200)).Waiting.Reasons
		if len(reasons) != 2 || reasons[0].MoreDevices+len(reasons[0].Devices) != 300 || reasons[0].MoreDevices == 0 || !reasons[1].WholeFleet {
			t.Errorf("%+v", reasons)
		}
	})
}

func TestTheCodeThatCameTooLateIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitLimited)
		c.start(1)
		ref := c.ref(1)
		c.advance(time.Hour)
		c.must(&command.Sweep{EpochMS: time.Hour.Milliseconds(), Silent: []command.AgentSilence{{Host: "box", Instance: "agent-1", SilenceMS: 400_000, DetachedMS: 400_000}}})
		code := int32(3)
		cmd, err := command.Encode(command.Request{}, &command.JobFinish{JobRef: ref, Host: "box", Instance: "agent-1", End: command.EndExited, ExitCode: &code})
		if err != nil {
			t.Fatal(err)
		}
		if result, _, err := c.apply(cmd); err != nil || result.Code != command.AlreadyEnded {
			t.Fatalf("%v %v", result.Code, err)
		}
		job := decode[wire.JobView](t, n.ask("GET", "/v1/jobs/j-1", "", 200)).Job
		if job.State != "lost" || job.ExitCode != nil || job.LateExitCode == nil || *job.LateExitCode != 3 {
			t.Errorf("%+v", job)
		}
	})
}

// What a controller says of itself and hears of others goes out whole.
func TestRaftRoutesLeaveNothingOut(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		n.status = &wire.RaftStatus{
			Node: "c2", ClusterID: "abc", Generation: 1, State: "halted", Term: 7, Leader: "c1", LeaderAddr: "10.0.0.1:7000", LastLog: 12, Commit: 11,
			Applied: 10, FSMIndex: 9, Epoch: 7, LastSnapshot: 5, Digest: "1f", Now: at, UptimeMS: 3, HoldoffMS: 4, Waiting: "for c3", Halted: "its digest differed",
			Agents: 2, Attached: 1, Counts: map[string]int{"jobs running": 1}, Alarms: []wire.Alarm{{Code: wire.AlarmNoMajority, Since: at, Message: "look at them"}},
			OutputCopies: &wire.OutputCopies{Bytes: 5, Limit: 9, Jobs: 2, Complete: 1, Stopped: "no room"},
		}
		status := decode[wire.RaftStatus](t, n.ask("GET", "/v1/raft/status", "", 200))
		got, err1 := json.Marshal(status)
		want, err2 := json.Marshal(n.status)
		if err := errors.Join(err1, err2); err != nil || string(got) != string(want) {
			t.Errorf("got  %s\nwant %s, %v", got, want, err)
		}
		for i, id := range []string{"c1", "c2", "c3"} {
			c.nodes[id].peer = &wire.RaftPeer{ID: id, Leader: i == 0, Voter: true, Address: "10.0.0.1:7000", HTTP: "10.0.0.1:8080", LastLog: 12, Applied: 11, Term: 7, Self: i == 1}
		}
		c.nodes["c3"].peer.Halted = "its digest differed"
		peers := decode[wire.RaftPeers](t, n.ask("GET", "/v1/raft/peers", "", 200)).Peers
		if len(peers) != 3 || !peers[0].Leader || !peers[1].Self || peers[2].Halted == "" || peers[0].Term != 7 {
			t.Errorf("%+v", peers)
		}
	})
}

func TestTheHalvesOfATerminalThroughAnyNode(t *testing.T) {
	for _, asked := range []string{"c1", "c2"} {
		inBubble(t, func(t *testing.T, c *cluster) {
			n := c.nodes[asked]
			n.submit(submitTerminal)
			c.start(1)
			line := `{"t":"d","b":"` + base64.StdEncoding.EncodeToString([]byte("\x04")) + "\"}\n"
			resp, raw := n.do("POST", "/v1/jobs/j-1/tty/in", clientToken, line)
			if resp.StatusCode != 200 || raw != "" {
				t.Errorf("in: %d %q", resp.StatusCode, raw)
			}
			for _, n := range c.nodes {
				n.detached.Store(true)
			}
			for _, half := range [][2]string{{"GET", "out"}, {"POST", "in"}} {
				resp, raw := n.do(half[0], "/v1/jobs/j-1/tty/"+half[1], clientToken, "")
				wantError(t, resp, raw, 503, wire.CodeNotReady)
			}
			c.finish(1, command.EndExited, 0, "")
			if resp, raw := n.do("GET", "/v1/jobs/j-1/tty/out", clientToken, ""); resp.StatusCode != 200 || raw != "" {
				t.Errorf("out, after the end and with its host away: %d %q", resp.StatusCode, raw)
			}
		})
	}
}
