package api

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

// sample makes a request of a route that would be served: j-1 is a plain job,
// j-2 one on a terminal.
func sample(r route) (method, path, body string, headers []string) {
	method, path, _ = strings.Cut(r.pattern, " ")
	id := "j-1"
	switch {
	case strings.HasSuffix(path, "/attach"), strings.Contains(path, "/tty/"):
		id = "j-2"
	case strings.HasPrefix(path, "/v1/devices"):
		id = "box:gpu0"
	case strings.HasPrefix(path, "/v1/hosts"):
		id = "box"
	case path == "/v1/explain":
		path += "?selector=rack"
	}
	path = strings.NewReplacer("{id}", id, "{$}", "").Replace(path)
	if r.write != nil {
		body = cmp.Or(map[string]string{
			"POST /v1/jobs":               submitTrue,
			"POST /v1/jobs:batch":         `{"jobs":[` + submitTrue + `]}`,
			"POST /v1/jobs/{id}/extend":   `{"submitter":"ann@box","max_runtime_seconds":900}`,
			"POST /v1/devices/{id}/fault": `{"reason":"fan"}`,
			"PATCH /v1/settings":          `{"aging_ms":1}`,
		}[r.pattern], `{"submitter":"ann@box"}`)
	}
	if r.status == http.StatusSwitchingProtocols {
		headers = []string{"Connection", "Upgrade", "Upgrade", relay.UpgradeProtocol}
	}
	return method, path, body, headers
}

// plight is a state of things in which every route says the same.
type plight struct {
	status  int
	arrange func(n *node)
	// change alters the request; nil: it is as it should be.
	change func(r route, path, body string) (string, string, []string)
}

// plights are those of the codes that many routes share.
var plights = map[string]plight{
	wire.CodeNoLeader: {503, func(n *node) { n.cluster.lead("") }, nil},
	wire.CodeNotInCluster: {503, func(n *node) {
		n.cluster.lead("")
		n.waiting = "waiting for c3 to answer"
	}, nil},
	wire.CodeHalted:     {503, func(n *node) { why := "its digest differed"; n.halted.Store(&why) }, nil},
	wire.CodeStoreError: {500, func(n *node) { n.panics.Store(true) }, nil},
	wire.CodeOverloaded: {503, func(n *node) {
		full := func() error { return raftnode.ErrOverloaded }
		n.read.Store(&full)
		n.propose.Store(hook(slices.Repeat([]error{raftnode.ErrOverloaded}, 100)...))
	}, nil},
	wire.CodeOutcomeUnknown: {504, func(n *node) {
		lost := func() error { return raftnode.ErrOutcomeUnknown }
		n.after.Store(&lost)
	}, nil},
	wire.CodeBodyTooLarge: {413, func(*node) {}, func(_ route, path, _ string) (string, string, []string) {
		return path, `{"submitter":"` + strings.Repeat("a", wire.MaxBody) + `"}`, nil
	}},
	"idempotency_key_reused": {422, func(n *node) {
		n.submitAs(adminToken, submitTrue, "Idempotency-Key", "mine")
	}, func(_ route, path, body string) (string, string, []string) {
		return path, " " + body, []string{"Idempotency-Key", "mine"}
	}},
	wire.CodeBadRequest: {400, func(*node) {}, func(r route, path, body string) (string, string, []string) {
		switch {
		case r.write != nil:
			return path, body, []string{"Idempotency-Key", "\xff"}
		case path == pathEvents:
			return path, body, []string{"Last-Event-ID", "yesterday"}
		case path == "/v1/raft/log":
			return path + "?n=0", body, nil
		}
		return path + map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "consistency=odd", body, nil
	}},
}

// submitAs is submit by another token.
func (n *node) submitAs(token, body string, headers ...string) {
	n.cluster.t.Helper()
	if resp, raw := n.do("POST", "/v1/jobs", token, body, headers...); resp.StatusCode != http.StatusCreated {
		n.cluster.t.Fatalf("submit: %d %s", resp.StatusCode, raw)
	}
}

