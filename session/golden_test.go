package session

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rcd/internal/codec"
	"rcd/wire"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing")

// samples has every message with every field set, so that a changed key, type
// or order of fields changes a file.
func samples() map[string]wire.AgentMessage {
	code := int32(143)
	controllers := []wire.Controller{{ID: "c1", Addr: "127.0.0.1:7001"}, {ID: "c2", Addr: "127.0.0.1:7002"}}
	jobs := []wire.ReportedJob{
		{Job: 7, Lease: 41, Phase: wire.PhaseStarting},
		{Job: 8, Lease: 42, Phase: wire.PhaseRunning, Killing: true},
		{Job: 9, Lease: 43, Phase: wire.PhaseEnded},
	}
	start := &wire.StartJob{Job: 7, Lease: 41, Kind: 1, Devices: []string{"box:gpu0", "box:gpu1"}, Command: []string{"echo", "hi"},
		Cwd: "/srv", Env: map[string]string{"B": "2", "A": "1"}, Submitter: "ann", MaxRuntimeS: 3600, IdleTimeoutS: 60, Stdio: 2}
	limited := []wire.ReportedJob{{Job: 8, Lease: 42, Phase: wire.PhaseRunning, MaxRuntimeS: 3600}}
	fenced := wire.Order{Generation: 1, Term: 5, Index: 900, Seq: 3, Job: 7, Lease: 41}
	startOrder, killOrder, reportOrder, extendOrder := fenced, fenced, fenced, fenced
	startOrder.Kind, startOrder.Start = wire.OrderStart, start
	killOrder.Kind, killOrder.Reason = wire.OrderKill, "cancelled"
	reportOrder.Kind = wire.OrderReport
	extendOrder.Kind, extendOrder.MaxRuntimeS = wire.OrderExtend, 7200
	return map[string]wire.AgentMessage{
		"hello": {Hello: &wire.Hello{Protocol: 1, Host: "box", MachineID: "m", BootID: "b", Instance: "i", Term: 5, Index: 900,
			Devices: []wire.AgentDevice{{Name: "gpu0", MaxRuntimeS: 60, Declared: []wire.LabelKV{{Key: "rack", Value: "r1"}},
				Detected: []wire.LabelKV{{Key: "cpus", Value: "8"}}, KeepDetected: true, Begun: 40}},
			Jobs: jobs, Proof: wire.HostProof{Isolated: true, SurvivorsChecked: true, SurvivorsFound: true, Detail: "pid 5"},
			RequireManualClear: true, Version: "v1"}},
		"welcome":       {Welcome: &wire.Welcome{Leader: "c1", ClusterID: "k", Generation: 1, Term: 5, Index: 900, Controllers: controllers}},
		"redirect":      {Redirect: &wire.Redirect{Leader: "c2", Addr: "127.0.0.1:7002", Term: 5, Controllers: controllers}},
		"redirect_none": {Redirect: &wire.Redirect{}},
		"heartbeat":     {Heartbeat: &wire.Heartbeat{Seq: 12, Jobs: jobs, WallMS: 1_700_000_000_000}},
		"heartbeat_2":   {Heartbeat: &wire.Heartbeat{Seq: 12, Jobs: limited, WallMS: 1_700_000_000_000}},
		"heartbeat_ack": {HeartbeatAck: &wire.HeartbeatAck{Seq: 12, Index: 901, Controllers: controllers}},
		"order_start":   {Order: &startOrder},
		"order_kill":    {Order: &killOrder},
		"order_bytes":   {Order: &wire.Order{Generation: 1, Term: 5, Index: 900, Seq: 4, Kind: wire.OrderBytes}},
		"order_report":  {Order: &reportOrder},
		"order_extend":  {Order: &extendOrder},
		"order_ack":     {OrderAck: &wire.OrderAck{Seq: 3, Code: wire.OrderStaleLease, Message: "begun already", Job: &jobs[1]}},
		"started":       {Started: &wire.Started{Job: 7, Lease: 41}},
		"outcome": {Outcome: &wire.Outcome{Job: 7, Lease: 41, End: 1, ExitCode: &code, Reason: "cancelled", Origin: 4, OutputLength: 77,
			OutputDigest: []byte{1, 2, 3}, OutputKnown: true, OutputGap: true, Survivors: "pid 9 (sh)"}},
		"outcome_no_code": {Outcome: &wire.Outcome{Job: 7, Lease: 41, End: 3, Reason: "record lost"}},
		"outcome_ack":     {OutcomeAck: &wire.OutcomeAck{Job: 7, Lease: 41, Index: 905}},
		"welcome_2": {Welcome: &wire.Welcome{Leader: "c1", ClusterID: "k", Generation: 1, Term: 5, Index: 900, Controllers: controllers,
			Facts: []byte{1, 2, 3}}},
		"facts": {Facts: &wire.Facts{Seq: 4, Labels: []wire.DeviceFacts{{Name: "gpu0", Detected: []wire.LabelKV{{Key: "cpus", Value: "8"}}}},
			Sheets: []wire.SheetText{{Body: "of the host"}, {Name: "gpu0", Body: ""}}}},
		"fault":       {Fault: &wire.DeviceFault{Device: "gpu0", Detail: "its record cannot be read"}},
		"fault_ack":   {FaultAck: &wire.FaultAck{DeviceFault: wire.DeviceFault{Device: "gpu0", Detail: "its record cannot be read"}, Index: 9, Code: "device_not_found", Message: "register it"}},
		"facts_ack":   {FactsAck: &wire.FactsAck{Seq: 4, Index: 905, Code: "sheet_too_large", Message: "shorten it"}},
		"refused":     {Refused: &wire.Refused{Code: "wrong_machine", Message: "retire the host first"}},
		"bytes_hello": {BytesHello: &wire.BytesHello{Host: "box", Instance: "i", Term: 5}},
	}
}

func TestAgentMessagesKeepTheirEncoding(t *testing.T) {
	for name, msg := range samples() {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := codec.WriteMessage(&out, msg, wire.MaxAgentMessage); err != nil {
				t.Fatal(err)
			}
			text := hex.EncodeToString(out.Bytes()) + "\n"
			path := filepath.Join("testdata", "messages", name+".hex")
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(want) {
				t.Errorf("encoding changed; agents of other versions would not understand it\ngot  %swant %s", text, want)
			}
			data, err := hex.DecodeString(strings.TrimSpace(string(want)))
			if err != nil {
				t.Fatal(err)
			}
			var back wire.AgentMessage
			if err := codec.ReadMessage(bytes.NewReader(data), &back, wire.MaxAgentMessage); err != nil {
				t.Fatal(err)
			}
			if describe(back) != describe(msg) || !bytes.Equal(codec.MustMarshal(back), codec.MustMarshal(msg)) {
				t.Errorf("decoded to another message: %+v", back)
			}
		})
	}
}

func TestEveryAgentMessageHasAGoldenFile(t *testing.T) {
	seen := map[string]bool{}
	for _, msg := range samples() {
		v := reflect.ValueOf(msg)
		for i := range v.NumField() {
			if !v.Field(i).IsNil() {
				seen[v.Type().Field(i).Name] = true
			}
		}
	}
	for i, typ := 0, reflect.TypeFor[wire.AgentMessage](); i < typ.NumField(); i++ {
		if !seen[typ.Field(i).Name] {
			t.Errorf("no sample of %s", typ.Field(i).Name)
		}
	}
}
