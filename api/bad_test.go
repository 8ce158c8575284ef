package api

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/wire"
)

// manyVariables is an environment of n tiny variables.
func manyVariables(n int) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `"%x":""`, i)
	}
	return b.String() + "}"
}

// Bad input gets a code and a sentence, on the leader and elsewhere, and
// changes nothing.
func TestBadInputChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitTrue)
		c.nodes["c1"].submit(submitTrue)
		large := `{"submitter":"a","device_id":"box:gpu1","command":["` + strings.Repeat("x", wire.MaxBody) + `"]}`
		field := func(name, value string) string {
			return strings.Replace(submitTrue, "{", `{"`+name+`":`+value+`,`, 1)
		}
		kill := `{"submitter":"ann@box"}`
		for _, bad := range []struct {
			method, path, body string
			status             int
			code               string
		}{
			{"POST", "/v1/jobs", strings.Replace(submitTrue, "gpu1", "gpu7", 1), 400, "unknown_device"},
			{"POST", "/v1/jobs", `{"submitter":"a","selector":"rack=zz","command":["true"]}`, 400, "no_matching_device"},
			{"POST", "/v1/jobs", `{"submitter":"a","selector":"rack>","command":["true"]}`, 400, "bad_selector"},
			{"POST", "/v1/jobs", `{"submitter":`, 400, "bad_request"},
			{"POST", "/v1/jobs", `{"command":"true"}`, 400, "bad_request"},
			{"POST", "/v1/jobs", `[]`, 400, "bad_request"},
			{"POST", "/v1/jobs", ``, 400, "bad_request"},
			{"POST", "/v1/jobs", large, 413, "body_too_large"},
			{"POST", "/v1/jobs", field("priority", "11"), 400, "priority_out_of_range"},
			{"POST", "/v1/jobs", field("env", `{"RC_GRACE_SIGNAL":"KILL@30s"}`), 400, "bad_request"},
			{"POST", "/v1/jobs", field("priority", "-11"), 400, "priority_out_of_range"},
			{"POST", "/v1/jobs", field("priority", "266"), 400, "priority_out_of_range"},
			{"POST", "/v1/jobs", field("priority", `"high"`), 400, "bad_request"},
			{"POST", "/v1/jobs", field("cwd", `"a\u0000b"`), 400, "bad_request"},
			{"POST", "/v1/jobs", field("env", `{"A=B":"c"}`), 400, "bad_request"},
			// JSON would make another character of it.
			{"POST", "/v1/jobs", field("env", "{\"A\":\"\xff\"}"), 400, "bad_request"},
			{"POST", "/v1/jobs", field("env", `{"":"c"}`), 400, "bad_request"},
			// More elements than the log's decoder takes: such an entry would
			// halt every node for good.
			{"POST", "/v1/jobs", strings.Replace(submitTrue, `["true"]`, `["true"`+strings.Repeat(`,""`, 200_000)+`]`, 1), 400, "bad_request"},
			{"POST", "/v1/jobs", field("env", manyVariables(70_000)), 400, "bad_request"},
			{"POST", "/v1/jobs", strings.Replace(submitTrue, `["true"]`, `[""]`, 1), 400, "bad_request"},
			{"POST", "/v1/jobs", field("max_runtime_seconds", "18446744074"), 400, "bad_request"},
			{"POST", "/v1/jobs", field("idle_timeout_seconds", "9223372036854775807"), 400, "bad_request"},
			{"POST", "/v1/jobs", field("reason", `"`+strings.Repeat("r", 2000)+`"`), 400, "bad_request"},
			{"POST", "/v1/jobs", field("env", `{"A":"`+strings.Repeat("v", 65<<10)+`"}`), 413, "env_too_large"},
			{"POST", "/v1/jobs", field("idempotency_key", `"`+strings.Repeat("k", 300)+`"`), 400, "bad_request"},
			{"POST", "/v1/jobs/j-99/kill", kill, 404, "not_found"},
			{"POST", "/v1/jobs/j-2/kill", ``, 400, "bad_request"},
			{"POST", "/v1/jobs/j-2/kill", `{}`, 403, "not_job_owner"},
			{"POST", "/v1/jobs/j-/kill", kill, 404, "not_found"},
			{"GET", "/v1/jobs/j-99", "", 404, "not_found"},
			{"GET", "/v1/jobs/j", "", 400, "ambiguous_id"},
			{"GET", "/v1/jobs/%2e%2e%2fx", "", 404, "not_found"},
			{"GET", "/v1/jobs?limit=ten", "", 400, "bad_request"},
			{"GET", "/v1/jobs?stale=perhaps", "", 400, "bad_request"},
			{"GET", "/v1/jobs?consistency=none", "", 400, "bad_request"},
			{"GET", "/v1/raft/log?n=0", "", 400, "bad_request"},
			{"GET", "/v1/raft/log?since=-1", "", 400, "bad_request"},
		} {
			for _, asked := range []string{"c1", "c2"} {
				before := c.machine.Digest()
				resp, raw := c.nodes[asked].do(bad.method, bad.path, clientToken, bad.body)
				wantError(t, resp, raw, bad.status, bad.code)
				if c.machine.Digest() != before {
					t.Fatalf("%s %s changed the lease table", bad.method, bad.path)
				}
			}
		}
		// Text that is not UTF-8, too, would halt whoever decodes it.
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("POST", "/v1/devices/box:gpu%ff/clear", adminToken, "")
			wantError(t, resp, raw, 400, "bad_request")
			resp, raw = c.nodes[asked].do("POST", "/v1/jobs", clientToken, submitTrue, "Idempotency-Key", "\xff\xfe")
			wantError(t, resp, raw, 400, "bad_request")
		}
		resp, raw := c.nodes["c1"].do("POST", "/v1/jobs", clientToken, submitTrue, "Idempotency-Key", strings.Repeat("k", 255))
		wantError(t, resp, raw, 400, "bad_request")
		_, raw = c.nodes["c1"].do("GET", "/v1/jobs/j", clientToken, "")
		if !strings.Contains(raw, "j-1") || !strings.Contains(raw, "j-2") {
			t.Fatalf("the candidates are not named: %s", raw)
		}
	})
}