// TestEveryRouteSaysWhatItDeclaresInEachPlight asks each route of the document
// in each state of things for which it declares a code.
func TestEveryRouteSaysWhatItDeclaresInEachPlight(t *testing.T) {
	s := newServer(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
	for code, p := range plights {
		t.Run(code, func(t *testing.T) {
			for _, r := range s.routes() {
				if r.plain != nil || !slices.Contains(r.allCodes(), code) || unseen[fmt.Sprintf("%s %d %s", r.pattern, p.status, code)] != "" {
					continue
				}
				t.Run(r.pattern, func(t *testing.T) {
					inBubble(t, func(t *testing.T, c *cluster) {
						n := c.nodes["c1"]
						n.submit(submitTrue)
						n.submit(submitTerminal)
						n.log = sampleLog(t)
						if strings.HasPrefix(r.pattern, "GET /v1/raft/") && code == wire.CodeNotInCluster {
							n.log = LogPage{}
						}
						p.arrange(n)
						method, path, body, headers := sample(r)
						if p.change != nil {
							var more []string
							path, body, more = p.change(r, path, body)
							headers = append(headers, more...)
						}
						before := c.machine.Digest()
						resp, raw := n.do(method, path, adminToken, body, headers...)
						if resp.StatusCode != p.status || !strings.Contains(raw, `"`+code+`"`) {
							t.Errorf("%s: %d %s, want %d %s", r.pattern, resp.StatusCode, raw, p.status, code)
						}
						if c.machine.Digest() != before && code != wire.CodeOutcomeUnknown {
							t.Errorf("%s changed the lease table", r.pattern)
						}
					})
				})
			}
		})
	}
}

// TestTheBoundsOfTheTableAreToldAsTheyAre meets each bound of a submit, of one
// job and of an array.
func TestTheBoundsOfTheTableAreToldAsTheyAre(t *testing.T) {
	selector := func(name string) string {
		return strings.Replace(submitTrue, `"device_id":"box:gpu1"`, `"selector":"`+name+`"`, 1)
	}
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitTrue) // gpu1 is held
		n.ask("PATCH", "/v1/settings", `{"max_selectors":1}`, 200)
		n.submit(selector("cpus>=1"))
		n.submit(selector("cpus>=2"))
		for body, want := range map[string]struct {
			status int
			code   string
		}{
			selector("cpus>=3"):                                    {429, "too_many_selectors"},
			selector("rack>"):                                      {400, "bad_selector"},
			selector("rack=none"):                                  {400, "no_matching_device"},
			strings.Replace(submitTrue, "gpu1", "gpu9", 1):         {400, "unknown_device"},
			strings.Replace(submitLimited, "600", "7200", 1):       {400, "runtime_above_ceiling"},
			strings.Replace(submitTrue, "{", `{"priority":11,`, 1): {400, "priority_out_of_range"},
			strings.Replace(submitTrue, "{", `{"env":{"A":"`+strings.Repeat("v", 65<<10)+`"},`, 1): {413, "env_too_large"},
		} {
			resp, raw := n.do("POST", "/v1/jobs", clientToken, body)
			wantError(t, resp, raw, want.status, want.code)
			resp, raw = n.do("POST", "/v1/jobs:batch", clientToken, `{"jobs":[`+body+`]}`)
			wantError(t, resp, raw, want.status, want.code)
		}
		n.ask("PATCH", "/v1/settings", `{"max_queued":1}`, 200)
		resp, raw := n.do("POST", "/v1/jobs", clientToken, submitTrue)
		wantError(t, resp, raw, 429, "queue_full")
		if resp.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		resp, raw = n.do("POST", "/v1/jobs:batch", clientToken, `{"jobs":[`+submitTrue+`]}`)
		wantError(t, resp, raw, 429, "queue_full")
	})
}

// A request ID outlives its jobs.
func TestARequestWhoseJobsAreForgottenIsToldSo(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitTrue) // gpu1 is held
		n.ask("PATCH", "/v1/settings", `{"max_finished":0}`, 200)
		array := `{"jobs":[` + submitTrue + `]}`
		n.ask("POST", "/v1/jobs", submitTrue, 201, "Idempotency-Key", "one")
		n.ask("POST", "/v1/jobs:batch", array, 201, "Idempotency-Key", "many")
		for _, id := range []string{"j-2", "j-3"} {
			n.ask("POST", "/v1/jobs/"+id+"/kill", `{"submitter":"ann@box"}`, 200)
		}
		c.must(&command.JobPrune{Limit: 100})
		resp, raw := n.do("POST", "/v1/jobs", adminToken, submitTrue, "Idempotency-Key", "one")
		wantError(t, resp, raw, 404, wire.CodeNotFound)
		resp, raw = n.do("POST", "/v1/jobs:batch", adminToken, array, "Idempotency-Key", "many")
		wantError(t, resp, raw, 404, wire.CodeNotFound)
	})
}

// An ID of three letters may fit several jobs; whoever reads is told, and
// whoever changes something must write it whole.
func TestEveryReadSaysThatAPrefixIsAmbiguous(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitTrue)
		n.submit(submitTrue)
		for _, path := range []string{"/v1/jobs/j", "/v1/explain?job=j", "/v1/jobs/j/logs", "/v1/jobs/j/tty/out"} {
			resp, raw := n.do("GET", path, clientToken, "")
			wantError(t, resp, raw, 400, wire.CodeAmbiguous)
		}
		resp, raw := n.do("POST", "/v1/jobs/j/tty/in", clientToken, "")
		wantError(t, resp, raw, 400, wire.CodeAmbiguous)
		for _, route := range []string{"stream", "attach"} {
			resp, raw := n.do("GET", "/v1/jobs/j/"+route, clientToken, "", "Connection", "Upgrade", "Upgrade", relay.UpgradeProtocol)
			wantError(t, resp, raw, 400, wire.CodeAmbiguous)
		}
		for _, verb := range []string{"kill", "extend", "release"} {
			resp, raw := n.do("POST", "/v1/jobs/j/"+verb, clientToken, `{"submitter":"ann@box","max_runtime_seconds":9}`)
			wantError(t, resp, raw, 404, wire.CodeNotFound)
		}
	})
}

// A command that breaks an invariant is undone, and its sender told.
func TestABrokenInvariantIsToldByEveryRouteThatWrites(t *testing.T) {
	s := newServer(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
	for _, r := range s.routes() {
		if r.write == nil || r.unlogged {
			continue
		}
		t.Run(r.pattern, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				n := c.nodes["c1"]
				n.submit(submitTrue)
				broken := error(rejected(command.Result{Code: command.InternalInvariant}))
				n.propose.Store(hook(broken))
				method, path, body, _ := sample(r)
				resp, raw := n.do(method, path, adminToken, body)
				wantError(t, resp, raw, 500, string(command.InternalInvariant))
			})
		})
	}
}
