package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestTildeDotLeavesAtTheBeginningOfALineOnly(t *testing.T) {
	for _, tt := range []struct{ typed, want string }{
		{"ls\r", "ls\r"},
		{"~.", "<left>"},
		{"ls\r~.more", "ls\r<left>"},
		{"a~.b", "a~.b"},
		{"cd ~/x\r", "cd ~/x\r"},
		{"~~.\r", "~.\r"},
		{"~x~.\r", "~x~.\r"},
		{"\r~\r~.", "\r~\r<left>"},
		{"a\n~.", "a\n<left>"},
		{"~", ""}, // it may still become ~.
	} {
		for _, at := range []int{1, 2, 64} {
			rest, got := tt.typed, ""
			d := &detacher{read: func(_ context.Context, p []byte) (int, error) {
				if rest == "" {
					return 0, io.EOF
				}
				n := copy(p[:min(len(p), at)], rest)
				rest = rest[n:]
				return n, nil
			}}
			for p := make([]byte, 8); ; {
				n, err := d.next(t.Context(), p)
				got += string(p[:n])
				if errors.Is(err, errDetached) {
					got += "<left>"
				}
				if err != nil {
					break
				}
			}
			if got != tt.want {
				t.Errorf("%q, %d at a time: %q, want %q", tt.typed, at, got, tt.want)
			}
		}
	}
}

func TestAWordOnTheScreenBreaksNothingThatIsDrawn(t *testing.T) {
	const word = "\x1b7\x1b[1;1H\x1b[2K\x1b[7mrc: lost\x1b[0m\x1b8"
	for _, tt := range []struct{ before, after string }{
		{"plain text", " goes on"},
		{"\x1b[31", "mred"},
		{"\x1b", "[2J"},
		{"\x1b(", "Btext"},
		{"\x1b]0;a title", "\x07shown"},
		{"\x1b]0;a title\x1b", "\\shown"},
		{"\x1bPq#0", "\x1b\\after"},
		{"gr\xc3", "\xbcn"},
		{"\xe2\x82", "\xac 5"},
		{"\xf0\x9f", "\x98\x80!"},
	} {
		var drawn strings.Builder
		s := &screen{out: &drawn, size: func() (uint16, uint16, bool) { return 8, 24, true }}
		_, _ = io.WriteString(s, tt.before)
		s.say("rc: lost contact")
		for i := range len(tt.after) {
			_, _ = s.Write([]byte{tt.after[i]})
		}
		got := drawn.String()
		at := strings.Index(got, word)
		if at < 0 || got[:at]+got[at+len(word):] != tt.before+tt.after {
			t.Errorf("%q then %q: %q", tt.before, tt.after, got)
			continue
		}
		after := &screen{out: io.Discard}
		for i := range at {
			after.step(got[i])
		}
		if after.state != plainText {
			t.Errorf("%q then %q: the word comes in the middle of something: %q", tt.before, tt.after, got)
		}
	}
}
