package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rcd/client"
)

func TestWhatIsPrintedForProgramsComesBackAndHidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.RuneFrom([]rune("a\"\\\n\t\x1b\x7f\u009b\u202e\u2028\U000e0001😀")), 0, 20, -1)).Draw(t, "text")
		var out bytes.Buffer
		if err := printJSON(&out, in, false); err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != strings.ToValidUTF8(in, "\ufffd") {
			t.Fatalf("%q is printed as %s, read as %q, error %v", in, out.Bytes(), back, err)
		}
		if line := strings.TrimSuffix(out.String(), "\n"); strings.ContainsFunc(line, hidden) || strings.Contains(line, "\n") {
			t.Fatalf("%q is printed as %q", in, line)
		}
		if cell := clean(in); strings.ContainsFunc(cell, hidden) || strings.ContainsAny(cell, "\n\t\r") {
			t.Fatalf("%q is shown as %q", in, cell)
		}
	})
}

func TestAgesAreInOneUnit(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, d := range map[string]time.Duration{
		"0s ago": 0, "59s ago": 59 * time.Second, "1m ago": 119 * time.Second, "5h ago": 5 * time.Hour, "2d ago": 50 * time.Hour,
		"in 3m": -3 * time.Minute,
	} {
		at := now.Add(-d)
		if got := ago(&at, now); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := ago(nil, now); got != "" {
		t.Errorf("no time: %q", got)
	}
}

func TestErrorsGoOutAsTheOutputWould(t *testing.T) {
	for line, want := range map[string]bool{
		"devices":                            false,
		"devices -o":                         true, // as it always was
		"devices -o --select x":              true,
		"devices --json":                     true,
		"jobs -o json":                       true,
		"jobs -ojson":                        true,
		"jobs -o=jsonl":                      true,
		"jobs --output=json":                 true,
		"jobs --output json -n 3":            true,
		"jobs -o yaml":                       false,
		"jobs -o":                            false, // a mistake
		"run -d a:b tool -o json":            false, // the job's
		"run -d a:b -- tool -o json":         false,
		"--context lab run -d a tool --json": false,
		"--context lab jobs -o json":         true,
	} {
		if got := forPrograms(strings.Fields(line)); got != want {
			t.Errorf("rc %s: %v", line, got)
		}
	}
}

func TestADeviceIsFoundByTheBeginningOfItsID(t *testing.T) {
	fake := newController()
	t.Cleanup(func() { fake.CloseClientConnections(); fake.Close() })
	c, err := client.New(client.Options{Controllers: []string{fake.URL}, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	a := &app{ctx: t.Context(), stderr: io.Discard}
	for given, want := range map[string]struct {
		id   string
		code int
	}{
		"box:gpu0": {"box:gpu0", exitOK},
		"far":      {"far:gpu0", exitOK},
		"box":      {"", exitUsage}, // several
		"fa":       {"", exitUsage}, // too short
		"near":     {"", exitNotFound},
	} {
		if id, err := resolveDevice(a, c, given); id != want.id || codeOf(err) != want.code {
			t.Errorf("%s: %q, error %v", given, id, err)
		}
	}
}
