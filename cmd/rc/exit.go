package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"rcd/client"
	"rcd/wire"
)

// Exit codes of rc itself. rc run otherwise exits with the job's own, which
// may be any of these: what rc says on stderr tells them apart.
const (
	exitOK          = 0
	exitNoCode      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 69
	exitBusy        = 75
	exitForbidden   = 77
	exitDeadline    = 124
	exitFailed      = 125
	exitNotStarted  = 126
	exitNoProgram   = 127
	exitInterrupted = 130
)

// exitCodes is the one table of exit codes; docs/exit-codes.md and rc help
// agents have it too, and tests compare them.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done; of a job: it succeeded"},
	{exitNoCode, "of a job only: it ended without an exit code (killed, lost, cancelled before it started), or with a multiple of 256; of several under `wait`: not all succeeded"},
	{exitUsage, "the command line cannot be meant, or a controller refuses what it asks for as malformed or out of range"},
	{exitNotFound, "no such job, device, controller, context or setting; nothing there for `cp` to copy; no device that the selector matches; a hold to work in that has ended"},
	{exitUnreachable, "no controller answers, or none knows a leader; whether a change happened all the same is said"},
	{exitBusy, "busy: no free device, or a hold that is still queued, under `--no-wait`; a device of `cp` that another job has; or the queue is full"},
	{exitForbidden, "the token is unknown or does not allow it, or the job is somebody else's"},
	{exitDeadline, "the time given with `--timeout` is over; of `cp`: nothing has moved for that time, or for 5m"},
	{exitFailed, "rc failed: nothing else in this table, a device in the wrong state for example, or stdout that nobody reads any more"},
	{exitNotStarted, "of a job only: its program could not be started (no permission, no such directory, a host that does not have the device)"},
	{exitNoProgram, "of a job only: there is no such program on the device host"},
	{exitInterrupted, "interrupted by Ctrl-C, SIGTERM or SIGHUP; what is left behind is said"},
}

// exitError ends rc with a code; what there was to say has been said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a command line that cannot be meant.
type usageError struct {
	text string
	verb string // whose help to point at, "" for rc's own
}

func (e *usageError) Error() string { return e.text + "; " + e.hint() }

func (e *usageError) hint() string {
	return "see: " + strings.TrimSpace("rc "+e.verb) + " --help"
}

// absentError is a name of something that is not there.
type absentError string

func (e absentError) Error() string { return string(e) }

// busyError is a device that cannot be had at once by somebody who does not
// want to wait.
type busyError string

func (e busyError) Error() string { return string(e) }

// deniedError is what is somebody else's.
type deniedError string

func (e deniedError) Error() string { return string(e) }

// codesOfAbsence are refusals of a request, not of a path, that name something
// that is not there. The state machine's package is none of rc's business.
var codesOfAbsence = map[string]bool{
	"unknown_device": true, "no_matching_device": true, "unknown_setting": true, "device_not_found": true,
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	var (
		code    exitError
		usage   *usageError
		absent  absentError
		busy    busyError
		denied  deniedError
		refusal *client.APIError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &absent), errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrHoldEnded):
		return exitNotFound
	case errors.As(err, &busy), errors.Is(err, client.ErrNoDevice), errors.Is(err, client.ErrHoldWaiting):
		return exitBusy
	case errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	case errors.As(err, &denied), errors.Is(err, client.ErrForbidden):
		return exitForbidden
	case !errors.As(err, &refusal):
		return exitFailed
	case codesOfAbsence[refusal.Code]:
		return exitNotFound
	}
	switch refusal.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return exitUsage
	case http.StatusTooManyRequests:
		return exitBusy
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnreachable
	}
	return exitFailed
}

// exitCode returns the code of rc for a job that has ended: 0 only for one
// that succeeded.
func exitCode(job *wire.Job) int {
	switch {
	case job.State == "succeeded":
		return exitOK
	case job.ExitCode == nil:
		return exitNoCode
	case *job.ExitCode == neverStarted:
		return exitOfFailedStart(job)
	}
	// The system keeps eight bits of a code, and 0 would be a lie.
	if code := *job.ExitCode & 0xff; code != 0 {
		return code
	}
	return exitNoCode
}

// neverStarted is the exit code that the API gives a job whose process could
// not be started; a process that has run cannot have it.
const neverStarted = -1

// exitOfFailedStart tells a program that is not there from one that could not
// be started, as shells do. The outcome of a job carries this only in the
// sentence of its end, and its format is frozen; so this one function reads
// that sentence, from its beginning and with the command's own name in it; what
// is advised after that may change. (A test has the shim say it.) A sentence
// that it does not know is the lesser statement.
func exitOfFailedStart(job *wire.Job) int {
	if len(job.Command) == 0 {
		return exitNotStarted
	}
	name := job.Command[0]
	rest, missing := strings.CutPrefix(job.KillReason, "start: run "+name+": no such file or directory")
	if strings.HasPrefix(job.KillReason, "start: "+name+": command not found in PATH ") ||
		missing && (rest == "" || strings.HasPrefix(rest, "; ")) {
		return exitNoProgram
	}
	return exitNotStarted
}
