package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

func TestControllerAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"localhost:8080":         "http://localhost:8080",
		" http://box:80/ ":       "http://box:80",
		"https://box":            "https://box",
		"https://box/prefix/":    "https://box/prefix",
		"10.0.0.1:8081":          "http://10.0.0.1:8081",
		"[::1]:8080":             "http://[::1]:8080",
		"":                       "",
		"http://":                "",
		"ftp://box":              "",
		"http://user:pw@box":     "",
		"http://box/?token=abc":  "",
		"http://box:port":        "",
		"http://:8080":           "",
		"one:8080 two:8080":      "",
		"http://box:8080#anchor": "",
	} {
		n, err := parseNode(address)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is taken as %q", address, n.base)
		case want != "" && (err != nil || n.base != want):
			t.Errorf("%q: %v, error %v, want %q", address, n, err, want)
		}
	}
}

func TestARefusedAddressIsShownWithoutWhatMayBeASecret(t *testing.T) {
	for _, address := range []string{
		"http://user:hunter2@box", "http://user:hunter2@box:8080/p", "user:hunter2@box:8080", "http://user:hun@ter2@box", "ftp://user:hunter2@box",
		"http://user:hunter2@bo x", "http://hunter2@", "http://box/?token=hunter2", "http://box?hunter2", "http://box:8080#hunter2",
	} {
		if _, err := parseNode(address); err == nil || strings.Contains(err.Error(), "ter2") || !strings.Contains(err.Error(), "…") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestEveryRequestCarriesTokenAndWritesARequestID(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		seen := map[string]string{}
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				answerError(w, 401, wire.CodeUnauthorized)
				return
			}
			if id := r.Header.Get(wire.HeaderRequestID); id != "" {
				seen[id] = r.Method + " " + r.URL.EscapedPath()
			}
			answerJSON(w, 200, map[string]any{})
		})
		c, _ := n.client(t, Options{Token: "secret"})
		ctx := t.Context()
		if _, err := c.State(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Describe(ctx, "box:gpu0"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Kill(ctx, "j-1", "ann"); err != nil {
				t.Fatal(err)
			}
			if err := c.Clear(ctx, "box:gpu/0"); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != 4 {
			t.Fatalf("request IDs %v, want one for each of four changes", seen)
		}
		for _, what := range seen {
			if what != "POST /v1/jobs/j-1/kill" && what != "POST /v1/devices/box:gpu%2F0/clear" {
				t.Errorf("%s carries a request ID", what)
			}
		}
		c, _ = n.client(t, Options{Token: "wrong"})
		if _, err := c.Whoami(ctx); !errors.Is(err, ErrForbidden) {
			t.Fatalf("error %v, want ErrForbidden", err)
		}
	})
}

func TestSentinelsFollowTheCodes(t *testing.T) {
	for code, want := range map[string]error{"no_device_available": ErrNoDevice, "not_cancellable": ErrNotCancellable} {
		var err error = &APIError{Status: 409, Code: code}
		for _, sentinel := range []error{ErrNoDevice, ErrNotCancellable, ErrNotFound, ErrForbidden, ErrUnreachable} {
			if got := errors.Is(err, sentinel); got != (sentinel == want) {
				t.Errorf("%s is %v: %v", code, sentinel, got)
			}
		}
	}
}

func TestLimitsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, time.Second: 1, 1500 * time.Millisecond: 2, time.Hour: 3600} {
		if got := seconds(d); got != want {
			t.Errorf("%v is sent as %d s, want %d", d, got, want)
		}
	}
}

func TestNodeIsAskedByIDByAddressOrAny(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		status := func(id string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/raft/peers" {
					answerJSON(w, 200, wire.RaftPeers{Peers: []wire.RaftPeer{{ID: "c1"}, {ID: "c2"}, {ID: "c4", HTTP: "d:1"}}})
					return
				}
				answerJSON(w, 200, wire.RaftStatus{Node: id, State: "follower"})
			}
		}
		n.serve(t, "a:1", "c1", status("c1"))
		n.serve(t, "b:1", "c2", status("c2"))
		n.serve(t, "d:1", "c4", status("c4")) // not in the list, but a peer
		c, _ := n.client(t, Options{})
		for ask, want := range map[string]string{"": "c1", "c2": "c2", "c4": "c4", "d:1": "c4", "http://b:1": "c2"} {
			got, err := c.RaftStatus(t.Context(), ask)
			if err != nil || got.Node != want {
				t.Errorf("asked %q: %v, error %v, want %s", ask, got, err, want)
			}
		}
		_, err := c.RaftStatus(t.Context(), "c9")
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "c1, c2, c4") {
			t.Fatalf("error %v, want one that names the nodes there are", err)
		}
		if first := c.inOrder()[0].base; first != "http://a:1" {
			t.Fatalf("asking one node by name made %s the first", first)
		}
	})
}

func TestJobTooLargeIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		c, _ := n.client(t, Options{})
		_, err := c.Submit(t.Context(), SubmitOptions{Command: []string{strings.Repeat("x", wire.MaxBody)}})
		wantCode(t, err, 413, wire.CodeBodyTooLarge)
		if n.dialled("a:1") != 0 {
			t.Fatal("it was sent")
		}
	})
}
