package api

import (
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// TestForceReachesWhatAHoldHasLeftBehind: the hold ended before its host went, and
// what ran inside was not seen to end. Whoever wants the device back names the
// hold, which is what they know.
func TestForceReachesWhatAHoldHasLeftBehind(t *testing.T) {
	holding(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitInside)
		c.start(2)
		c.finish(1, command.EndExited, 0, "")
		says := func(token, body, code, what string) {
			t.Helper()
			resp, raw := n.do("POST", "/v1/jobs/j-1/release", token, body)
			wantError(t, resp, raw, map[string]int{"not_releasable": 409, "not_job_owner": 403}[code], code)
			if !strings.Contains(raw, what) {
				t.Errorf("%s does not say %q", raw, what)
			}
		}
		const force = `{"submitter":"root","force":true}`
		says(clientToken, beatOfAnn, "not_releasable", "j-2")
		says(clientToken, `{"submitter":"ann@box","force":true}`, "not_job_owner", "administrator")
		says(adminToken, force, "not_releasable", "j-2") // its host is there
		c.nodes["c1"].detached.Store(true)
		says(adminToken, force, "not_releasable", "j-2") // nobody has judged its silence
		c.advance(time.Minute)
		c.must(&command.Sweep{EpochMS: 60_000, Silent: []command.AgentSilence{{Host: "box", Instance: "agent-1", SilenceMS: 20_000, DetachedMS: 20_000}}})
		resp, raw := n.do("POST", "/v1/jobs/j-1/release", adminToken, force)
		if job := decode[wire.Job](t, raw); resp.StatusCode != 200 || job.ID != "j-1" || job.State != "succeeded" {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		if j := c.job(2); j.State != model.JobKilled || c.machine.View().Lease(j.Lease) != nil {
			t.Errorf("%+v", j)
		}
		says(adminToken, force, "not_releasable", "nothing left")
	})
}
