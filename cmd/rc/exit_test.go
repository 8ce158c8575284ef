package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcd/agent/shim"
	"rcd/client"
	"rcd/wire"
)

const exitCodesPage = "../../docs/exit-codes.md"

// With -update the page takes over the table of the code.
func TestThePageOfExitCodesHasTheTableOfTheCode(t *testing.T) {
	raw, err := os.ReadFile(exitCodesPage)
	if err != nil {
		t.Fatal(err)
	}
	page, want := string(raw), guideExits()+"\n"
	begin := strings.Index(page, "| code | meaning |")
	end := begin + strings.Index(page[max(begin, 0):], "\n\n") + 1
	if begin < 0 || end <= begin {
		t.Fatal("the page has no table")
	}
	if *update && page[begin:end] != want {
		if err := os.WriteFile(exitCodesPage, []byte(page[:begin]+want+page[end:]), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := page[begin:end]; got != want {
		t.Fatalf("the page has\n%s\nwant\n%s", got, want)
	}
}

func TestEachExitCodeStandsOnceInTheTable(t *testing.T) {
	last := -1
	for _, e := range exitCodes {
		if e.code <= last || e.meaning == "" {
			t.Errorf("%d follows %d, meaning %q", e.code, last, e.meaning)
		}
		last = e.code
	}
}

func TestEveryErrorHasItsExitCode(t *testing.T) {
	api := func(status int, code string) error { return &client.APIError{Status: status, Code: code} }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{exitError(42), 42},
		{&usageError{text: "x"}, 2},
		{api(400, wire.CodeBadRequest), 2},
		{api(400, wire.CodeAmbiguous), 2},
		{api(400, "bad_selector"), 2},
		{api(413, wire.CodeBodyTooLarge), 2},
		{api(422, "key_reused"), 2},
		{absentError("x"), 3},
		{api(404, wire.CodeNotFound), 3},
		{api(400, "unknown_device"), 3},
		{api(400, "no_matching_device"), 3},
		{api(400, "unknown_setting"), 3},
		{&client.OutageError{}, 69},
		{fmt.Errorf("wait for job j-1: %w", &client.OutageError{Unknown: true}), 69},
		{api(503, wire.CodeNoLeader), 69},
		{api(504, wire.CodeOutcomeUnknown), 69},
		{api(409, wire.CodeNoDevice), 75},
		{api(429, "queue_full"), 75},
		{api(401, wire.CodeUnauthorized), 77},
		{api(403, "not_job_owner"), 77},
		{api(409, "device_not_cleared"), 125},
		{api(404, "http_404"), 125}, // an older controller, not a missing job
		{api(500, wire.CodeStoreError), 125},
		{errors.New("disk full"), 125},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// The shim's own words, not a copy of them: if it finds others, this fails.
func TestAProgramThatIsNotThereIs127AndOneThatCannotStartIs126(t *testing.T) {
	dir := t.TempDir()
	plain, missing := filepath.Join(dir, "plain"), filepath.Join(dir, "missing")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command []string
		cwd     string
		want    int
	}{
		"no such program":     {[]string{"no-such-program-here"}, "/", 127},
		"no such path":        {[]string{missing, "arg"}, "/", 127},
		"no such path in cwd": {[]string{"./missing"}, dir, 127},
		"not executable":      {[]string{plain}, "/", 126},
		"a directory":         {[]string{dir}, "/", 126},
		"no such directory":   {[]string{"true"}, missing, 126},
		"named like a cause":  {[]string{"sh"}, "/x: command not found in PATH ", 126},
	} {
		t.Run(name, func(t *testing.T) {
			result := startAndEnd(t, c.command, c.cwd)
			job := &wire.Job{State: "failed", Command: c.command, KillReason: result.Reason, ExitCode: result.ExitCode}
			if got := exitCode(job); got != c.want {
				t.Fatalf("%q: exit code %d, want %d", result.Reason, got, c.want)
			}
		})
	}
}

// startAndEnd starts a job under a real shim, which is this test's own binary,
// and returns how it ended.
func startAndEnd(t *testing.T, command []string, cwd string) shim.Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), awaitWithin)
	defer cancel()
	h, err := shim.Start(shim.Config{
		Dir: filepath.Join(t.TempDir(), "job"), Exec: self, Log: slog.New(slog.DiscardHandler),
		Spec: shim.Spec{JobID: "j-7", Lease: 9, Kind: shim.KindJob, Command: command, Cwd: cwd,
			Env: []string{"PATH=" + os.Getenv("PATH"), "RC_JOB_ID=j-7"}, Grace: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Remove() })
	select {
	case <-h.Done():
	case <-ctx.Done():
		t.Fatal("no end")
	}
	result, err := h.Result()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestASentenceThatIsNotKnownIsNoMissingProgram(t *testing.T) {
	never := neverStarted
	for _, reason := range []string{
		"", "start: device gpu0 is not declared on this host",
		"start: other: command not found in PATH /bin", // not what was asked for
		"start: run other: no such file or directory",
		"start: run tool: no such file or directory in /opt",
		"killed by start: tool: command not found in PATH /bin",
	} {
		job := &wire.Job{State: "failed", Command: []string{"tool"}, KillReason: reason, ExitCode: &never}
		if got := exitCode(job); got != exitNotStarted {
			t.Errorf("%q: exit code %d", reason, got)
		}
	}
}
