package api

import (
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/wire"
)

const submitLimited = `{"submitter":"ann@box","device_id":"box:gpu0","command":["true"],"max_runtime_seconds":600}`

// A queued job says why it waits and until when, in the cluster's own time,
// through every node; no other job does.
func TestAQueuedJobSaysWhyItWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		held := c.nodes["c1"].submit(submitLimited)
		c.start(1)
		started := c.now
		c.nodes["c1"].submit(submitLimited)
		waits := c.nodes["c1"].submit(submitLimited)
		c.advance(100 * time.Second) // with no entry: the log is idle
		for _, node := range []string{"c1", "c2"} {
			_, raw := c.nodes[node].do("GET", "/v1/jobs/"+waits.ID, clientToken, "")
			w := decode[wire.JobView](t, raw).Waiting
			if w == nil || len(w.Reasons) != 2 {
				t.Fatalf("%s: %s", node, raw)
			}
			busy, behind, expected := w.Reasons[0], w.Reasons[1], w.ExpectedStart
			if busy.Code != wire.WaitDeviceBusy || busy.Message == "" || behind.Code != wire.WaitBehind || behind.JobsAhead != 1 {
				t.Errorf("%s: %+v", node, w.Reasons)
			}
			d := busy.Devices[0]
			if d.DeviceID != "box:gpu0" || d.JobID != held.ID || d.Holder != "ann@box" || d.State != "busy" || !d.LatestEnd.Equal(started.Add(616*time.Second).Truncate(time.Second)) {
				t.Errorf("%s: %+v", node, d)
			}
			if !expected.Earliest.Equal(c.now.Truncate(time.Second)) || !expected.Latest.Equal(started.Add((616+620)*time.Second).Truncate(time.Second)) || expected.Note == "" {
				t.Errorf("%s: %+v", node, expected)
			}
			_, raw = c.nodes[node].do("GET", "/v1/jobs/"+held.ID, clientToken, "")
			if strings.Contains(raw, "waiting") {
				t.Errorf("a running job waits: %s", raw)
			}
		}
	})
}

func TestExplainTakesARuntimeOrAJob(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitLimited)
		c.nodes["c1"].submit(submitLimited)
		ask := func(query string) wire.Explain {
			t.Helper()
			resp, raw := c.nodes["c2"].do("GET", "/v1/explain?"+query, clientToken, "")
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %s", query, raw)
			}
			return decode[wire.Explain](t, raw)
		}
		e := ask("selector=cpus>=4")
		if len(e.Devices) != 2 || e.Devices[0].DeviceID != "box:gpu1" || len(e.Tolerating) != 2 || e.Reasons != nil || !e.ExpectedStart.Latest.Equal(c.now.Add(750*time.Millisecond)) {
			t.Errorf("%+v", e)
		}
		e = ask("selector=cpus>=4&max_runtime_seconds=7200")
		if len(e.Tolerating) != 1 || e.Devices[1].Tolerates || e.Devices[1].CeilingSeconds != 3600 || e.MaxRuntimeSeconds != 7200 {
			t.Errorf("%+v", e)
		}
		e = ask("selector=rack=r3&max_runtime_seconds=7200")
		if e.Reasons[0].Code != wire.WaitNoneTolerates || e.Reasons[0].LargestCeilingSeconds != 3600 || e.ExpectedStart.Latest != nil || e.ExpectedStart.Note == "" {
			t.Errorf("%+v", e)
		}
		e = ask("job=j-2")
		if e.JobID != "j-2" || e.DeviceID != "box:gpu0" || e.MaxRuntimeSeconds != 600 || e.Reasons[0].Code != wire.WaitDeviceBusy || e.Matching[0] != "box:gpu0" {
			t.Errorf("%+v", e)
		}
		for query, want := range map[string]struct {
			status int
			code   string
		}{
			"":                                  {400, "bad_request"},
			"selector=a&job=j-2":                {400, "bad_request"},
			"job=j-2&max_runtime_seconds=5":     {400, "bad_request"},
			"selector=a&max_runtime_seconds=-1": {400, "bad_request"},
			"selector=a&max_runtime_seconds=x":  {400, "bad_request"},
			"selector===":                       {400, "bad_selector"},
			"job=j-1":                           {409, "not_queued"},
			"job=j-77":                          {404, "not_found"},
		} {
			resp, raw := c.nodes["c2"].do("GET", "/v1/explain?"+query, clientToken, "")
			wantError(t, resp, raw, want.status, want.code)
		}
	})
}

// A description shows the sheet, the device's own before its host's, and
// whether a quarantine could end by itself.
func TestDescribeShowsSheetAndReturns(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		describe := func(id string) wire.Describe {
			t.Helper()
			_, raw := c.nodes["c2"].do("GET", "/v1/devices/"+id+"/describe", clientToken, "")
			return decode[wire.Describe](t, raw)
		}
		d := describe("box:gpu0")
		if d.Sheet != "" || d.SheetAgeSeconds != nil || !d.SheetUpdatedAt.IsZero() || d.SheetIsHostWide || d.AutomaticReturnsLeft != 3 || d.AutomaticReturnsWindow != 3600 {
			t.Errorf("%+v", d)
		}
		c.must(&command.SheetPut{Host: "box", Instance: "agent-1", Sheets: []command.SheetText{{Body: "all"}, {Name: "gpu1", Body: "mine"}}})
		c.advance(40 * time.Second)
		if d = describe("box:gpu0"); d.Sheet != "all" || !d.SheetIsHostWide || *d.SheetAgeSeconds != 40 {
			t.Errorf("%+v", d)
		}
		if d = describe("box:gpu1"); d.Sheet != "mine" || d.SheetIsHostWide || d.SheetUpdatedAt.IsZero() {
			t.Errorf("%+v", d)
		}
		// The job is written off, and the host proves that nothing is left.
		c.nodes["c1"].submit(submitLimited)
		c.advance(time.Hour)
		c.must(&command.Sweep{EpochMS: time.Hour.Milliseconds(), Silent: []command.AgentSilence{{Host: "box", Instance: "agent-1", SilenceMS: 400_000, DetachedMS: 400_000}}})
		if d = describe("box:gpu0"); d.Device.State != "unhealthy" || d.QuarantineCategory != "worker_lost" || d.QuarantineReason == "worker_lost" || d.NotDeclared {
			t.Fatalf("%+v", d)
		}
		c.must(&command.Recover{Host: "box", Instance: "agent-1", Proof: command.Proof{SurvivorsChecked: true, Detail: "looked at 312 processes"}})
		d = describe("box:gpu0")
		if d.AutomaticReturnsLeft != 2 || len(d.AutomaticReturns) != 1 || d.AutomaticReturns[0].Reason != "worker_lost" || d.ProofDetail != "looked at 312 processes" || d.ManualClear {
			t.Errorf("%+v", d)
		}
		c.must(&command.Recover{Host: "box", Instance: "agent-1", RequireManualClear: true})
		if d = describe("box:gpu0"); !d.ManualClear || d.QuarantineCategory != "" {
			t.Errorf("%+v", d)
		}
		c.must(&command.AgentRegister{Host: "box", MachineID: "machine", BootID: "boot", Instance: "agent-2", Devices: []command.DeviceSpec{{Name: "gpu1"}}})
		if !describe("box:gpu0").NotDeclared || describe("box:gpu1").NotDeclared {
			t.Error("gpu0 is no longer declared, and gpu1 is")
		}
	})
}
