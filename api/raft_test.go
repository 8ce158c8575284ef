package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/raftnode"
	"rcd/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// secret must be in no line: what a submitter's environment holds, and the
// parts of IDs and commands that are cut.
const secret = "s3cret"

func sampleLog(t *testing.T) LogPage {
	t.Helper()
	code := int32(3)
	request := command.Request{Scope: "client:0", ID: "h:0123456789ab-" + secret, Strict: true}
	long := strings.Repeat("long ", 50)
	entry := func(commands ...any) []byte {
		var raw [][]byte
		for _, body := range commands {
			r := command.Request{}
			if _, ok := body.(*command.JobEnqueue); ok {
				r = request
			}
			cmd, err := command.Encode(r, body)
			if err != nil {
				t.Fatal(err)
			}
			raw = append(raw, cmd)
		}
		data, err := command.EncodeEntry(2, 1_772_366_400_123_000_000, raw)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ref := command.JobRef{Job: 4, Lease: 5}
	bodies := [][]any{
		{&command.EpochBegin{Node: "c1", MedianMS: 1_772_366_400_000, WallMS: 1}},
		{&command.EpochBegin{Node: "c2\nforged 9 line"}},
		{&command.AgentRegister{Host: "box", Instance: "0123456789abcdef", Devices: make([]command.DeviceSpec, 2), Jobs: []command.JobRef{ref}, Proof: command.Proof{SurvivorsChecked: true}}},
		{&command.AgentRegister{Host: "box", Instance: "i", Proof: command.Proof{SurvivorsFound: true, Detail: "pid 7 (sleep)"}, RequireManualClear: true}},
		{
			&command.JobEnqueue{Jobs: []command.JobSpec{{Pinned: "box:gpu0", Submitter: "ann@box", Command: []string{"sh", "-c", "echo\nhi"}, Env: map[string]string{"TOKEN": secret, secret: "x"}, Priority: 2, MaxRuntimeS: 60, NoWait: true}}},
			&command.JobEnqueue{Jobs: []command.JobSpec{{Selector: "vram>=40G", Submitter: "bob", Command: []string{long, long, secret}}, {}}},
			&command.JobEnqueue{Jobs: []command.JobSpec{{Kind: model.KindHold, Pinned: "box:gpu1", Submitter: "eve", MaxRuntimeS: 600, SessionS: 30}}},
			&command.JobEnqueue{Jobs: []command.JobSpec{{Hold: 4, Submitter: "eve", Command: []string{"nvidia-smi"}}}},
			&command.JobStart{JobRef: ref, Host: "box"},
		},
		{&command.JobFinish{JobRef: ref, Host: "box", ExitCode: &code, Reason: "cancelled", OutputKnown: true, OutputLength: 12, OutputGap: true, Survivors: "pid 9"}},
		{&command.JobFinish{JobRef: ref, Host: "box", End: command.EndSupervisorDied}},
		{&command.JobKill{Job: 4, By: "root", Admin: true, Detached: true}},
		append([]any{&command.DeviceClear{Device: "box:gpu0"}}, fleetCommands(ref)...),
		{&command.Sweep{
			Silent: []command.AgentSilence{{Host: "a", SilenceMS: 10}, {Host: "b", SilenceMS: 300_000}}, Unnamed: []command.LeaseUnnamed{{Lease: 5, UnnamedMS: 1}},
			Heard: []command.AgentHeard{{Host: "c"}}, Unordered: []uint64{4}, EpochMS: 40_000,
		}, &command.Sweep{EpochMS: 50_000},
			&command.Sweep{EpochMS: 60_000, Sessions: []command.SessionSilence{{Job: 4, SilenceMS: 15_000}, {Job: 6}}}},
		{&command.JobPrune{Limit: 500},
			&command.Recover{Host: "box", Instance: "instance-1" + secret, Jobs: []command.JobRef{ref}, Proof: command.Proof{SurvivorsChecked: true}},
			&command.MemberPut{ID: "c2", Incarnation: "incarnation1" + secret, Supports: 1, Build: "1.2"}, &command.MemberRemove{ID: "c9"},
			&command.FeatureRaise{Level: 2},
			&command.Checkpoint{Index: 1000, Voters: 3, Reports: []command.DigestReport{{Node: "c1", Digest: []byte("0123456789abcdef")}, {Node: "c2", Digest: []byte("fedcba9876543210")}}}},
		{&command.ConfigSet{Settings: []command.Setting{{Name: "aging_ms", Value: 0}, {Name: "holdoff_ms", Value: 30_000}}}},
		{},
	}
	page := LogPage{First: 1, Commit: 15}
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.FixedZone("", 3600))
	page.Entries = append(page.Entries,
		LogEntry{Index: 1, Term: 1, At: at, Kind: "configuration", Summary: "voters c1, c2, c3"},
		LogEntry{Index: 2, Term: 2, At: at, Kind: "noop"})
	for i, commands := range bodies {
		page.Entries = append(page.Entries, LogEntry{Index: uint64(i + 3), Term: 2, Kind: kindCommand, Data: entry(commands...)})
	}
	page.Entries = append(page.Entries,
		LogEntry{Index: 16, Term: 3, At: at, Kind: kindCommand, Data: entry(&command.DeviceClear{Device: "box:gpu0"})},
		LogEntry{Index: 17, Term: 3, At: at, Kind: kindCommand, Data: []byte("not an entry")})
	page.Last = 17
	return page
}

