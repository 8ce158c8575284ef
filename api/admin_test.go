package api

import (
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// Each route is for its roles, on the leader and through a follower.
func TestAdminRoutesAreForTheirRoles(t *testing.T) {
	const client, worker, admin = clientToken, workerToken, adminToken
	for _, r := range []struct {
		method, path, body string
		may                []string
	}{
		{"POST", "/v1/devices/box:gpu0/fault", `{"reason":"fan"}`, []string{worker, admin}},
		{"DELETE", "/v1/devices/box:gpu1", "", []string{admin}},
		{"DELETE", "/v1/hosts/none", "", []string{admin}},
		{"PATCH", "/v1/settings", `{"aging_ms":0}`, []string{admin}},
		{"GET", "/v1/settings", "", []string{client, admin}},
		{"GET", "/v1/members", "", []string{client, admin}},
		{"POST", "/v1/jobs/j-1/extend", `{}`, []string{client, admin}},
		{"POST", "/v1/jobs/j-1/release", `{}`, []string{client, admin}},
	} {
		inBubble(t, func(t *testing.T, c *cluster) {
			for _, node := range []string{"c1", "c2"} {
				for _, token := range []string{client, worker, admin} {
					allowed := false
					for _, m := range r.may {
						allowed = allowed || m == token
					}
					if resp, raw := c.nodes[node].do(r.method, r.path, token, r.body); (resp.StatusCode != 403) != allowed {
						t.Errorf("%s %s as %s on %s: %d %s", r.method, r.path, token, node, resp.StatusCode, raw)
					}
				}
			}
		})
	}
}

func TestExtendAndRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		n.submit(submitLimited)
		c.start(1)
		n.submit(submitLimited)
		refused := func(path, token, body string, status int, code string) {
			t.Helper()
			resp, raw := n.do("POST", path, token, body)
			wantError(t, resp, raw, status, code)
		}
		resp, raw := n.do("POST", "/v1/jobs/j-1/extend", clientToken, `{"submitter":"ann@box","max_runtime_seconds":900}`)
		if job := decode[wire.Job](t, raw); resp.StatusCode != 200 || job.MaxRuntimeSeconds != 900 || job.State != "running" {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		refused("/v1/jobs/j-1/extend", clientToken, `{"submitter":"ann@box","max_runtime_seconds":800}`, 409, "not_extendable")
		refused("/v1/jobs/j-1/extend", clientToken, `{"submitter":"ann@box","max_runtime_seconds":3601}`, 400, "runtime_above_ceiling")
		refused("/v1/jobs/j-1/extend", clientToken, `{"submitter":"bob","max_runtime_seconds":1000}`, 403, "not_job_owner")
		refused("/v1/jobs/j-9/extend", clientToken, `{"submitter":"bob"}`, 404, "not_found")
		refused("/v1/jobs/j-1/extend", clientToken, ``, 400, "bad_request")
		// An administrator's word is enough, and a queued job ends at once.
		if resp, raw = n.do("POST", "/v1/jobs/j-2/release", adminToken, `{"submitter":"root"}`); resp.StatusCode != 200 || decode[wire.Job](t, raw).State != "killed" {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		refused("/v1/jobs/j-2/release", clientToken, `{"submitter":"ann@box"}`, 409, "not_releasable")
		refused("/v1/jobs/j-1/release", clientToken, `{"submitter":"ann@box","force":true}`, 403, "not_job_owner")
		refused("/v1/jobs/j-1/release", adminToken, `{"submitter":"root","force":true}`, 409, "not_releasable") // its host is there
		if resp, raw = n.do("POST", "/v1/jobs/j-1/release", clientToken, `{"submitter":"ann@box"}`); resp.StatusCode != 200 || decode[wire.Job](t, raw).State != "running" || !c.job(1).KillRequested {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		// The host goes silent: by force the lease ends without it.
		c.advance(time.Hour)
		c.must(&command.Sweep{EpochMS: time.Hour.Milliseconds(), Silent: []command.AgentSilence{{Host: "box", Instance: "agent-1", SilenceMS: 5000, DetachedMS: 5000}}})
		c.nodes["c1"].detached.Store(true)
		if resp, raw = n.do("POST", "/v1/jobs/j-1/release", adminToken, `{"submitter":"root","force":true}`); resp.StatusCode != 200 || decode[wire.Job](t, raw).State != "killed" {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		if d := c.machine.View().Device("box:gpu0"); d.State != model.DeviceUnhealthy {
			t.Errorf("%+v", d)
		}
	})
}

func TestFaultAndRetire(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		refused := func(method, path, token, body string, status int, code string) {
			t.Helper()
			resp, raw := n.do(method, path, token, body)
			wantError(t, resp, raw, status, code)
		}
		refused("POST", "/v1/devices/no:such/fault", workerToken, `{"reason":"x"}`, 404, "device_not_found")
		refused("POST", "/v1/devices/box:gpu0/fault", workerToken, `{}`, 400, "bad_request")
		if resp, raw := n.do("POST", "/v1/devices/box:gpu0/fault", workerToken, `{"reason":"fan stopped"}`); resp.StatusCode != 200 || raw != "" {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		if d := c.machine.View().Device("box:gpu0"); d.Reason != model.ReasonFault || d.Detail != "fan stopped" {
			t.Errorf("%+v", d)
		}
		n.submit(submitTrue) // on gpu1
		refused("DELETE", "/v1/devices/box:gpu1", adminToken, "", 409, "device_busy")
		refused("DELETE", "/v1/devices/no:such", adminToken, "", 404, "device_not_found")
		refused("DELETE", "/v1/hosts/none", adminToken, "", 404, "not_found")
		refused("DELETE", "/v1/hosts/box", adminToken, "", 409, "device_busy") // its agent is in contact
		resp, raw := n.do("DELETE", "/v1/devices/box:gpu0", adminToken, "", "Idempotency-Key", "k")
		if got := decode[wire.Retired](t, raw); resp.StatusCode != 200 || got.Retired != "box:gpu0" || got.Note == "" {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		// Asked again under its key it has happened, not vanished.
		if resp, raw := c.nodes["c3"].do("DELETE", "/v1/devices/box:gpu0", adminToken, "", "Idempotency-Key", "k"); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		c.finish(1, command.EndExited, 0, "")
		c.advance(time.Minute)
		c.must(&command.Sweep{EpochMS: 60_000, Silent: []command.AgentSilence{{Host: "box", Instance: "agent-1", SilenceMS: 5000, DetachedMS: 5000}}})
		resp, raw = n.do("DELETE", "/v1/hosts/box", adminToken, "")
		if got := decode[wire.Retired](t, raw); resp.StatusCode != 200 || got.Retired != "box" || len(c.machine.View().Devices()) != 0 || c.machine.View().Agent("box") != nil {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
	})
}

func TestSettingsChangeAllOrNone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.nodes["c2"]
		_, raw := n.do("GET", "/v1/settings", clientToken, "")
		before := decode[wire.Settings](t, raw)
		if before.Settings["aging_ms"] != 1_800_000 || before.Defaults["aging_ms"] != 1_800_000 || before.Settings["retain_disconnected_jobs"] != 0 || len(before.Settings) < 20 {
			t.Errorf("%s", raw)
		}
		for body, code := range map[string]string{
			`{"aging_ms":0,"no_such":1}`:       "unknown_setting",
			`{"aging_ms":0,"holdoff_ms":1}`:    "setting_refused",
			`{"aging_ms":0,"mass_floor":1.5}`:  "bad_request",
			`{"aging_ms":0,"mass_floor":"3"}`:  "bad_request",
			`{"aging_ms":0,"mass_floor":null}`: "bad_request",
			`{"aging_ms":0,"mass_floor":true}`: "bad_request",
			`{"holdoff_ms":false}`:             "bad_request",
			`{"no_such":true}`:                 "unknown_setting",
			`{}`:                               "bad_request",
			`[]`:                               "bad_request",
			``:                                 "bad_request",
		} {
			resp, raw := n.do("PATCH", "/v1/settings", adminToken, body)
			wantError(t, resp, raw, 400, code)
		}
		if got := c.machine.View().Settings(); got != model.DefaultSettings() {
			t.Errorf("%+v", got)
		}
		resp, raw := n.do("PATCH", "/v1/settings", adminToken, `{"aging_ms":0,"retain_disconnected_jobs":true,"holdoff_ms":20000}`)
		after := decode[wire.Settings](t, raw)
		if resp.StatusCode != 200 || after.Settings["aging_ms"] != 0 || after.Settings["retain_disconnected_jobs"] != 1 || after.Settings["holdoff_ms"] != 20_000 || after.Defaults["holdoff_ms"] != 30_000 {
			t.Errorf("%d %s", resp.StatusCode, raw)
		}
		if s := c.machine.View().Settings(); s.AgingMS != 0 || !s.RetainDisconnected {
			t.Errorf("%+v", s)
		}
	})
}

