package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

// At its deadline it looks once more, and not for longer than that is worth.
func TestWaitEndsAtItsDeadlineAlsoWhenNobodyAnswers(t *testing.T) {
	var said bytes.Buffer
	a := &app{stdout: io.Discard, stderr: &said, now: clock, ctx: t.Context(), conf: config{controllers: []string{"127.0.0.1:1"}}}
	begun := time.Now()
	err := (&waitCmd{Jobs: []string{"j-1"}, For: forDone, Timeout: 100 * time.Millisecond}).Run(a)
	var code exitError
	if !errors.As(err, &code) || code != exitDeadline {
		t.Errorf("ended with %v, said %q", err, said.String())
	}
	if took := time.Since(begun); took >= lastLook {
		t.Errorf("it took %s", took)
	}
}
