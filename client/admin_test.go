package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

// Each method asks its route, once, in the words of the API.
func TestAdminMethodsAskTheirRoutes(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var asked []string
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if (r.Method != http.MethodGet) != (r.Header.Get(wire.HeaderRequestID) != "") {
				t.Errorf("%s %s: request ID %q", r.Method, r.URL, r.Header.Get(wire.HeaderRequestID))
			}
			asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
			switch {
			case strings.HasSuffix(r.URL.Path, "/fault"):
			case r.Method == http.MethodDelete:
				answerJSON(w, 200, wire.Retired{Retired: "x", Note: "n"})
			case strings.HasPrefix(r.URL.Path, "/v1/jobs/"):
				answerJSON(w, 200, wire.Job{ID: "j-1", State: "running"})
			case r.URL.Path == "/v1/settings":
				answerJSON(w, 200, wire.Settings{Settings: map[string]int64{"aging_ms": 5}})
			case r.URL.Path == "/v1/members":
				answerJSON(w, 200, wire.Members{FeatureLevel: 3})
			default:
				answerJSON(w, 200, wire.Explain{QueueDepth: 7})
			}
		})
		c, _ := n.client(t, Options{})
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(c.Fault(ctx, "box:gpu0", "fan"))
		retired, err := c.Retire(ctx, "box:gpu0")
		must(err)
		_, err = c.RetireHost(ctx, "box")
		must(err)
		job, err := c.Extend(ctx, "j-1", "ann", 1500*time.Millisecond)
		must(err)
		_, err = c.Release(ctx, "j-1", "root", true)
		must(err)
		_, err = c.Settings(ctx)
		must(err)
		settings, err := c.SetSettings(ctx, map[string]any{"aging_ms": 5})
		must(err)
		members, err := c.Members(ctx)
		must(err)
		_, err = c.Explain(ctx, ExplainOptions{Selector: "a=b", MaxRuntime: time.Minute})
		must(err)
		explain, err := c.Explain(ctx, ExplainOptions{JobID: "j-1"})
		must(err)
		if retired.Note != "n" || job.State != "running" || settings.Settings["aging_ms"] != 5 || members.FeatureLevel != 3 || explain.QueueDepth != 7 {
			t.Errorf("%v %v %v %v %v", retired, job, settings, members, explain)
		}
		want := []string{
			`POST /v1/devices/box:gpu0/fault {"reason":"fan"}`,
			`DELETE /v1/devices/box:gpu0 `,
			`DELETE /v1/hosts/box `,
			`POST /v1/jobs/j-1/extend {"submitter":"ann","max_runtime_seconds":2}`,
			`POST /v1/jobs/j-1/release {"submitter":"root","force":true}`,
			`GET /v1/settings `,
			`PATCH /v1/settings {"aging_ms":5}`,
			`GET /v1/members `,
			`GET /v1/explain?max_runtime_seconds=60&selector=a%3Db `,
			`GET /v1/explain?job=j-1 `,
		}
		if got := strings.Join(asked, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("asked\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	})
}

// An unset variable in a script makes an empty ID, which would be the path of
// something else.
func TestAnIDThatNamesNothingIsRefusedBeforeItIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			t.Errorf("asked %s %s", r.Method, r.URL)
			answerJSON(w, 200, wire.Retired{})
		})
		c, _ := n.client(t, Options{})
		for _, id := range []string{"", ".", ".."} {
			for what, err := range map[string]error{
				"kill":   c.Kill(t.Context(), id, "ann"),
				"clear":  c.Clear(t.Context(), id),
				"retire": func() error { _, err := c.Retire(t.Context(), id); return err }(),
				"host":   func() error { _, err := c.RetireHost(t.Context(), id); return err }(),
				"job":    func() error { _, err := c.Job(t.Context(), id); return err }(),
				"logs":   c.Logs(t.Context(), id, io.Discard, true),
			} {
				var refused *APIError
				if !errors.As(err, &refused) || refused.Code != wire.CodeBadRequest {
					t.Errorf("%s of %q: %v", what, id, err)
				}
			}
		}
	})
}
