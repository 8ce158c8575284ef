package api

import (
	"strings"
	"testing"

	"rcd/wire"
)

// TestTheAncestorsRulesBesideTheTranscripts: what the spec says and no line of
// the transcripts shows.
func TestTheAncestorsRulesBesideTheTranscripts(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for _, n := range []*node{c.nodes["c1"], c.nodes["c2"]} {
			hold := func(more string) string {
				return `{"submitter":"ann@box","device_id":"box:gpu0","kind":"hold","max_runtime_seconds":60` + more + `}`
			}
			for _, more := range []string{`,"env":{"A":"b"}`, `,"idle_timeout_seconds":5`, `,"stdio":"pipe"`, `,"stdio":"tty"`} {
				resp, raw := n.do("POST", "/v1/jobs", clientToken, hold(more))
				wantError(t, resp, raw, 400, wire.CodeBadRequest)
			}
			// Fields that are not known are passed over, and so is what follows
			// the first value.
			before := c.jobCount()
			n.ask("POST", "/v1/jobs", strings.Replace(submitTrue, "{", `{"colour":{"deep":[1]},`, 1)+` {"submitter":"bob"} nonsense`, 201)
			if c.jobCount() != before+1 || c.job(uint64(before+1)).Submitter != "ann@box" {
				t.Errorf("%d jobs, the last of %s", c.jobCount(), c.job(uint64(before+1)).Submitter)
			}
			// A reason is kept of an ordinary job, too.
			job := decode[wire.Job](t, n.ask("POST", "/v1/jobs", strings.Replace(submitTrue, "{", `{"reason":"nightly",`, 1), 201))
			if job.Reason != "nightly" || job.Kind != "job" {
				t.Errorf("%+v", job)
			}
			// For an admin {} is enough, and its name is not asked for.
			n.ask("POST", "/v1/jobs/"+job.ID+"/kill", `{}`, 200)
			if ended := decode[wire.JobView](t, n.ask("GET", "/v1/jobs/"+job.ID, "", 200)).Job; !strings.HasPrefix(ended.KillReason, "killed by admin override") {
				t.Errorf("%+v", ended)
			}
			// A pipe's bytes are stored nowhere.
			pipe := decode[wire.Job](t, n.ask("POST", "/v1/jobs", strings.Replace(submitTrue, "{", `{"stdio":"pipe",`, 1), 201))
			resp, raw := n.do("GET", "/v1/jobs/"+pipe.ID+"/logs", clientToken, "")
			wantError(t, resp, raw, 400, wire.CodeLogsNotStored)
		}
		for range 25 {
			c.nodes["c1"].submit(submitTrue)
		}
		list := decode[wire.JobList](t, c.nodes["c2"].ask("GET", "/v1/jobs", "", 200)).Jobs
		if len(list) != 20 {
			t.Errorf("%d jobs without a limit, want 20", len(list))
		}
		for i := 1; i < len(list); i++ {
			if list[i-1].SubmittedAt.Before(list[i].SubmittedAt) || len(list[i-1].ID) == len(list[i].ID) && list[i-1].ID < list[i].ID {
				t.Errorf("%s stands before %s", list[i-1].ID, list[i].ID)
			}
		}
	})
}
