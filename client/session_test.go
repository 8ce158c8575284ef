package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"rcd/wire"
)

// pulse is a hold with a session as its controllers see it.
type pulse struct {
	mu    sync.Mutex
	at    []time.Time
	paths []string
	code  string // refuses with this instead
}

func (p *pulse) handler(w http.ResponseWriter, r *http.Request) {
	var said wire.HeartbeatRequest
	_ = json.NewDecoder(r.Body).Decode(&said)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, time.Now())
	p.paths = append(p.paths, r.Method+" "+r.URL.Path+" "+said.Submitter)
	switch p.code {
	case "":
		answerJSON(w, http.StatusOK, wire.HeartbeatAnswer{State: "running", SessionSeconds: 60})
	case "not_job_owner":
		answerError(w, http.StatusForbidden, p.code)
	default:
		answerError(w, http.StatusConflict, p.code)
	}
}

func (p *pulse) longestPause() (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.at); i++ {
		longest = max(longest, p.at[i].Sub(p.at[i-1]))
	}
	return longest
}

// words are what a session said, and when.
type words struct {
	mu   sync.Mutex
	said []string
}

func (w *words) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *words) options(timeout time.Duration) SessionOptions {
	return SessionOptions{Submitter: "ann@box", Timeout: timeout,
		Silent: func(silent, left time.Duration) {
			w.add("silent " + silent.Round(time.Second).String() + " left " + left.Round(time.Second).String())
		},
		Heard: func() { w.add("heard") },
	}
}

func TestHeartbeatsComeInTimeThroughAnyNodeThatAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var p pulse
		var w words
		n.serve(t, "b:1", "b", p.handler)
		n.serve(t, "c:1", "c", p.handler)
		c, _ := n.client(t, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		// Each node is as bad as can be for a while, one after the other.
		for i, bad := range []dialFunc{swallow, mute, refuse} {
			node := []string{"a:1", "b:1", "c:1"}[i]
			good := n.at[node]
			time.AfterFunc(time.Duration(i+1)*time.Minute, func() { n.put(node, bad) })
			time.AfterFunc(time.Duration(i+1)*time.Minute+50*time.Second, func() { n.put(node, good); c.Close() })
		}
		if err := c.KeepSession(ctx, "j-5", w.options(60*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if longest := p.longestPause(); longest > 30*time.Second || len(p.at) < 30 {
			t.Errorf("%d heartbeats, the longest pause %v", len(p.at), longest)
		}
		if len(w.said) > 0 {
			t.Errorf("said %q", w.said)
		}
		if p.paths[0] != "POST /v1/jobs/j-5/heartbeat ann@box" {
			t.Errorf("sent %q", p.paths[0])
		}
	})
}

func TestASilentClusterIsToldOfAfterHalfTheTimeAndAgainAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var p pulse
		var w words
		n.serve(t, "a:1", "a", p.handler)
		good := n.at["a:1"]
		c, _ := n.client(t, Options{})
		time.AfterFunc(30*time.Second, func() { n.put("a:1", refuse); c.Close() })
		time.AfterFunc(49*time.Second, func() {
			if len(w.said) > 0 {
				t.Errorf("said too early: %q", w.said)
			}
		})
		time.AfterFunc(5*time.Minute, func() { n.put("a:1", good) })
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
		defer cancel()
		if err := c.KeepSession(ctx, "j-5", w.options(60*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		// The last one that was answered went out after 20 s.
		if want := []string{"silent 30s left 30s", "silent 1m0s left 0s", "heard"}; !slices.Equal(w.said, want) {
			t.Errorf("said %q, want %q", w.said, want)
		}
	})
}

func TestASessionEndsWithItsHoldAndIsRefusedToOthers(t *testing.T) {
	for code, ends := range map[string]bool{"job_ended": true, "not_job_owner": false} {
		bubble(t, func(t *testing.T, n *network) {
			p, w := pulse{code: code}, words{}
			n.serve(t, "a:1", "a", p.handler)
			c, _ := n.client(t, Options{})
			err := c.KeepSession(t.Context(), "j-5", w.options(60*time.Second))
			var refusal *APIError
			if ends && err != nil || !ends && (!errors.As(err, &refusal) || refusal.Code != code) {
				t.Errorf("%s: %v", code, err)
			}
		})
	}
}