// A node with more in hand than it takes says so, and takes the next later.
func TestFullEdgeIsOverloaded(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		thawed := make(chan struct{})
		frozen := func(context.Context) (error, bool) { <-thawed; return nil, false }
		c.nodes["c1"].propose.Store(&frozen)
		done := make(chan int, maxWrites)
		for range maxWrites {
			go func() {
				resp, _ := c.nodes["c1"].do("POST", "/v1/jobs", clientToken, submitTrue)
				done <- resp.StatusCode
			}()
		}
		synctest.Wait()
		resp, raw := c.nodes["c1"].do("POST", "/v1/jobs", clientToken, submitTrue)
		wantError(t, resp, raw, 503, "overloaded")
		close(thawed)
		for range maxWrites {
			if status := <-done; status != 201 {
				t.Fatal(status)
			}
		}
		c.nodes["c1"].submit(submitTrue)
	})
}

// A client that does not send its body is not waited for long.
func TestSlowBodyIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		conn, err := c.nodes["c1"].api.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go io.WriteString(conn, "POST /v1/jobs HTTP/1.1\r\nHost: c1\r\nAuthorization: Bearer "+clientToken+"\r\nContent-Length: 100\r\n\r\n{")
		began := time.Now()
		got, _ := io.ReadAll(conn)
		if !strings.Contains(string(got), " 400 ") || time.Since(began) != bodyDeadline {
			t.Fatalf("after %v: %s", time.Since(began), got)
		}
	})
}

func TestUniquePrefixNamesAJob(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitTrue)
		_, raw := c.nodes["c2"].do("GET", "/v1/jobs/j", clientToken, "")
		if decode[wire.JobView](t, raw).Job.ID != "j-1" {
			t.Fatal(raw)
		}
		for range 11 {
			c.nodes["c1"].submit(submitTrue)
		}
		// Exact goes before prefix.
		_, raw = c.nodes["c2"].do("GET", "/v1/jobs/j-1", clientToken, "")
		if decode[wire.JobView](t, raw).Job.ID != "j-1" {
			t.Fatal(raw)
		}
	})
}

func TestAPrefixNeverNamesAJobToChange(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitTrue)
		before := c.machine.Digest()
		for _, target := range []string{"j", "j-"} { // unique: the only job
			for path, body := range map[string]string{
				"/kill":    `{"submitter":"ann@box"}`,
				"/release": `{"submitter":"ann@box"}`,
				"/extend":  `{"submitter":"ann@box","max_runtime_seconds":7200}`,
			} {
				resp, raw := c.nodes["c2"].do("POST", "/v1/jobs/"+target+path, adminToken, body)
				wantError(t, resp, raw, 404, "not_found")
			}
		}
		if c.machine.Digest() != before {
			t.Fatal("the lease table has changed")
		}
	})
}

func TestPanicBecomesAnAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		broken := func() error { panic("a defect") }
		c.nodes["c2"].read.Store(&broken)
		resp, raw := c.nodes["c2"].do("GET", "/v1/jobs", clientToken, "")
		wantError(t, resp, raw, 500, "store_error")
		if strings.Contains(raw, "a defect") {
			t.Fatalf("the panic's text is shown: %s", raw)
		}
	})
}

