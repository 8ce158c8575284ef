package ident

import (
	"regexp"
	"testing"
)

func TestWorkerIDIsTheAncestors(t *testing.T) {
	// RFC 9562, appendix A.4: version 5 of www.example.com in the DNS namespace.
	if got, want := WorkerID("www.example.com"), "2ed6657d-e927-568b-95e1-2665a8aea6a2"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if WorkerID("box") == WorkerID("Box") {
		t.Fatal("the name was folded")
	}
}

func TestRandomIDsHaveTheirFormAndDiffer(t *testing.T) {
	v4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	compact := regexp.MustCompile(`^[a-z2-7]{16}$`)
	seen := map[string]bool{}
	for range 1000 {
		a, b := New(), NewCompact()
		if !v4.MatchString(a) || !compact.MatchString(b) || seen[a] || seen[b] {
			t.Fatalf("%q %q", a, b)
		}
		seen[a], seen[b] = true, true
	}
}

func TestIsUUIDTakesOneForm(t *testing.T) {
	id := New()
	for s, want := range map[string]bool{
		id: true, WorkerID("box"): true, "": false, "{" + id + "}": false, "urn:uuid:" + id: false, id[:35] + "g": false, "j-48213": false,
	} {
		if IsUUID(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
