package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rcd/raftnode"
	"rcd/wire"
)

const submitTrue = `{"submitter":"ann@box","device_id":"box:gpu1","command":["true"]}`

// inBubble runs f in virtual time with a cluster whose host is registered.
func inBubble(t *testing.T, f func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "c1", "c2", "c3")
		c.register()
		f(t, c)
	})
}

func (c *cluster) jobCount() int { return c.machine.View().Counts().Jobs }

func hook(errs ...error) *func(context.Context) (error, bool) {
	var calls atomic.Int64
	f := func(context.Context) (error, bool) {
		if n := calls.Add(1) - 1; n < int64(len(errs)) {
			return errs[n], true
		}
		return nil, false
	}
	return &f
}

func always(err error) *func(context.Context) (error, bool) {
	f := func(context.Context) (error, bool) { return err, true }
	return &f
}

func TestFollowerCarriesAWriteToTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		resp, raw := c.nodes["c2"].do("POST", "/v1/jobs", clientToken, submitTrue)
		h := resp.Header
		if resp.StatusCode != 201 || h.Get(wire.HeaderLeader) != "c1" || h.Get(wire.HeaderNode) != "c2" ||
			h.Get(wire.HeaderInstance) != "instance-of-c2" || h.Get(wire.HeaderIndex) != "3" {
			t.Fatalf("%d %v %s", resp.StatusCode, h, raw)
		}
		if c.jobCount() != 1 {
			t.Fatalf("%d jobs", c.jobCount())
		}
	})
}

// What an edge tries again by itself has one effect, although the caller gave
// no request ID.
func TestWriteTriedAgainHasOneEffect(t *testing.T) {
	for _, asked := range []string{"c1", "c2", "c3"} {
		t.Run(asked, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				lost := func() error { // logged, and then the leader is lost
					if c.nodes["c1"].Leader().Self {
						c.lead("c2")
					}
					return raftnode.ErrOutcomeUnknown
				}
				c.nodes["c1"].after.Store(&lost)
				job := c.nodes[asked].submit(submitTrue)
				if c.jobCount() != 1 || job.ID != "j-1" || c.proposals.Load() != 2 {
					t.Fatalf("%d jobs, %s, %d proposals", c.jobCount(), job.ID, c.proposals.Load())
				}
			})
		})
	}
}

func TestOutcomeUnknownNamesTheKeyToAskAgainWith(t *testing.T) {
	for _, key := range []string{"", "mine"} {
		for _, asked := range []string{"c1", "c2"} {
			t.Run(asked+key, func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *cluster) {
					unknown := func() error { return raftnode.ErrOutcomeUnknown }
					c.nodes["c1"].after.Store(&unknown)
					began := time.Now()
					var headers []string
					if key != "" {
						headers = []string{"Idempotency-Key", key}
					}
					resp, raw := c.nodes[asked].do("POST", "/v1/jobs", clientToken, submitTrue, headers...)
					wantError(t, resp, raw, 504, "outcome_unknown")
					if took := time.Since(began); took != requestDeadline {
						t.Fatalf("answered after %v", took)
					}
					again := resp.Header.Get("Idempotency-Key")
					if again == "" || key != "" && again != key || key == "" && !strings.Contains(raw, again) {
						t.Fatalf("key %q, %s", again, raw)
					}
					c.nodes["c1"].after.Store(nil)
					if job := c.nodes["c3"].submit(submitTrue, "Idempotency-Key", again); job.ID != "j-1" || c.jobCount() != 1 {
						t.Fatalf("%s, %d jobs", job.ID, c.jobCount())
					}
				})
			})
		}
	}
}

