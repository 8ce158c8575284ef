package model

import (
	"strings"
	"testing"
	"time"
)

func TestAGraceSignalIsANameOrANumberAndATime(t *testing.T) {
	for text, want := range map[string]GraceSignal{
		DefaultGraceSignal: {15, 30 * time.Second},
		"TERM":             {15, 30 * time.Second},
		"SIGUSR1":          {10, 30 * time.Second},
		"usr2@2m":          {12, 2 * time.Minute},
		"sigint@500ms":     {2, 500 * time.Millisecond},
		"1@1h":             {1, time.Hour},
		"31":               {31, 30 * time.Second},
	} {
		if got, err := ParseGraceSignal(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestWhatWarnsNobodyIsNoGraceSignal(t *testing.T) {
	for _, text := range []string{
		"", "@30s", "TERM@", "TERM@0s", "TERM@-1s", "TERM@30", "TERM@x", "TERM@30s@1s", "TERM@100000h", "KILL", "sigstop", "9", "19", "0", "-1", "32",
		"64", "RTMIN", "SIG", "FOO", " TERM", "SIGSIGTERM", "1.5", "TERM@9999999999999h",
	} {
		got, err := ParseGraceSignal(text)
		if err == nil {
			t.Errorf("%q: %+v", text, got)
		} else if !strings.Contains(err.Error(), "; use ") {
			t.Errorf("%q: %q does not say what to use", text, err)
		}
	}
}
