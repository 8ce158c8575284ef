package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/raftnode"
	"rcd/wire"
)

// everyRequest is one of each kind that a halted node must refuse.
func everyRequest(job string) [][3]string {
	return [][3]string{
		{"POST", "/v1/jobs", submitTrue},
		{"POST", "/v1/jobs/" + job + "/kill", `{"submitter":"ann@box"}`},
		{"POST", "/v1/devices/box:gpu0/clear", ""},
		{"PATCH", "/v1/settings", `{"aging_ms":1}`},
		{"GET", "/v1/jobs", ""},
		{"GET", "/v1/jobs?stale=true", ""},
		{"GET", "/v1/devices", ""},
		{"GET", "/v1/devices?stale=true", ""},
		{"GET", "/v1/jobs/" + job, ""},
		{"GET", "/v1/jobs/" + job + "/logs", ""},
		{"GET", "/v1/jobs/" + job + "/logs?stale=true", ""},
		{"GET", "/v1/state", ""},
		{"GET", "/v1/explain?selector=rack", ""},
		{"GET", "/readyz", ""},
	}
}

func TestAHaltedNodeRefusesAtOnceAndSaysWhatHaltedIt(t *testing.T) {
	for name, leader := range map[string]string{"with a leader elsewhere": "c1", "without": ""} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				job, digest := c.nodes["c1"].submit(submitTrue), c.machine.Digest()
				n, why := c.nodes["c2"], "at index 1000 its digest differed"
				n.halted.Store(&why)
				c.lead(leader)
				if leader != "" {
					digest = c.machine.Digest()
				}
				for _, r := range everyRequest(job.ID) {
					began := time.Now()
					resp, raw := n.do(r[0], r[1], adminToken, r[2])
					wantError(t, resp, raw, 503, wire.CodeHalted)
					if took := time.Since(began); took != 0 || !strings.Contains(raw, why) || !strings.Contains(raw, "use another controller") {
						t.Errorf("%s %s after %v: %s", r[0], r[1], took, raw)
					}
				}
				n.log = sampleLog(t)
				for _, path := range []string{"/healthz", "/v1/raft/status", "/v1/raft/peers", "/v1/raft/log", "/v1/whoami"} {
					if resp, raw := n.do("GET", path, clientToken, ""); resp.StatusCode != 200 {
						t.Errorf("%s: %d %s", path, resp.StatusCode, raw)
					}
				}
				if c.machine.Digest() != digest {
					t.Error("the lease table changed")
				}
			})
		})
	}
}

// A leader that halts with a command in flight does not know what became of
// it, and must not say that nothing was changed.
func TestALeaderThatHaltsWithACommandInFlightDoesNotSayThatNothingHappened(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c1"]
		halts := func() error {
			why := "its table differs"
			n.halted.Store(&why)
			c.lead("c2")
			return raftnode.ErrOutcomeUnknown
		}
		n.after.Store(&halts)
		resp, raw := n.do("POST", "/v1/jobs", clientToken, submitTrue, "Idempotency-Key", "mine")
		wantError(t, resp, raw, 504, wire.CodeOutcomeUnknown)
		if job := c.nodes["c2"].submit(submitTrue, "Idempotency-Key", "mine"); job.ID != "j-1" || c.jobCount() != 1 {
			t.Errorf("%s, %d jobs", job.ID, c.jobCount())
		}
	})
}

// What waits on a node when it halts is told at once.
func TestARequestThatWaitsIsToldOfTheHalt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		job := c.nodes["c1"].submit(submitTrue)
		c.lead("")
		n, why := c.nodes["c2"], "its table differs"
		for _, r := range [][3]string{
			{"GET", "/v1/devices", ""}, {"POST", "/v1/jobs", submitTrue}, {"GET", "/v1/jobs/" + job.ID + "/logs?stale=true", ""},
		} {
			n.halted.Store(nil)
			time.AfterFunc(time.Second, func() { n.halted.Store(&why) })
			began := time.Now()
			resp, raw := n.do(r[0], r[1], clientToken, r[2])
			wantError(t, resp, raw, 503, wire.CodeHalted)
			if took := time.Since(began); took < time.Second || took > time.Second+2*retryPause {
				t.Errorf("%s: told after %v", r[1], took)
			}
		}
	})
}

// A node whose leader has halted waits for the next one, and does not tell its
// client to go away.
func TestALeaderThatHaltsIsNotTheEndForClientsOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		job := c.nodes["c2"].submit(submitTrue)
		n, why := c.nodes["c1"], "its table differs"
		c.start(1)
		c.spool(1).print("hello\n")
		c.finish(1, command.EndExited, 0, "")
		n.halted.Store(&why)
		refused := func(context.Context) (error, bool) { return raftnode.ErrNotLeader, true }
		n.propose.Store(&refused)
		halted := func() error { return raftnode.ErrHalted }
		n.read.Store(&halted)
		time.AfterFunc(time.Second, func() { c.lead("c3") })
		if resp, raw := c.nodes["c2"].do("GET", "/v1/jobs/"+job.ID+"/logs", clientToken, ""); resp.StatusCode != 200 || raw != "hello\n" {
			t.Errorf("logs through a healthy node: %d %q", resp.StatusCode, raw)
		}
	})
}

func TestANodeInNoClusterSaysWhatItWaitsFor(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.lead("")
		n := c.nodes["c2"]
		n.waiting = "waiting for c3 to answer"
		for _, r := range [][3]string{{"GET", "/v1/devices", ""}, {"POST", "/v1/jobs", submitTrue}} {
			resp, raw := n.do(r[0], r[1], clientToken, r[2])
			wantError(t, resp, raw, 503, wire.CodeNotInCluster)
			if !strings.Contains(raw, "waiting for c3 to answer") {
				t.Error(raw)
			}
		}
	})
}
