package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// --timeout is for a device; without a controller there is none either.
func TestASubmitThatNobodyTakesEndsAtItsTimeout(t *testing.T) {
	for name, verb := range map[string]interface{ Run(*app) error }{
		"run":  &runCmd{Device: "box:gpu0", Timeout: 100 * time.Millisecond, Command: []string{"true"}},
		"hold": &holdCmd{Device: "box:gpu0", TTL: time.Hour, Reason: "x", Timeout: 100 * time.Millisecond},
	} {
		var said bytes.Buffer
		a := &app{stdout: io.Discard, stderr: &said, now: clock, ctx: t.Context(), env: func(string) string { return "" },
			conf: config{controllers: []string{"127.0.0.1:1"}, submitter: "ann@box"}}
		err := verb.Run(a)
		var code exitError
		if !errors.As(err, &code) || code != exitDeadline || !strings.Contains(said.String(), "rc: no controller took it within 100ms; nothing was submitted\n") {
			t.Errorf("%s ended with %v, said %q", name, err, said.String())
		}
	}
}
