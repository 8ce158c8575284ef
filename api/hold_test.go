package api

import (
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

const (
	submitHold    = `{"submitter":"ann@box","device_id":"box:gpu1","kind":"hold","max_runtime_seconds":600,"session_seconds":30}`
	submitInside  = `{"submitter":"ann@box","hold":"j-1","command":["nvidia-smi"]}`
	beatOfAnn     = `{"submitter":"ann@box"}`
	pathHeartbeat = "/v1/jobs/j-1/heartbeat"
)

// AgentProtocol is this release's unless a test says otherwise.
func (n *node) AgentProtocol(string) int {
	if protocol := n.protocol.Load(); protocol != 0 {
		return int(max(0, protocol))
	}
	return wire.AgentProtocol
}

// HearSession remembers the hold.
func (n *node) HearSession(hold uint64) { n.beats.Store(&hold) }

// heardOf returns the hold whose client was heard last, 0 when none was since it
// was asked.
func (n *node) heardOf() uint64 {
	if hold := n.beats.Swap(nil); hold != nil {
		return *hold
	}
	return 0
}

// raise brings the cluster to the feature level of this release.
func (c *cluster) raise() {
	c.t.Helper()
	c.must(&command.MemberPut{ID: "c1", Incarnation: "i", Supports: fsm.LevelInside})
	c.must(&command.FeatureRaise{Level: fsm.LevelInside, Members: []string{"c1"}})
}

// holding is a cluster with a running hold, j-1, of ann.
func holding(t *testing.T, f func(t *testing.T, c *cluster)) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.raise()
		c.nodes["c2"].submit(submitHold)
		c.start(1)
		f(t, c)
	})
}

// silence tells the lease table that the client of j-1 is silent for a time, or
// with 0 that it has been heard.
func (c *cluster) silence(d time.Duration) {
	c.t.Helper()
	c.advance(d)
	c.must(&command.Sweep{EpochMS: time.Hour.Milliseconds(), Sessions: []command.SessionSilence{{Job: 1, SilenceMS: d.Milliseconds()}}})
}

func TestAHeartbeatReachesTheLeaderThroughAnyNodeAndIsNotLogged(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		before, proposals := c.machine.Index(), c.proposals.Load()
		for _, asked := range []string{"c1", "c2", "c3"} {
			for _, body := range []string{"", " ", "{}", beatOfAnn} {
				resp, raw := c.nodes[asked].do("POST", pathHeartbeat, clientToken, body)
				if resp.StatusCode != 200 || strings.TrimSpace(raw) != `{"state":"running","kill_requested":false,"session_seconds":30}` {
					t.Fatalf("%s at %s: %d %s", body, asked, resp.StatusCode, raw)
				}
				if hold := c.nodes["c1"].heardOf(); hold != 1 || resp.Header.Get(wire.HeaderLeader) != "c1" {
					t.Fatalf("at %s: the leader heard of hold %d", asked, hold)
				}
			}
		}
		if c.machine.Index() != before || c.proposals.Load() != proposals {
			t.Errorf("heartbeats made %d entries", c.machine.Index()-before)
		}
		c.lead("")
		elected := time.AfterFunc(3*time.Second, func() { c.lead("c3") })
		defer elected.Stop()
		if resp, raw := c.nodes["c2"].do("POST", pathHeartbeat, clientToken, beatOfAnn); resp.StatusCode != 200 || c.nodes["c3"].heardOf() != 1 {
			t.Errorf("through a change of leader: %d %s", resp.StatusCode, raw)
		}
		c.lead("")
		resp, raw := c.nodes["c2"].do("POST", pathHeartbeat, clientToken, beatOfAnn)
		wantError(t, resp, raw, 503, "no_leader")
	})
}

