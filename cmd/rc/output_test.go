package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"
)

// drives says which characters must never reach a terminal as they are.
func drives(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

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
		if line := strings.TrimSuffix(out.String(), "\n"); strings.ContainsFunc(line, drives) {
			t.Fatalf("%q is printed as %q", in, line)
		}
		if cell := clean(in); strings.ContainsFunc(cell, drives) {
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
		"jobs -wo json":                      true,
		"cp -qojsonl a b:c:d":                true,
		"cp -qo=json a b:c:d":                true,
		"jobs -wo name":                      false,
		"devices -wo":                        true,
		"devices -wo name":                   false,
		"hold a:b --session tool -o json":    false, // the command's
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

func TestEverySwitchMayStandBeforeAShortFlagWithAValue(t *testing.T) {
	for _, verb := range grammar(t).Model.Leaves(true) {
		for _, flag := range verb.Flags {
			if flag.Short != 0 && verb.Name != "exec" && flag.IsBool() != strings.ContainsRune(switches, flag.Short) {
				t.Errorf("rc %s: -%c is in the list of switches, or not: %v", verb.Name, flag.Short, switches)
			}
		}
	}
}

func TestTheValueOfAShortFlagMayStandBehindAnEqualsSign(t *testing.T) {
	for line, want := range map[string]func(c *cli) bool{
		"jobs -o=json -n=50":    func(c *cli) bool { return c.Jobs.Output == "json" && c.Jobs.Limit == 50 },
		"jobs -wo=json":         func(c *cli) bool { return c.Jobs.Output == "json" && c.Jobs.Watch },
		"jobs -ojson -n50":      func(c *cli) bool { return c.Jobs.Output == "json" && c.Jobs.Limit == 50 },
		"devices -o=wide":       func(c *cli) bool { return c.Devices.Output == "wide" },
		"run -d=a:b -- t -d=x":  func(c *cli) bool { return c.Run.Device == "a:b" && slices.Contains(c.Run.Command, "-d=x") },
		"run -d a:b t -n=1 -o=": func(c *cli) bool { return slices.Contains(c.Run.Command, "-n=1") && c.Run.Device == "a:b" },
		"run -d a:b --cwd==x t": func(c *cli) bool { return c.Run.Cwd == "=x" },
		"run --device=a:b -- t": func(c *cli) bool { return c.Run.Device == "a:b" },
	} {
		var c cli
		parser, err := newParser(&c, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(strings.Fields(line)); err != nil || !want(&c) {
			t.Errorf("rc %s: error %v, %+v %+v", line, err, c.Jobs, c.Run)
		}
	}
}
