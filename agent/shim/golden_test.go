package shim

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rcd/agent/proc"
	"rcd/agent/witness"
	"rcd/internal/codec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: jobs that run under an earlier release would not be understood any more:\n%s", name, got)
	}
}

func fullResult() Result {
	code := 0
	return Result{
		Outcome: Killed, ExitCode: &code, Reason: "cancelled", OutputLength: 1 << 33, OutputDigest: "00ff",
		StartedAt: time.Unix(1_700_000_000, 1), FinishedAt: time.Unix(1_700_000_009, 2),
		Survivors: []proc.Process{{ID: proc.ID{PID: 42, Start: 4711}, Command: "python train.py"}}, Unverified: "why not",
	}
}

func TestRecordsAreFrozen(t *testing.T) {
	records := []struct {
		name string
		kind uint16
		v    any
	}{
		{"spec", kindSpec, order{
			Spec: Spec{
				JobID: "j-48213", Lease: 48220, Kind: KindJob, Command: []string{"python", "train.py"}, Cwd: "/data",
				Env: []string{"RC_JOB_ID=j-48213", "PATH=/bin"}, MaxRuntime: time.Hour, IdleTimeout: time.Minute, Grace: 10 * time.Second,
				OutputBound: 1 << 30,
			},
			Mark: "MARK", Boot: "boot",
		}},
		{"hold", kindSpec, order{Spec: Spec{JobID: "j-1", Kind: KindHold, Cwd: "/", Grace: time.Second, OutputBound: 1 << 30}, Mark: "M", Boot: "b"}},
		{"process", kindProcess, processRecord{Boot: "boot", Shim: identity{41, 4700}, Job: identity{42, 4711}, StartedAt: 1_700_000_000_000_000_001}},
		{"result", kindResult, fullResult().record()},
		{"result without code", kindResult, Result{Outcome: SupervisorDied, Reason: reasonShimDied}.record()},
		{"limit", kindLimit, limitRecord{MaxRuntime: time.Hour}},
		{"hold of simulated devices", kindSpec, order{Spec: Spec{JobID: "j-1", Lease: 2, Kind: KindHold, Cwd: "/", Grace: time.Second, OutputBound: 1 << 30,
			Witness: &witness.Place{Dir: "/w", Devices: []string{"gpu0", "gpu1"}}}, Mark: "M", Boot: "b"}},
		{"terminal", kindSpec, order{Spec: Spec{JobID: "j-1", Kind: KindJob, Command: []string{"sh"}, Cwd: "/", Stdio: StdioTTY, OutputBound: 1 << 30}, Mark: "M", Boot: "b"}},
		{"pipe", kindSpec, order{Spec: Spec{JobID: "j-1", Kind: KindJob, Command: []string{"tar"}, Cwd: "/", Stdio: StdioPipe, OutputBound: 1 << 30}, Mark: "M", Boot: "b"}},
		{"inside a hold of a simulated device", kindSpec, order{Spec: Spec{JobID: "j-2", Lease: 2, Kind: KindJob, Command: []string{"sh"}, Cwd: "/", OutputBound: 1 << 30,
			Witness: &witness.Place{Dir: "/w", Devices: []string{"gpu0"}, Inside: true}}, Mark: "M", Boot: "b"}},
		{"cause", kindCause, causeRecord{CauseHost}},
	}
	var got strings.Builder
	for _, r := range records {
		data, err := encodeRecord(r.kind, r.v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s\n%s", r.name, hex.Dump(data))
		back := reflect.New(reflect.TypeOf(r.v))
		if err := decodeRecord(r.kind, data, back.Interface()); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		again, err := encodeRecord(r.kind, back.Elem().Interface())
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s: reads back as %+v, %v", r.name, back.Elem().Interface(), err)
		}
		if err := decodeRecord(r.kind+1, data, back.Interface()); err == nil {
			t.Errorf("%s: taken for another kind", r.name)
		}
	}
	golden(t, "records.golden", got.String())
	if back := fullResult().record().result(); !reflect.DeepEqual(back, fullResult()) {
		t.Errorf("result reads back as %+v", back)
	}
}

func TestMessagesAreFrozen(t *testing.T) {
	status := Status{Phase: Running, Job: proc.ID{PID: 42, Start: 4711}, StartedAt: time.Unix(1_700_000_000, 1), Output: 12345, Killing: "cancelled"}
	messages := []struct {
		name string
		m    message
	}{
		{"hello", message{Type: typeHello, Hello: &helloBody{Version: 1, JobID: "j-48213", Shim: identity{41, 4700}}}},
		{"report", message{Type: typeHello, Hello: &helloBody{Version: 1, JobID: "j-1", Shim: identity{41, 4700}}, Status: Status{Phase: Ended}.body()}},
		{"status", message{Type: typeStatus, Status: status.body()}},
		{"kill", message{Type: typeKill, Kill: &killBody{Reason: "cancelled"}}},
		{"ping", message{Type: typePing}},
		{"refused", message{Type: typeRefused, Problem: &problemBody{Text: "taken"}}},
		{"failed", message{Type: typeFailed, Problem: &problemBody{Text: "no room"}}},
		{"extend", message{Type: typeExtend, Extend: &extendBody{MaxRuntime: time.Hour}}},
		{"consumed", message{Type: typeConsumed, Consumed: &consumedBody{Offset: 1 << 33}}},
		{"open input", message{Type: typeOpenInput, OpenInput: &openInputBody{Writer: 7}}},
		{"input", message{Type: typeInput, Input: &inputBody{Offset: 1 << 33, Data: []byte("ls\n\xff")}}},
		{"end of input", message{Type: typeEndInput, EndInput: &endInputBody{Offset: 1 << 33}}},
		{"resize", message{Type: typeResize, Resize: &resizeBody{Cols: 132, Rows: 50}}},
		{"input state", message{Type: typeInputState, InputState: &inputStateBody{Writer: 7, Accepted: 9, Written: 8, Limit: 65544, Ended: true}}},
		{"input taken", message{Type: typeInputState, InputState: &inputStateBody{Writer: 8, Code: inputTaken}}},
		{"failed by the host", message{Type: typeFailed, Problem: &problemBody{Text: "no room", Cause: CauseHost}}},
	}
	var got strings.Builder
	for _, c := range messages {
		var wire bytes.Buffer
		if err := codec.WriteMessage(&wire, c.m, messageLimit); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s\n%s", c.name, hex.Dump(wire.Bytes()))
		var back message
		if err := codec.ReadMessage(&wire, &back, messageLimit); err != nil || !reflect.DeepEqual(back, c.m) {
			t.Errorf("%s: reads back as %+v, %v", c.name, back, err)
		}
	}
	golden(t, "messages.golden", got.String())
	if back := status.body().status(); !reflect.DeepEqual(back, status) {
		t.Errorf("status reads back as %+v", back)
	}
}

func TestLongReasonsAreClippedAtARune(t *testing.T) {
	long := strings.Repeat("é", reasonLimit)
	if got := clip("x" + long); len(got) != reasonLimit-1 || !strings.HasSuffix(got, "é") {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-2:])
	}
	if got := clip("short"); got != "short" {
		t.Errorf("%q", got)
	}
}
