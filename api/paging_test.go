package api

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/wire"
)

// pages lists jobs page by page; between is called after each.
func (n *node) pages(query string, between func(page int)) [][]string {
	n.cluster.t.Helper()
	var pages [][]string
	path := "/v1/jobs?" + query
	for {
		resp, raw := n.do("GET", path, clientToken, "")
		if resp.StatusCode != 200 {
			n.cluster.t.Fatalf("%s: %d %s", path, resp.StatusCode, raw)
		}
		list := decode[wire.JobList](n.cluster.t, raw)
		var ids []string
		for _, job := range list.Jobs {
			ids = append(ids, job.ID)
		}
		pages = append(pages, ids)
		if list.NextCursor == "" {
			return pages
		}
		if len(pages) > 100 {
			n.cluster.t.Fatal("the pages do not end")
		}
		between(len(pages))
		path = "/v1/jobs?cursor=" + url.QueryEscape(list.NextCursor)
	}
}

func ids(from, to int) []string {
	var out []string
	for i := from; i >= to; i-- {
		out = append(out, fmt.Sprintf("j-%d", i))
	}
	return out
}

// TestPagesMissNothingAndShowNothingTwice while jobs are submitted and
// forgotten, and each page is of another node.
func TestPagesMissNothingAndShowNothingTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for i := range 25 {
			c.nodes["c1"].submit(submitTrue)
			c.start(uint64(i + 1))
			c.finish(uint64(i+1), command.EndExited, 0, "")
		}
		pages := c.nodes["c2"].pages("limit=10", func(page int) {
			c.nodes["c1"].submit(submitTrue) // newer than all that is left
		})
		if want := [][]string{ids(25, 16), ids(15, 6), ids(5, 1)}; !slices.EqualFunc(pages, want, slices.Equal) {
			t.Errorf("%q", pages)
		}
		c.must(&command.ConfigSet{Settings: []command.Setting{{Name: "max_finished", Value: 18}}})
		pages = c.nodes["c3"].pages("limit=10&state=succeeded", func(page int) {
			if page == 1 {
				c.must(&command.JobPrune{Limit: 100}) // the oldest 7
			}
		})
		if want := [][]string{ids(25, 16), ids(15, 8)}; !slices.EqualFunc(pages, want, slices.Equal) {
			t.Errorf("%q", pages)
		}
	})
}

func TestACursorKeepsWhatItLists(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for i := range 12 {
			body := submitTrue
			if i%2 == 1 {
				body = strings.Replace(body, "ann@box", "bob@box", 1)
			}
			c.nodes["c1"].submit(body)
		}
		pages := c.nodes["c2"].pages("limit=2&submitter=bob@box&device=box:gpu1&state=queued", func(int) {})
		if want := [][]string{{"j-12", "j-10"}, {"j-8", "j-6"}, {"j-4", "j-2"}}; !slices.EqualFunc(pages, want, slices.Equal) {
			t.Errorf("%q", pages)
		}
		_, raw := c.nodes["c2"].do("GET", "/v1/jobs?limit=2&submitter=bob@box", clientToken, "")
		next := decode[wire.JobList](t, raw).NextCursor
		_, raw = c.nodes["c2"].do("GET", "/v1/jobs?limit=3&submitter=bob@box&cursor="+next, clientToken, "")
		if list := decode[wire.JobList](t, raw); len(list.Jobs) != 3 || list.Jobs[0].ID != "j-8" {
			t.Errorf("another limit: %s", raw)
		}
		zero := base64.RawURLEncoding.EncodeToString([]byte(`{"b":0,"l":2}`))
		many := base64.RawURLEncoding.EncodeToString([]byte(`{"b":5,"l":2000}`))
		odd := base64.RawURLEncoding.EncodeToString([]byte(`{"b":5,"l":2,"t":"lazy"}`))
		for _, query := range []string{
			"cursor=" + next + "&submitter=ann@box", "cursor=" + next + "&state=queued", "cursor=x", "cursor=" + zero, "cursor=" + many, "cursor=" + odd,
			"cursor=" + strings.Repeat("a", longestCursor+1), "cursor=" + next + "&limit=0",
		} {
			resp, raw := c.nodes["c2"].do("GET", "/v1/jobs?"+query, clientToken, "")
			wantError(t, resp, raw, 400, "bad_request")
		}
	})
}