// fleetCommands are those about labels, sheets, leases and devices.
func fleetCommands(ref command.JobRef) []any {
	env := map[string]string{"TOKEN": secret}
	return []any{
		&command.LabelsReplace{Host: "box", Instance: secret, Source: model.Detected, Sets: []command.DeviceLabels{{Name: "gpu0", Labels: make([]command.KV, 3)}, {Name: "gpu1"}}},
		&command.SheetPut{Host: "box", Sheets: []command.SheetText{{Body: secret}, {Name: "gpu0", Body: "fan\n" + secret}}},
		&command.Schedule{},
		&command.LeaseAllocate{Job: command.JobSpec{Pinned: "box:gpu0", Submitter: "ann@box", Command: []string{"true"}, Env: env}},
		&command.LeaseRelease{Job: ref.Job, By: "root", Admin: true, Detached: true, Force: true},
		&command.LeaseExtend{Job: ref.Job, By: "ann@box", MaxRuntimeS: 7200},
		&command.DeviceFault{Device: "box:gpu0", Instance: "0123456789abcdef", Detail: "fan\nstopped"},
		&command.DeviceRetire{Device: "box:gpu0"},
		&command.DeviceRetire{Host: "box"},
	}
}

// Each kind of command has one line that says what it asks; entries past the
// commit index are marked, and no secret is shown.
func TestRaftLogLines(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c2"].log = sampleLog(t)
		c.lead("")
		resp, raw := c.nodes["c2"].do("GET", "/v1/raft/log?since=1&n=100", clientToken, "")
		if resp.StatusCode != 200 {
			t.Fatal(raw)
		}
		if strings.Contains(raw, secret) {
			t.Errorf("a secret is shown in %s", raw)
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, []byte(raw), "", "  "); err != nil {
			t.Fatal(err)
		}
		const golden = "testdata/raftlog.golden.json"
		if *update {
			if err := os.WriteFile(golden, pretty.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || !bytes.Equal(want, pretty.Bytes()) {
			t.Errorf("%v: got\n%s", err, pretty.String())
		}
		for _, line := range decode[wire.RaftLog](t, raw).Entries {
			if line.Committed != (line.Index <= 15) {
				t.Errorf("%+v", line)
			}
			if strings.ContainsAny(line.Summary, "\n\r\t") {
				t.Errorf("more than one line: %q", line.Summary)
			}
		}
		resp, raw = c.nodes["c2"].do("GET", "/v1/raft/log", workerToken, "")
		wantError(t, resp, raw, 403, "forbidden")
	})
}

func TestCallsBetweenControllers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ctx, peers := t.Context(), c.nodes["c2"].peers
		index, err := peers.ReadIndex(ctx, "c1", true)
		if err != nil || index.Index != c.machine.Index() || index.Term != 1 || index.NowMS != 5 || index.HeardMS["box"] != 7 {
			t.Errorf("%+v %v", index, err)
		}
		if index, err := peers.ReadIndex(ctx, "c1", false); err != nil || index.HeardMS != nil {
			t.Errorf("%+v %v", index, err)
		}
		report := ContactReport{Node: "c2", WallMS: 9, Agents: []Contact{{Host: "box", Instance: "i", AgoMS: 1}}}
		answer, err := peers.Contacts(ctx, "c1", report)
		if err != nil || len(answer.Clocks) != 1 || answer.Clocks[0] != (PeerClock{Node: "c2", OffsetMS: 9, AgoMS: 1}) {
			t.Errorf("%+v %v", answer, err)
		}
		if peer, err := peers.Peer(ctx, "c3"); err != nil || peer.ID != "c3" {
			t.Errorf("%+v %v", peer, err)
		}
		if d, err := peers.DigestAt(ctx, "c3", 1000); err != nil || d.Digest != fmt.Sprintf("%032x", 1000) || d.Applied != c.machine.Index() {
			t.Errorf("%+v %v", d, err)
		}
		if _, err := peers.ReadIndex(ctx, "c3", false); !errors.Is(err, raftnode.ErrNotLeader) {
			t.Errorf("%v", err)
		}
		if _, err := peers.Contacts(ctx, "c3", report); !errors.Is(err, raftnode.ErrNotLeader) {
			t.Errorf("%v", err)
		}
		c.nodes["c3"].forward.cut()
		if _, err := peers.Peer(ctx, "c3"); !errors.Is(err, ErrNotSent) {
			t.Errorf("%v", err)
		}
		_, raw := c.nodes["c2"].do("GET", "/v1/raft/peers", clientToken, "")
		if got := decode[wire.RaftPeers](t, raw); len(got.Peers) != 2 || !got.Peers[0].Reachable {
			t.Errorf("%+v", got)
		}
	})
}

func TestReadyNamesTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		resp, raw := c.nodes["c2"].do("GET", "/readyz", "", "")
		if resp.StatusCode != 200 || raw != `{"ready":true,"leader":"c1"}`+"\n" {
			t.Fatalf("%d %s", resp.StatusCode, raw)
		}
	})
}

// TestReadyIsOnlyWhoCanAnswer: each way not to be is a sentence of its own, and
// none makes the process look dead.
func TestReadyIsOnlyWhoCanAnswer(t *testing.T) {
	why := "its digest differed"
	for name, test := range map[string]struct {
		spoil      func(c *cluster, n *node)
		code, says string
	}{
		"no leader":             {func(c *cluster, _ *node) { c.lead("") }, "no_leader", "no controller leads"},
		"in no cluster":         {func(c *cluster, n *node) { c.lead(""); n.waiting = "waiting for c1" }, "not_in_cluster", "waiting for c1"},
		"halted":                {func(_ *cluster, n *node) { n.halted.Store(&why) }, "halted", why},
		"a leader long ago":     {func(_ *cluster, n *node) { n.age = readyAge + time.Second }, "not_ready", "not heard a leader for 11s"},
		"far behind":            {func(_ *cluster, n *node) { n.behind = readyBehind + 1 }, "not_ready", "reading its log"},
		"nothing of the state":  {func(_ *cluster, n *node) { e := func() error { return raftnode.ErrNotReady }; n.read.Store(&e) }, "not_ready", "nothing of the cluster's state"},
		"none of these, nearly": {func(_ *cluster, n *node) { n.age, n.behind = readyAge, readyBehind }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				n := c.nodes["c2"]
				test.spoil(c, n)
				began := time.Now()
				resp, raw := n.do("GET", "/readyz", "", "")
				if time.Since(began) != 0 {
					t.Errorf("answered after %v", time.Since(began))
				}
				if test.code == "" {
					if resp.StatusCode != 200 {
						t.Errorf("%d %s", resp.StatusCode, raw)
					}
				} else if wantError(t, resp, raw, 503, test.code); !strings.Contains(raw, test.says) || resp.Header.Get("Retry-After") == "" {
					t.Error(raw)
				}
				if resp, raw := n.do("GET", "/healthz", "", ""); resp.StatusCode != 200 || raw != "ok\n" {
					t.Errorf("healthz: %d %s", resp.StatusCode, raw)
				}
			})
		})
	}
}

// TestThePageShowsNothingAndRunsNothing: it is for everybody who finds the
// address.
func TestThePageShowsNothingAndRunsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitTrue)
		resp, raw := c.nodes["c2"].do("GET", "/", "", "")
		h := resp.Header
		if resp.StatusCode != 200 || h.Get("Content-Type") != "text/html; charset=utf-8" || h.Get("Cache-Control") != "no-store" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; style-src") {
			t.Errorf("%d %v", resp.StatusCode, h)
		}
		for _, never := range []string{"<script", "j-1", "box", "c2", "<form", "http://box"} {
			if strings.Contains(raw, never) {
				t.Errorf("the page holds %q", never)
			}
		}
		for _, path := range []string{"/openapi.json", "/readyz", "/healthz"} {
			if !strings.Contains(raw, `href="`+path+`"`) {
				t.Errorf("the page does not lead to %s", path)
			}
		}
		if resp, raw := c.nodes["c2"].do("GET", "/other", "", ""); resp.StatusCode != 404 || h.Get("Content-Type") == "application/json" {
			t.Errorf("another path: %d %s", resp.StatusCode, raw)
		}
	})
}

// An empty table would read as the truth about the cluster.
func TestANodeInNoClusterListsNothingAndSaysWhatItWaitsFor(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c2"].waiting = "waiting for c1, c3"
		for _, path := range []string{"/v1/raft/peers", "/v1/raft/log"} {
			resp, raw := c.nodes["c2"].do("GET", path, clientToken, "")
			wantError(t, resp, raw, 503, "not_in_cluster")
			if !strings.Contains(raw, "c2 is in no cluster") || !strings.Contains(raw, "waiting for c1, c3") {
				t.Errorf("%s: %s", path, raw)
			}
		}
		if resp, raw := c.nodes["c2"].do("GET", "/v1/raft/status", clientToken, ""); resp.StatusCode != 200 {
			t.Errorf("its own status: %d %s", resp.StatusCode, raw)
		}
	})
}