// A node without a leader answers within the request's deadline, and nothing
// has happened; a stale read is answered at once.
func TestNoLeaderIsSaidWithinTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		job := c.nodes["c1"].submit(submitTrue)
		c.lead("")
		before := c.machine.Digest()
		for _, r := range [][3]string{
			{"POST", "/v1/jobs", submitTrue},
			{"POST", "/v1/jobs/" + job.ID + "/kill", `{"submitter":"ann@box"}`},
			{"GET", "/v1/jobs", ""},
			{"GET", "/v1/devices", ""},
			{"GET", "/v1/jobs/" + job.ID, ""},
			{"GET", "/v1/jobs/" + job.ID + "/logs", ""},
			{"GET", "/v1/state", ""},
			{"GET", "/v1/explain?selector=rack", ""},
		} {
			began := time.Now()
			resp, raw := c.nodes["c2"].do(r[0], r[1], clientToken, r[2])
			wantError(t, resp, raw, 503, "no_leader")
			if took := time.Since(began); took != requestDeadline {
				t.Fatalf("%s answered after %v", r[1], took)
			}
			if resp.Header.Get("Retry-After") == "" {
				t.Fatalf("%s: no Retry-After", r[1])
			}
		}
		resp, raw := c.nodes["c2"].do("GET", "/readyz", "", "")
		wantError(t, resp, raw, 503, "no_leader")
		began := time.Now()
		resp, raw = c.nodes["c2"].do("GET", "/v1/jobs?stale=true", clientToken, "")
		if resp.StatusCode != 200 || resp.Header.Get(wire.HeaderAge) != "1234" || !strings.Contains(raw, job.ID) || time.Since(began) != 0 {
			t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, raw)
		}
		c.nodes["c2"].log = sampleLog(t)
		for _, path := range []string{"/healthz", "/v1/raft/status", "/v1/raft/peers", "/v1/raft/log"} {
			if resp, raw := c.nodes["c2"].do("GET", path, clientToken, ""); resp.StatusCode != 200 {
				t.Fatalf("%s: %d %s", path, resp.StatusCode, raw)
			}
		}
		if c.machine.Digest() != before {
			t.Fatal("the lease table changed")
		}
	})
}

func TestRequestsWaitForANewLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.lead("")
		elected := time.AfterFunc(3*time.Second, func() { c.lead("c3") })
		defer elected.Stop()
		if c.nodes["c2"].submit(submitTrue); c.jobCount() != 1 {
			t.Fatalf("%d jobs", c.jobCount())
		}
		c.lead("")
		elected.Reset(3 * time.Second)
		if resp, raw := c.nodes["c1"].do("GET", "/v1/jobs", clientToken, ""); resp.StatusCode != 200 || !strings.Contains(raw, "j-1") {
			t.Fatalf("%d %s", resp.StatusCode, raw)
		}
	})
}

// A leader that answers nothing any more (SIGSTOP) costs a request the time
// until another one is known, and no more.
func TestFrozenLeaderIsLeftWhenAnotherOneLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		thawed := make(chan struct{})
		frozen := func(context.Context) (error, bool) { <-thawed; return raftnode.ErrOutcomeUnknown, true }
		c.nodes["c1"].propose.Store(&frozen)
		defer close(thawed)
		time.AfterFunc(time.Second, func() { c.lead("c3") })
		began := time.Now()
		c.nodes["c2"].submit(submitTrue)
		if took := time.Since(began); took > time.Second+2*retryPause || c.jobCount() != 1 {
			t.Fatalf("after %v, %d jobs", took, c.jobCount())
		}
	})
}

// A refusal of the log is waited out; only what may have happened is unknown.
func TestRefusedProposalsAreTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].propose.Store(hook(raftnode.ErrNotLeader, raftnode.ErrNotLeader, raftnode.ErrOutcomeUnknown))
		if c.nodes["c2"].submit(submitTrue); c.jobCount() != 1 {
			t.Fatalf("%d jobs", c.jobCount())
		}
		c.nodes["c1"].propose.Store(always(raftnode.ErrNotLeader))
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("POST", "/v1/jobs", clientToken, submitTrue)
			wantError(t, resp, raw, 503, "no_leader")
		}
		c.nodes["c1"].propose.Store(always(errors.New("some other failure")))
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("POST", "/v1/jobs", clientToken, submitTrue)
			wantError(t, resp, raw, 504, "outcome_unknown")
		}
		c.nodes["c1"].propose.Store(always(raftnode.ErrOverloaded))
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("POST", "/v1/jobs", clientToken, submitTrue)
			wantError(t, resp, raw, 503, "overloaded")
		}
		// After a try with unknown outcome, "nothing was changed" would be a lie.
		for _, asked := range []string{"c1", "c2"} {
			var unknownOnce atomic.Bool
			f := func(context.Context) (error, bool) {
				if unknownOnce.CompareAndSwap(false, true) {
					return raftnode.ErrOutcomeUnknown, true
				}
				return raftnode.ErrOverloaded, true
			}
			c.nodes["c1"].propose.Store(&f)
			resp, raw := c.nodes[asked].do("POST", "/v1/jobs", clientToken, submitTrue)
			wantError(t, resp, raw, 504, "outcome_unknown")
		}
		if c.jobCount() != 1 {
			t.Fatalf("%d jobs", c.jobCount())
		}
	})
}

