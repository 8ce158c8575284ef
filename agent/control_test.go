package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheControlProtocolKeepsItsFormat: an agent and a rcd agent drain of two
// releases meet at each upgrade.
func TestTheControlProtocolKeepsItsFormat(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var got strings.Builder
	for _, v := range []any{
		controlRequest{Version: controlVersion, Do: doStatus},
		controlRequest{Version: controlVersion, Do: doDrain, Kill: true, Reason: "new fans"},
		controlRequest{Version: controlVersion, Do: doClose},
		controlRequest{Version: controlVersion, Do: doCancel},
		controlAnswer{Version: controlVersion, Error: "no"},
		controlAnswer{Version: controlVersion, Busy: true, Out: []string{"gpu0"}, Status: &Status{
			Host: "box", PID: 7, Build: "v1", LeaderHeard: at,
			Devices: []StatusDevice{{Name: "gpu0", Drain: DrainTold, Refused: "x"}, {Name: "gpu1"}},
			Jobs: []StatusJob{{Job: "j-1", Lease: "l-2", Devices: []string{"gpu0"}, Phase: "running", Since: at, Killing: "cancelled", Survivors: "pid 9"},
				{Job: "j-2", Lease: "l-3", Phase: "starting"}, {Job: "j-4", Lease: "l-2", Hold: "j-1", Phase: "ended"}},
			Drain: &StatusDrain{Since: at, Reason: "new fans", Closed: true},
		}},
		controlAnswer{Version: controlVersion, Status: &Status{Host: "box", Devices: []StatusDevice{}, Jobs: []StatusJob{}}},
	} {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(append(line, '\n'))
	}
	golden := filepath.Join("testdata", "control.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, golden); got.String() != want {
		t.Errorf("format changed\ngot\n%swant\n%s", got.String(), want)
	}
}

func TestTheControlSocketIsTheOwnersAndTakesALongPath(t *testing.T) {
	c := newControl(t)
	config := testConfig(filepath.Join(dataDir(t), strings.Repeat("deep/", 30)), c)
	r := startAgent(t, config)
	info, err := os.Stat(filepath.Join(config.DataDir, controlSocket))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	answer, err := ask(context.Background(), config.DataDir, controlRequest{Do: doStatus})
	if err != nil || answer.Status.PID != os.Getpid() || len(answer.Status.Devices) != 2 || answer.Status.Drain != nil {
		t.Errorf("%+v, %v", answer.Status, err)
	}
	r.stop()
	if _, err := ask(context.Background(), config.DataDir, controlRequest{Do: doStatus}); !errors.Is(err, errNoAgent) {
		t.Errorf("after the agent: %v", err)
	}
}

func TestASocketThatAKilledAgentLeftIsReplaced(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	l, err := listenControl(config.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // the file stays
	if _, err := ask(context.Background(), config.DataDir, controlRequest{Do: doStatus}); !errors.Is(err, errNoAgent) {
		t.Errorf("nobody listens, and it says %v", err)
	}
	startAgent(t, config)
	if _, err := ask(context.Background(), config.DataDir, controlRequest{Do: doStatus}); err != nil {
		t.Error(err)
	}
}

func TestNonsenseOnTheControlSocketIsAnsweredOrDropped(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	r := startAgent(t, config)
	say := func(line string) string {
		t.Helper()
		path, done, err := controlPath(config.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		answer, _ := bufio.NewReader(conn).ReadString('\n')
		return answer
	}
	for line, want := range map[string]string{
		`{"version":1,"do":"dance"}` + "\n":          `does not know \"dance\"`,
		`{"version":9,"do":"drain"}` + "\n":          "of an earlier release",
		`{"version":1,"do":"status","x":1}` + "\n":   `"host":"box"`,
		"GET / HTTP/1.1\r\n\r\n":                     "",
		`{"version":1,"do":"close"}` + "\n":          `"busy":true`, // nothing to close
		strings.Repeat(" ", 100) + `{"do":7}` + "\n": "",
	} {
		if got := say(line); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q is answered with %q, want %q", line, got, want)
		}
	}
	if s, err := StatusOf(context.Background(), config); err != nil || s.Drain != nil {
		t.Errorf("%+v, %v", s, err)
	}
	// Silent connections hold up neither the others for ever nor the end.
	for range 2 * controlAtOnce {
		path, done, err := controlPath(config.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", path)
		done()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	r.stop()
}
