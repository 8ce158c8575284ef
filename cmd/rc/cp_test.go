package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"rcd/client"
	"rcd/jepsen/onehost"
)

type hostKey struct{}

// host is the command of scripts: see TestScripts.
func host(ts *testscript.TestScript, neg bool, args []string) {
	h := ts.Value(hostKey{}).(*onehost.Host)
	switch {
	case neg || len(args) != 0 && len(args) != 2:
		ts.Fatalf("usage: host [KIND WHO]")
	case h.Server == nil:
		ts.Check(os.MkdirAll(h.Home, 0o755))
		h.Start()
		ts.Defer(h.End)
		ts.Setenv("RC_CONTROLLER", h.URL)
	default:
		h.Release()
	}
	if len(args) == 2 {
		h.Hold(args[0], args[1])
	}
}

func TestADeviceStandsBeforeTheFirstSlashAndEndsAtItsLastColon(t *testing.T) {
	for arg, want := range map[string][2]string{
		"box:gpu0:/data/x":     {"box:gpu0", "/data/x"},
		"box:gpu0:":            {"box:gpu0", ""},
		"box:gpu0:a/b:c":       {"box:gpu0", "a/b:c"},
		"box:gpu0:/a:b/c:d":    {"box:gpu0", "/a:b/c:d"},
		"fe80::1:gpu0:x":       {"fe80::1:gpu0", "x"},
		"box:gpu0":             {"", "box:gpu0"},
		"./box:gpu0:x":         {"", "./box:gpu0:x"},
		"/tmp/box:gpu0:x":      {"", "/tmp/box:gpu0:x"},
		"model.bin":            {"", "model.bin"},
		":gpu0:x":              {"", ":gpu0:x"},
		"":                     {"", ""},
		"dir/box:gpu0:/data/x": {"", "dir/box:gpu0:/data/x"},
	} {
		if device, path := splitRemote(arg); device != want[0] || path != want[1] {
			t.Errorf("%q: device %q, path %q", arg, device, path)
		}
	}
}

func TestTheLineOfACopySaysHowFarItIs(t *testing.T) {
	for _, tt := range []struct {
		p     client.CopyProgress
		moved int64
		took  time.Duration
		want  string
	}{
		{client.CopyProgress{Step: client.CopyChecking}, 0, 0, "checking"},
		{client.CopyProgress{Step: client.CopyMoving, Done: 500, Total: 1000}, 0, 0, "copying 500 B of 1.0 kB (50%)"},
		{client.CopyProgress{Step: client.CopyMoving, Done: 300_000_000, Total: 500_000_000, Resumed: 200_000_000}, 100_000_000, 10 * time.Second,
			"copying 300.0 MB of 500.0 MB (60%), 10.0 MB/s, 20s left"},
		{client.CopyProgress{Step: client.CopyMoving, Done: 1_500_000, Total: 3_000_000, About: true}, 1_500_000, time.Second,
			"copying 1.5 MB of about 3.0 MB (50%), 1.5 MB/s, about 1s left"},
		{client.CopyProgress{Step: client.CopyMoving, Done: 4_000_000, Total: 3_000_000, About: true}, 4_000_000, time.Second, "copying 4.0 MB, 4.0 MB/s"},
		{client.CopyProgress{Step: client.CopyMoving, Done: 2_500_000_000_000}, 0, 0, "copying 2.5 TB"},
	} {
		if got := meterLine(tt.p, tt.moved, tt.took); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestTalkDoesNotSpoilTheLineOfACopy(t *testing.T) {
	var out bytes.Buffer
	a := &app{stderr: &out}
	m := newMeter(a, false)
	m.terminal = true
	m.see(client.CopyProgress{Step: client.CopyMoving, Done: 1000, Total: 2000})
	a.say("the leader changed")
	m.see(client.CopyProgress{Step: client.CopyEnding})
	m.close()
	m.see(client.CopyProgress{Step: client.CopyMoving})
	a.say("done")
	const wipe = "\r\x1b[K"
	if want := wipe + "copying 1.0 kB of 2.0 kB (50%)" + wipe + "rc: the leader changed\n" + wipe + "finishing" + wipe + "rc: done\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	m = newMeter(a, false)
	m.terminal = false
	for range 100 { // no line of it within a few seconds
		m.see(client.CopyProgress{Step: client.CopyMoving, Done: 1000, Total: 2000})
	}
	m.last = m.last.Add(-meterLines)
	m.see(client.CopyProgress{Step: client.CopyChecking})
	if m.close(); out.String() != "rc: checking\n" {
		t.Errorf("%q", out.String())
	}
}