func TestHeartbeatRefusals(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(`{"submitter":"ann@box","device_id":"box:gpu0","command":["true"]}`)
		_, raw := c.nodes["c1"].do("POST", "/v1/jobs", adminToken, submitHold) // j-3, queued, with another token
		if job := decode[wire.Job](t, raw); job.ID != "j-3" || job.SessionSeconds != 30 {
			t.Fatal(raw)
		}
		refused := func(id, token, body string, status int, code, says string) {
			t.Helper()
			for _, asked := range []string{"c1", "c2"} {
				resp, raw := c.nodes[asked].do("POST", "/v1/jobs/"+id+"/heartbeat", token, body)
				wantError(t, resp, raw, status, code)
				if !strings.Contains(raw, says) {
					t.Errorf("%s: %s does not say %q", id, raw, says)
				}
			}
		}
		refused("j-9", clientToken, beatOfAnn, 404, "not_found", "")
		refused("j-", clientToken, beatOfAnn, 404, "not_found", "whole ID")
		refused("j-1", clientToken, `{"submitter":"bob@box"}`, 403, "not_job_owner", "ann@box")
		refused("j-3", clientToken, "", 403, "not_job_owner", "ann@box")
		refused("j-2", clientToken, beatOfAnn, 400, "bad_request", "no session")
		refused("j-1", clientToken, "[", 400, "bad_request", "")
		refused("j-1", workerToken, beatOfAnn, 403, "forbidden", "")
		refused("j-1", "", beatOfAnn, 401, "unauthorized", "")
		for _, n := range c.nodes {
			if hold := n.heardOf(); hold != 0 {
				t.Errorf("%s took a heartbeat of %d that was refused", n.id, hold)
			}
		}
		// Who holds the token of the submit need not say who it is; nor need an admin.
		for _, token := range []string{clientToken, adminToken} {
			if resp, raw := c.nodes["c2"].do("POST", pathHeartbeat, token, ""); resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, raw)
			}
		}
		c.nodes["c1"].do("POST", "/v1/jobs/j-1/kill", clientToken, beatOfAnn)
		if resp, raw := c.nodes["c2"].do("POST", pathHeartbeat, clientToken, beatOfAnn); resp.StatusCode != 200 || !strings.Contains(raw, `"kill_requested":true`) {
			t.Errorf("being ended: %d %s", resp.StatusCode, raw)
		}
		c.finish(1, command.EndKilled, 143, "cancelled")
		refused("j-1", clientToken, beatOfAnn, 409, "job_ended", "cancelled")
	})
}

func TestAJobInsideAHoldIsPlacedAtOnceAndTheDeviceStaysTheHolds(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		hold := c.job(1)
		inside := c.nodes["c3"].submit(submitInside)
		if inside.State != "assigned" || inside.Hold != "j-1" || inside.DeviceID != "box:gpu1" || inside.Lease != model.LeaseID(hold.Lease) {
			t.Errorf("%+v", inside)
		}
		c.start(2)
		shown := func(when string) {
			t.Helper()
			_, raw := c.nodes["c2"].do("GET", "/v1/devices", clientToken, "")
			for _, d := range decode[[]wire.DeviceView](t, raw) {
				if d.Device.ID == "box:gpu1" && (d.JobID != "j-1" || d.Kind != "hold" || d.Holder != "ann@box" || !slices.Equal(d.Command, []string{"hold"})) {
					t.Errorf("%s: %+v", when, d)
				}
			}
		}
		shown("while the hold runs")
		c.nodes["c1"].do("POST", "/v1/jobs/j-1/release", clientToken, beatOfAnn)
		if j := c.job(2); !j.KillRequested || j.KillBy != "hold j-1 ended" {
			t.Errorf("after the release: %+v", j)
		}
		c.finish(1, command.EndKilled, 143, "")
		shown("while what ran inside is being ended")
		c.finish(2, command.EndKilled, 143, "hold j-1 ended")
		if d := c.machine.View().Device("box:gpu1"); d.State != model.DeviceReady {
			t.Errorf("after both: %v", d.State)
		}
	})
}

