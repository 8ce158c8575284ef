package model

import "testing"

func TestOnlyCanonicalIDsAreTaken(t *testing.T) {
	for id, want := range map[string]uint64{"j-1": 1, "j-48213": 48213, "j-18446744073709551615": 1<<64 - 1} {
		if n, ok := ParseJobID(id); !ok || n != want || JobID(n) != id {
			t.Errorf("%s: %d %v", id, n, ok)
		}
	}
	for _, id := range []string{"", "j", "j-", "j-0", "j-01", "j-+1", "j--1", "j-1x", "j- 1", "l-1", "J-1", "j-18446744073709551616"} {
		if n, ok := ParseJobID(id); ok {
			t.Errorf("%q was taken as job %d", id, n)
		}
	}
}

func TestTheLastColonSplitsADeviceID(t *testing.T) {
	for id, want := range map[string][2]string{
		"box:gpu0": {"box", "gpu0"}, "[::1]:gpu0": {"[::1]", "gpu0"},
		"box": {}, ":gpu0": {}, "box:": {}, "": {},
	} {
		if host, name := SplitDeviceID(id); host != want[0] || name != want[1] {
			t.Errorf("%q: %q %q", id, host, name)
		}
	}
}

func TestEveryWordIsReadBack(t *testing.T) {
	for s := JobQueued; s <= JobLost; s++ {
		if got, ok := ParseJobState(s.String()); !ok || got != s {
			t.Errorf("%v: %v %v", s, got, ok)
		}
	}
	for s := StdioLogs; s <= StdioPipe; s++ {
		if got, ok := ParseStdio(s.String()); !ok || got != s {
			t.Errorf("%v: %v %v", s, got, ok)
		}
	}
	for _, k := range []JobKind{KindJob, KindHold} {
		if got, ok := ParseJobKind(k.String()); !ok || got != k {
			t.Errorf("%v: %v %v", k, got, ok)
		}
	}
	if s := Reason(200).String(); s != "unrecorded" {
		t.Errorf("a reason of a later version reads %q: it must not look benign", s)
	}
}

func TestDetectedBeatsDeclared(t *testing.T) {
	d := &Device{Declared: []Label{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}, Detected: []Label{{Key: "a", Value: "9"}}}
	for key, want := range map[string]string{"a": "9", "b": "2"} {
		if v, ok := d.Label(key); !ok || v != want {
			t.Errorf("%s is %q, want %q", key, v, want)
		}
	}
	if _, ok := d.Label("c"); ok {
		t.Error("a label that nobody gave is there")
	}
}
