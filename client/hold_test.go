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

func TestWorkInsideAHoldIsAskedForInTheWordsOfTheAPI(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var asked []string
		ended := false
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
			switch {
			case strings.HasSuffix(r.URL.Path, "/heartbeat") && ended:
				answerJSON(w, 409, wire.Error{Code: wire.CodeJobEnded, Message: "it has ended"})
			case strings.HasSuffix(r.URL.Path, "/heartbeat"):
				answerJSON(w, 200, wire.HeartbeatAnswer{State: "running", KillRequested: true, SessionSeconds: 30})
			case r.Method == http.MethodGet:
				answerJSON(w, 200, wire.JobList{})
			default:
				answerJSON(w, 201, wire.Job{ID: "j-1"})
			}
		})
		c, _ := n.client(t, Options{})
		ctx := t.Context()
		_, err := c.Submit(ctx, SubmitOptions{DeviceID: "box:gpu0", Kind: "hold", Session: 29500 * time.Millisecond, Submitter: "ann"})
		_, err2 := c.Submit(ctx, SubmitOptions{Hold: "j-1", Command: []string{"true"}, Submitter: "ann"})
		_, err3 := c.Jobs(ctx, JobsOptions{Hold: "j-1"})
		answer, err4 := c.Heartbeat(ctx, "j-1", "ann")
		if err := errors.Join(err, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		if answer.State != "running" || !answer.KillRequested || answer.SessionSeconds != 30 {
			t.Errorf("%+v", answer)
		}
		ended = true
		if _, err := c.Heartbeat(ctx, "j-1", "ann"); !errors.Is(err, ErrJobEnded) {
			t.Errorf("after its end: %v", err)
		}
		want := []string{
			`POST /v1/jobs {"device_id":"box:gpu0","submitter":"ann","kind":"hold","session_seconds":30}`,
			`POST /v1/jobs {"command":["true"],"submitter":"ann","hold":"j-1"}`,
			`GET /v1/jobs?hold=j-1 `,
			`POST /v1/jobs/j-1/heartbeat {"submitter":"ann"}`,
			`POST /v1/jobs/j-1/heartbeat {"submitter":"ann"}`,
		}
		if got := strings.Join(asked, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("asked\n%s", got)
		}
	})
}