func TestWorkInsideAHoldIsRefusedWithWhatToDo(t *testing.T) {
	field := func(body, name, value string) string {
		return strings.Replace(body, "{", `{"`+name+`":`+value+`,`, 1)
	}
	array := func(bodies ...string) string { return `{"jobs":[` + strings.Join(bodies, ",") + `]}` }
	refused := func(t *testing.T, c *cluster, body string, status int, code, says string) {
		t.Helper()
		for _, asked := range []string{"c1", "c2"} {
			before := c.machine.Digest()
			path := "/v1/jobs"
			if strings.Contains(body, `"jobs"`) {
				path += ":batch"
			}
			resp, raw := c.nodes[asked].do("POST", path, clientToken, body)
			wantError(t, resp, raw, status, code)
			if !strings.Contains(raw, says) || c.machine.Digest() != before {
				t.Errorf("%s: %s does not say %q", body, raw, says)
			}
		}
	}
	inBubble(t, func(t *testing.T, c *cluster) {
		proposals := c.proposals.Load()
		refused(t, c, submitHold, 409, "feature_not_supported", "upgrade every controller")
		refused(t, c, array(submitInside), 409, "feature_not_supported", "upgrade every controller")
		refused(t, c, submitInside, 409, "feature_not_supported", "upgrade every controller")
		if c.proposals.Load() != proposals {
			t.Error("it was proposed, and a controller of an earlier release would have halted")
		}
	})
	holding(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(`{"submitter":"ann@box","device_id":"box:gpu0","command":["true"]}`)
		c.nodes["c1"].submit(submitHold) // j-3, queued
		of := func(id string) string { return strings.Replace(submitInside, "j-1", id, 1) }
		refused(t, c, of("j-9"), 404, "not_found", "j-9")
		refused(t, c, of("gpu0"), 400, "bad_request", "whole ID")
		refused(t, c, of("j-2"), 400, "bad_request", "not a hold")
		refused(t, c, of("j-3"), 409, "hold_waiting", "wait")
		refused(t, c, strings.Replace(submitInside, "ann", "bob", 1), 403, "not_job_owner", "ann@box")
		refused(t, c, field(submitInside, "device_id", `"box:gpu1"`), 400, "bad_request", "leave out")
		refused(t, c, field(submitInside, "selector", `"rack"`), 400, "bad_request", "leave out")
		refused(t, c, field(submitInside, "priority", "1"), 400, "bad_request", "leave out")
		refused(t, c, field(submitInside, "no_wait", "true"), 400, "bad_request", "leave out")
		refused(t, c, field(submitInside, "session_seconds", "30"), 400, "bad_request", "hold")
		refused(t, c, strings.Replace(submitHold, `"session_seconds":30`, `"session_seconds":14`, 1), 400, "bad_request", "15")
		refused(t, c, strings.Replace(submitHold, `"session_seconds":30`, `"session_seconds":3601`, 1), 400, "bad_request", "3600")
		refused(t, c, array(submitInside, of("j-3")), 409, "hold_waiting", "ob 2 of the array")
		refused(t, c, array(submitInside, strings.Replace(submitInside, "ann", "bob", 1)), 403, "not_job_owner", "ob 2 of the array")
		refused(t, c, array(slices.Repeat([]string{submitInside}, 65)...), 409, "hold_full", "64")

		for range 64 {
			c.nodes["c3"].submit(submitInside)
		}
		refused(t, c, submitInside, 409, "hold_full", "wait until some have ended")
		for job := range uint64(64) {
			c.start(job + 4)
			c.finish(job+4, command.EndExited, 0, "")
		}
		taken := c.nodes["c2"].submit(submitInside, "Idempotency-Key", "k")
		c.nodes["c1"].protocol.Store(3)
		refused(t, c, submitInside, 409, "agent_too_old", "upgrade the agent on box")
		refused(t, c, `{"jobs":[`+submitInside+","+submitInside+`]}`, 409, "agent_too_old", "job 1 of the array")
		if again := c.nodes["c3"].submit(submitInside, "Idempotency-Key", "k"); again.ID != taken.ID {
			t.Errorf("repeated: %s, first %s", again.ID, taken.ID)
		}
		c.nodes["c1"].protocol.Store(0)
		c.nodes["c1"].do("POST", "/v1/jobs/j-1/kill", clientToken, beatOfAnn)
		refused(t, c, submitInside, 409, "hold_ended", "make a new one")
		refused(t, c, array(submitInside), 409, "hold_ended", "make a new one")
	})
}

