package api

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"rcd/wire"
)

// try sends a request without judging what comes back; headers are pairs.
func (n *node) try(ctx context.Context, method, path, token, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.api.name+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return n.api.dial(ctx) },
	}
	return transport.RoundTrip(r)
}

func (n *node) submit(body string, headers ...string) wire.Job {
	n.cluster.t.Helper()
	resp, raw := n.do("POST", "/v1/jobs", clientToken, body, headers...)
	if resp.StatusCode != http.StatusCreated {
		n.cluster.t.Fatalf("submit: %d %s", resp.StatusCode, raw)
	}
	return decode[wire.Job](n.cluster.t, raw)
}

func decode[T any](t *testing.T, raw string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return v
}

// wantError checks an answer that says no: code, a sentence, the headers every
// answer has.
func wantError(t *testing.T, resp *http.Response, raw string, status int, code string) {
	t.Helper()
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("status %d %s %q, want %d", resp.StatusCode, resp.Header.Get("Content-Type"), raw, status)
	}
	e := decode[wire.Error](t, raw)
	if e.Code != code || len(strings.Fields(e.Message)) < 4 {
		t.Fatalf("error %+v, want code %s and a sentence", e, code)
	}
	if resp.Header.Get(wire.HeaderInstance) == "" || resp.Header.Get(wire.HeaderNode) == "" {
		t.Fatalf("no instance or node in %v", resp.Header)
	}
}
