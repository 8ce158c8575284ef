package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

func TestARefusalSaysWhenToAskAgainAndUnderWhichID(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			answerError(w, http.StatusTooManyRequests, "queue_full")
		})
		c, _ := n.client(t, Options{Controllers: []string{"a:1"}})
		var refusal *APIError
		_, err := c.Submit(t.Context(), SubmitOptions{DeviceID: "box:gpu0", RequestID: "mine"})
		if !errors.As(err, &refusal) || refusal.RetryAfter != 7*time.Second || refusal.RequestID != "mine" {
			t.Fatalf("%#v", err)
		}
		_, err = c.Devices(t.Context())
		if !errors.As(err, &refusal) || refusal.RetryAfter != 7*time.Second || refusal.RequestID != "" {
			t.Fatalf("%#v", err)
		}
	})
}

func TestAnUnknownRouteIsNotAMissingJob(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/jobs/") {
				answerError(w, http.StatusNotFound, wire.CodeNotFound)
				return
			}
			http.NotFound(w, r)
		})
		c, _ := n.client(t, Options{Controllers: []string{"a:1"}})
		if _, err := c.Job(t.Context(), "j-1"); !errors.Is(err, ErrNotFound) {
			t.Fatalf("no job: %v", err)
		}
		if _, err := c.Members(t.Context()); err == nil || errors.Is(err, ErrNotFound) {
			t.Fatalf("no route: %v", err)
		}
	})
}

// What an outage prints for people is its parts for programs.
func TestAnOutageInParts(t *testing.T) {
	for _, e := range []*OutageError{
		{Waited: 3 * time.Second},
		{Unknown: true, RequestID: "mine", Failures: []Failure{{"http://a:1", &noAnswerError{time.Second}}}},
		{Failures: []Failure{
			{"http://a:1", &APIError{Status: 503, Code: wire.CodeNoLeader, Message: "no leader", RetryAfter: time.Second}},
			{"http://b:1", errNotYet},
		}},
	} {
		text := e.Error()
		first, _, _ := strings.Cut(text, "\n")
		what := strings.TrimPrefix(first, e.Code()+": ")
		if !strings.HasPrefix(e.Message(), what) || strings.Contains(e.Message(), "\n") || !strings.HasSuffix(text, "\n"+e.Hint()) {
			t.Errorf("%q is not %q and %q", text, e.Message(), e.Hint())
		}
		for _, f := range e.Failures {
			if !strings.Contains(e.Message(), f.Address+": "+Why(f.Err)) {
				t.Errorf("%q names no %s", e.Message(), f.Address)
			}
		}
		if want := time.Duration(len(e.Failures)/2) * time.Second; e.RetryAfter() != want {
			t.Errorf("retry after %v, want %v", e.RetryAfter(), want)
		}
	}
}