// After a part of the answer is out, a panic breaks the connection.
func TestPanicAfterTheAnswerBeganIsNotHidden(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		s := newServer(Config{NodeID: "c9", Logger: slog.New(slog.DiscardHandler)}, c.nodes["c1"])
		s.mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, strings.Repeat("x", 100_000))
			panic("a defect")
		})
		l := newPipeListener("c9")
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- Serve(ctx, l, s, slog.New(slog.DiscardHandler)) }()
		n := &node{api: l, cluster: c}
		resp, err := n.try(t.Context(), "GET", "/", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Fatal("the answer looks whole")
		}
		resp.Body.Close()
		cancel()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	})
}

// A request whose body came slowly has its own time after that.
func TestSlowAnswerIsNotCutByTheBodysDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		conn, err := c.nodes["c1"].api.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c.lead("")
		time.AfterFunc(bodyDeadline+2*time.Second, func() { c.lead("c1") })
		go func() {
			fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: c1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", clientToken, len(submitTrue))
			time.Sleep(bodyDeadline - time.Second)
			io.WriteString(conn, submitTrue)
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != 201 {
			t.Fatalf("%v %v", resp, err)
		}
	})
}

// A kill says whether the job's host is out of reach.
func TestKillSaysWhetherTheHostIsDetached(t *testing.T) {
	for _, detached := range []bool{false, true} {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.running()
			c.nodes["c1"].detached.Store(detached)
			var seen atomic.Pointer[[]byte]
			c.nodes["c1"].seen = &seen
			if resp, raw := c.nodes["c2"].do("POST", "/v1/jobs/j-1/kill", clientToken, `{"submitter":"ann@box"}`); resp.StatusCode != 200 || raw != "" {
				t.Fatalf("%d %s", resp.StatusCode, raw)
			}
			cmd, err := command.Decode(*seen.Load())
			if err != nil {
				t.Fatal(err)
			}
			if kill := cmd.Body.(*command.JobKill); kill.Detached != detached || kill.Job != 1 || kill.Admin || cmd.Request.Scope != "client:"+scopeOf(clientToken) {
				t.Fatalf("%+v %+v", kill, cmd.Request)
			}
		})
	}
}

func scopeOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])[:12]
}

// What a device's age is counted from is when any controller last heard its
// host; a stale answer says what this node last knew, and how old that is.
func TestHeartbeatAgeIsTheLeadersOrTheLastKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.advance(time.Minute)
		n := c.nodes["c2"]
		for _, step := range []struct {
			path  string
			heard map[string]time.Duration
			old   time.Duration
			age   int64
			say   string // Rc-Heard-Age-Ms
		}{
			{"/v1/devices", nil, 0, 1, ""},
			{"/v1/devices?stale=true", map[string]time.Duration{"box": 7 * time.Second}, 5 * time.Second, 7, "5000"},
			{"/v1/devices?stale=true", map[string]time.Duration{"box": 0}, 0, 0, "0"},
			{"/v1/devices?stale=true", map[string]time.Duration{}, 5 * time.Second, 60, "5000"},
			{"/v1/devices?stale=true", map[string]time.Duration{}, -1, 60, ""},
			// It registered since then, so the row knows better.
			{"/v1/devices?stale=true", map[string]time.Duration{"box": time.Hour}, time.Hour, 60, "3600000"},
		} {
			n.heard, n.heardAge = step.heard, step.old
			resp, raw := n.do("GET", step.path, clientToken, "")
			views := decode[[]wire.DeviceView](t, raw)
			at := c.now.Add(-time.Duration(step.age) * time.Second)
			if step.path == "/v1/devices" {
				at = c.now.Add(-1500 * time.Millisecond)
			}
			if len(views) != 2 || views[0].HeartbeatAgeSeconds != step.age || *views[0].OldestLabelAgeSeconds != 60 || !views[0].Device.LastHeartbeatAt.Equal(at.Truncate(time.Second)) {
				t.Errorf("%+v: %s", step, raw)
			}
			if say := resp.Header.Get(wire.HeaderHeardAge); say != step.say {
				t.Errorf("%+v: the answer says that it is %q ms old", step, say)
			}
		}
		if resp, _ := n.do("GET", "/v1/jobs?stale=true", clientToken, ""); resp.Header.Get(wire.HeaderHeardAge) != "" {
			t.Error("a list of jobs, which tells of no heartbeats, says how old they are")
		}
	})
}

// A node that has no state never shows an empty fleet as the truth.
func TestEmptyNodeShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "c1")
		c.machine = fsm.New(fsm.Options{})
		resp, raw := c.nodes["c1"].do("GET", "/v1/devices?stale=true", clientToken, "")
		wantError(t, resp, raw, 503, "no_leader")
	})
}
