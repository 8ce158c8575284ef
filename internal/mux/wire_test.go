package mux

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestWireIsFrozen: controllers and agents of different versions meet here
// first, so these bytes never change under version 1.
func TestWireIsFrozen(t *testing.T) {
	nonce := func(b byte) (n [nonceSize]byte) {
		copy(n[:], bytes.Repeat([]byte{b}, nonceSize))
		return n
	}
	first := hello{version, Raft, nonce(1), c2}.encode()
	second := challenge{nonce(2), c1}.encode()
	third := sum(clusterKey.Secret, "dialer", first, second)
	fourth := func(r *refusal) []byte {
		return encodeVerdict(r, sum(clusterKey.Secret, "listener", first, second, third, r.encode()))
	}
	var out strings.Builder
	for _, frame := range []struct {
		name    string
		payload []byte
	}{
		{"1 hello", first},
		{"2 challenge", second},
		{"2 refusal", (&refusal{statusVersion, "this side speaks version 1"}).encode()},
		{"3 proof", third},
		{"4 accepted", fourth(&refusal{statusOK, ""})},
		{"4 refused", fourth(&refusal{statusIdentityMismatch, "c2 is in cluster cl-2 generation 1, c1 in cluster cl-1 generation 1"})},
	} {
		var wire bytes.Buffer
		if err := writeFrame(&wire, frame.payload); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n%s\n", frame.name, hex.Dump(wire.Bytes()))
	}
	path := filepath.Join("testdata", "handshake.golden")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the wire has changed:\n%s", out.String())
	}
}

func TestFramesAreBounded(t *testing.T) {
	for _, length := range [][]byte{{0, 0}, {0x10, 0x01}, {0xff, 0xff}} {
		if _, err := readFrame(bytes.NewReader(append(length, make([]byte, 1<<16)...))); !errors.Is(err, errMalformed) {
			t.Errorf("length %x: %v", length, err)
		}
	}
	long := &refusal{statusBusy, strings.Repeat("x", 10*maxSentence)}
	if n := len(long.encode()); n > maxFrame {
		t.Errorf("a refusal of %d bytes", n)
	}
}

// FuzzPreface: no frame from a stranger panics, and what is accepted encodes
// to the same bytes again, so that there is one form of each.
func FuzzPreface(f *testing.F) {
	f.Add(hello{version, Raft, [nonceSize]byte{}, c1}.encode())
	f.Add(challenge{[nonceSize]byte{}, c2}.encode())
	f.Add((&refusal{statusBusy, "later"}).encode())
	f.Add(encodeVerdict(&refusal{statusOK, ""}, make([]byte, macSize)))
	f.Add([]byte("RCMX\x02"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if h, err := parseHello(frame); err == nil && h.version == version && !bytes.Equal(h.encode(), frame) {
			t.Errorf("hello %x encodes as %x", frame, h.encode())
		}
		c, err := parseChallenge(frame)
		var r *refusal
		switch {
		case err == nil && !bytes.Equal(c.encode(), frame):
			t.Errorf("challenge %x encodes as %x", frame, c.encode())
		case errors.As(err, &r) && !bytes.Equal(r.encode(), frame):
			t.Errorf("refusal %x encodes as %x", frame, r.encode())
		}
		if r, body, mac, err := parseVerdict(frame); err == nil && !bytes.Equal(encodeVerdict(r, mac), frame) {
			t.Errorf("verdict %x: %x", frame, body)
		}
	})
}