func TestAnArrayIsQueuedWholeOrNotAtAll(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		array := func(jobs ...string) string { return `{"jobs":[` + strings.Join(jobs, ",") + `]}` }
		other := strings.Replace(submitTrue, "true", "false", 1)
		resp, raw := n.do("POST", "/v1/jobs:batch", clientToken, array(submitTrue, other, submitTrue), "Idempotency-Key", "a")
		batch := decode[wire.Batch](t, raw)
		if resp.StatusCode != 201 || len(batch.Jobs) != 3 || batch.Jobs[0].State != "assigned" || batch.Jobs[1].Command[0] != "false" || batch.Jobs[2].ID != "j-3" || batch.Repeat {
			t.Fatalf("%d %s", resp.StatusCode, raw)
		}
		// One request ID for all.
		_, raw = n.do("POST", "/v1/jobs:batch", clientToken, array(submitTrue, other, submitTrue), "Idempotency-Key", "a")
		if again := decode[wire.Batch](t, raw); len(again.Jobs) != 3 || again.Jobs[0].ID != "j-1" || !again.Repeat || c.jobCount() != 3 {
			t.Fatalf("%s, %d jobs", raw, c.jobCount())
		}
		resp, raw = n.do("POST", "/v1/jobs:batch", clientToken, array(submitTrue), "Idempotency-Key", "a")
		wantError(t, resp, raw, 422, "idempotency_key_reused")
		// The field keeps the ancestor's rule, in a space of its own.
		n.submit(strings.Replace(submitTrue, "{", `{"idempotency_key":"f",`, 1))
		keyed := func(jobs ...string) string { return strings.Replace(array(jobs...), "{", `{"idempotency_key":"f",`, 1) }
		_, raw = n.do("POST", "/v1/jobs:batch", clientToken, keyed(submitTrue, submitTrue))
		first := decode[wire.Batch](t, raw)
		_, raw = n.do("POST", "/v1/jobs:batch", clientToken, keyed(other))
		if again := decode[wire.Batch](t, raw); len(first.Jobs) != 2 || first.Jobs[0].IdempotencyKey != "f" || len(again.Jobs) != 2 || again.Jobs[1].ID != first.Jobs[1].ID {
			t.Fatalf("%s\n%+v", raw, first)
		}

		before := c.machine.Digest()
		for body, want := range map[string]struct {
			status int
			code   string
			says   string
		}{
			``:            {400, "bad_request", "no body"},
			`{}`:          {400, "bad_request", "at least one"},
			`{"jobs":{}}`: {400, "bad_request", "JSON"},
			array(submitTrue, `{"submitter":"ann","command":["true"]}`):                                      {400, "bad_request", "Job 2 of the array"},
			array(submitTrue, `{"submitter":"ann","command":["true"],"device_id":"box:gpu9"}`):               {400, "unknown_device", "Job 2 of the array"},
			array(submitTrue, strings.Replace(submitTrue, "{", `{"priority":11,`, 1)):                        {400, "priority_out_of_range", "job 2 of the array"},
			array(submitTrue, strings.Replace(submitTrue, "{", `{"kind":"lunch",`, 1)):                       {400, "bad_request", "job 2 of the array"},
			array(strings.Replace(submitTrue, "{", `{"no_wait":true,`, 1)):                                   {400, "bad_request", "no_wait"},
			array(strings.Replace(submitTrue, "{", `{"idempotency_key":"x",`, 1)):                            {400, "bad_request", "one idempotency_key"},
			`{"jobs":[` + strings.Repeat(submitTrue+",", 1000) + submitTrue + `]}`:                           {400, "array_too_large", "at most 1000"},
			array(strings.Replace(submitTrue, "{", `{"reason":"`+strings.Repeat("x", wire.MaxBody)+`",`, 1)): {413, "body_too_large", ""},
		} {
			resp, raw := n.do("POST", "/v1/jobs:batch", clientToken, body)
			wantError(t, resp, raw, want.status, want.code)
			if !strings.Contains(raw, want.says) {
				t.Errorf("%s does not say %q", raw, want.says)
			}
		}
		resp, raw = n.do("POST", "/v1/jobs:batch", workerToken, array(submitTrue))
		wantError(t, resp, raw, 403, "forbidden")
		if c.machine.Digest() != before {
			t.Error("a refused array changed the lease table")
		}
		resp, raw = n.do("POST", "/v1/jobs:batch", clientToken, `{"jobs":[`+strings.Repeat(submitTrue+",", 999)+submitTrue+`]}`)
		if batch := decode[wire.Batch](t, raw); resp.StatusCode != 201 || len(batch.Jobs) != 1000 {
			t.Fatalf("%d, %d jobs", resp.StatusCode, len(batch.Jobs))
		}
	})
}