func TestMembersShowEachOnesWord(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.must(&command.MemberPut{ID: "c2", Incarnation: "i2", Supports: 1, Build: "1.4"})
		_, raw := c.nodes["c3"].do("GET", "/v1/members", clientToken, "")
		got := decode[wire.Members](t, raw)
		if got.FeatureLevel != 1 || got.Generation != 1 || len(got.Members) != 1 || got.Members[0].Build != "1.4" || got.Members[0].Since.IsZero() {
			t.Errorf("%s", raw)
		}
	})
}

// Every code of the state machine that a client can meet has a status of its
// own; 500 is for failures.
func TestEveryRejectionHasAStatus(t *testing.T) {
	for code, want := range map[command.Code]int{
		command.DeviceBusy: 409, command.DeviceNotFound: 404, command.NoDevice: 409, command.SheetTooLarge: 413,
		command.NotExtendable: 409, command.NotReleasable: 409, command.FeatureRefused: 409,
		command.StaleCheckpoint: 409, command.Unscheduled: 503, command.LimitExceeded: 400,
		command.UnknownSetting: 400, command.SettingRefused: 400,
	} {
		if got := rejected(command.Result{Code: code, Message: "x"}); got.status != want || got.code != string(code) {
			t.Errorf("%s: %+v", code, got)
		}
	}
	if got := rejected(command.Result{Code: command.InternalInvariant}); got.status != 500 || got.message == "" {
		t.Errorf("%+v", got)
	}
}