func TestJobsAreListedByTheirHold(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		for range 3 {
			c.nodes["c1"].submit(submitInside)
		}
		c.nodes["c1"].submit(`{"submitter":"ann@box","device_id":"box:gpu0","command":["true"]}`)
		c.start(2)
		c.finish(2, command.EndExited, 0, "")
		if pages := c.nodes["c2"].pages("hold=j-1&limit=2", func(int) {}); !slices.EqualFunc(pages, [][]string{{"j-4", "j-3"}, {"j-2"}}, slices.Equal) {
			t.Errorf("%q", pages)
		}
		if pages := c.nodes["c2"].pages("hold=j-5", func(int) {}); len(pages[0]) != 0 {
			t.Errorf("inside a job: %q", pages)
		}
		resp, raw := c.nodes["c2"].do("GET", "/v1/jobs?hold=1", clientToken, "")
		wantError(t, resp, raw, 400, "bad_request")
		_, raw = c.nodes["c2"].do("GET", "/v1/jobs?hold=j-1&limit=1", clientToken, "")
		cursor := url.QueryEscape(decode[wire.JobList](t, raw).NextCursor)
		resp, raw = c.nodes["c2"].do("GET", "/v1/jobs?hold=j-3&cursor="+cursor, clientToken, "")
		wantError(t, resp, raw, 400, "bad_request")

		waiting := c.nodes["c3"].waits("/v1/jobs?hold=j-1&index=" + c.at())
		c.start(5) // another's
		time.Sleep(time.Second)
		select {
		case early := <-waiting:
			t.Fatalf("woken by a job that is not inside: %+v", early)
		default:
		}
		c.start(3)
		if got := <-waiting; got.status != 200 || !strings.Contains(got.raw, `"running"`) {
			t.Errorf("%+v", got)
		}
	})
}

func TestASilentClientOfAHoldIsToldAndSoIsItsReturn(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		c.silence(15 * time.Second)
		_, raw := c.nodes["c2"].do("GET", "/v1/jobs/j-1", clientToken, "")
		if job := decode[wire.JobView](t, raw).Job; !job.SessionSilent || job.State != "running" {
			t.Errorf("half of it: %s", raw)
		}
		c.silence(0)
		c.silence(30 * time.Second)
		if _, raw = c.nodes["c2"].do("GET", "/v1/jobs/j-1", clientToken, ""); !c.job(1).KillRequested {
			t.Errorf("all of it: %s", raw)
		}
		var names []string
		for _, r := range c.nodes["c2"].events.after(after(0), 100).records {
			if event, err := r.wireEvent(1); err == nil && strings.HasPrefix(event.Event, "hold.") {
				names = append(names, event.Event+" "+string(event.Payload))
			}
		}
		want := []string{
			`hold.session_silent {"job_id":"j-1","state":"running"}`, `hold.session_heard {"job_id":"j-1","state":"running"}`,
			`hold.session_silent {"job_id":"j-1","state":"running"}`,
		}
		if !slices.Equal(names, want) {
			t.Errorf("%q", names)
		}
	})
}

func TestATerminalInsideAHoldIsAttachedTo(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(strings.Replace(submitInside, "{", `{"stdio":"tty",`, 1))
		c.start(2)
		_, resp, err := c.nodes["c2"].dialStream(t.Context(), "/v1/jobs/j-2/attach?take_over=true&submitter=bob%40box")
		if !errors.Is(err, relay.ErrNotUpgraded) || resp.StatusCode != 403 {
			t.Fatalf("another writer: %v", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		conn, resp, err := c.nodes["c2"].dialStream(t.Context(), "/v1/jobs/j-2/attach?take_over=true&submitter=ann%40box")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if frame, err := wire.ReadFrame(conn, nil); err != nil || resp.StatusCode != 101 || frame.Type != wire.FrameAck {
			t.Errorf("%+v %v", frame, err)
		}
	})
}

// TestAHostThatIsAwayIsNotTakenForOneOfAnEarlierRelease: after a failover every
// host is away for a moment.
func TestAHostThatIsAwayIsNotTakenForOneOfAnEarlierRelease(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].protocol.Store(-1)
		if job := c.nodes["c2"].submit(submitInside); job.State != "assigned" {
			t.Errorf("%+v", job)
		}
	})
}