// A leader that cannot be dialled leaves nothing open; one whose connection
// breaks under way does.
func TestNeverSentIsToldFromMaybeArrived(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].forward.cut()
		resp, raw := c.nodes["c2"].do("POST", "/v1/jobs", clientToken, submitTrue)
		wantError(t, resp, raw, 503, "no_leader")
	})
	inBubble(t, func(t *testing.T, c *cluster) {
		cut := func() error { c.nodes["c1"].forward.cut(); return nil }
		c.nodes["c1"].after.Store(&cut)
		resp, raw := c.nodes["c2"].do("POST", "/v1/jobs", clientToken, submitTrue)
		wantError(t, resp, raw, 504, "outcome_unknown")
		if c.jobCount() != 1 {
			t.Fatalf("%d jobs", c.jobCount())
		}
	})
}

func TestRequestIDHasOneEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		other := strings.Replace(submitTrue, "true", "false", 1)
		n := c.nodes["c2"]
		first := n.submit(submitTrue, "Idempotency-Key", "k")
		if again := n.submit(submitTrue, "Idempotency-Key", "k"); again.ID != first.ID {
			t.Fatalf("%s and %s", first.ID, again.ID)
		}
		resp, raw := n.do("POST", "/v1/jobs", clientToken, other, "Idempotency-Key", "k")
		wantError(t, resp, raw, 422, "idempotency_key_reused")

		// The body's field is another space, and keeps the ancestor's rule.
		withField := func(body string) string { return strings.Replace(body, "{", `{"idempotency_key":"k",`, 1) }
		second := n.submit(withField(submitTrue))
		if second.ID == first.ID {
			t.Fatal("header and field share their IDs")
		}
		if again := n.submit(withField(other)); again.ID != second.ID || again.Command[0] != "true" {
			t.Fatalf("%+v", again)
		}
		// With both, either is enough to know the request by, and the header
		// still refuses another body.
		fourth := n.submit(strings.Replace(submitTrue, "{", `{"idempotency_key":"b1",`, 1), "Idempotency-Key", "h1")
		if again := n.submit(strings.Replace(other, "{", `{"idempotency_key":"b1",`, 1), "Idempotency-Key", "h2"); again.ID != fourth.ID {
			t.Fatalf("the body's key made %s and %s", fourth.ID, again.ID)
		}
		for _, header := range []string{"h1", "h2"} {
			resp, raw = n.do("POST", "/v1/jobs", clientToken, strings.Replace(submitTrue, "{", `{"idempotency_key":"b2",`, 1), "Idempotency-Key", header)
			wantError(t, resp, raw, 422, "idempotency_key_reused")
		}
		// And so is another caller's.
		_, raw = n.do("POST", "/v1/jobs", adminToken, submitTrue, "Idempotency-Key", "k")
		if third := decode[wire.Job](t, raw); third.ID == first.ID {
			t.Fatal("two identities share their IDs")
		}

		kill := "/v1/jobs/" + second.ID + "/kill"
		for range 2 {
			if resp, raw := n.do("POST", kill, clientToken, `{"submitter":"ann@box"}`, "Idempotency-Key", "end it"); resp.StatusCode != 200 {
				t.Fatalf("%d %s", resp.StatusCode, raw)
			}
		}
		resp, raw = n.do("POST", kill, clientToken, `{"submitter":"ann@box"}`, "Idempotency-Key", "again")
		wantError(t, resp, raw, 409, "not_cancellable")
		resp, raw = n.do("POST", "/v1/jobs/"+first.ID+"/kill", clientToken, `{"submitter":"ann@box"}`, "Idempotency-Key", "end it")
		wantError(t, resp, raw, 422, "idempotency_key_reused")
	})
}

// Nobody becomes somebody else by sending the headers that controllers use.
func TestForwardHeadersFromOutsideAreDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("POST", "/v1/devices/box:gpu0/clear", clientToken, "", headerRole, "admin", headerScope, "admin:0")
			wantError(t, resp, raw, 403, "forbidden")
			resp, raw = c.nodes[asked].do("GET", "/v1/whoami", "", "", headerRole, "admin", headerScope, "admin:0")
			wantError(t, resp, raw, 401, "unauthorized")
		}
		// And the internal routes are not served to clients.
		for _, path := range []string{pathReadIndex, pathContacts, pathPeer} {
			for _, method := range []string{"GET", "POST"} {
				if resp, _ := c.nodes["c1"].do(method, path, adminToken, "{}"); resp.StatusCode != 404 {
					t.Fatalf("%s %s: %d", method, path, resp.StatusCode)
				}
			}
		}
		r, _ := http.NewRequest("GET", peerURL+"/v1/whoami", nil)
		resp, err := c.nodes["c2"].peers.To("c1").RoundTrip(r)
		if err != nil || resp.StatusCode != 401 {
			t.Fatalf("%v %v", resp, err)
		}
		resp.Body.Close()
	})
}
