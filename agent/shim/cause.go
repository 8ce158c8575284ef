package shim

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Cause says on whose side it lies that a job did not start, or has lost its shim. Texts are on disk.
type Cause string

// The causes.
const (
	CauseJob   Cause = "job"   // what was submitted: the command, its directory, its environment
	CauseAgent Cause = "agent" // rc itself: the shim could not run, or has ended
	CauseHost  Cause = "host"  // the disk, memory, a restart
)

const (
	causeName = "cause.cbor"
	kindCause = 8
)

// causeRecord is a file of its own and no field of the result, because an agent of an earlier release refuses a result with a field it does not know.
type causeRecord struct {
	Cause Cause `cbor:"1,keyasint"`
}

// hostErrors are what the kernel says when the host lacks something, and what to do then.
var hostErrors = []struct {
	errno  unix.Errno
	advice string
}{
	{unix.ENOSPC, "make room on the host's disk"},
	{unix.EDQUOT, "make room on the host's disk, or raise the quota"},
	{unix.EROFS, "the host's disk cannot be written to: look at its log"},
	{unix.EIO, "look at the host's disk"},
	{unix.EMFILE, "raise the limit of open files for the agent"},
	{unix.ENFILE, "the host has too many open files"},
	{unix.ENOMEM, "the host has no memory left: end something"},
	{unix.EAGAIN, "the host allows no more processes: end some, or raise the limit of tasks"},
}

// hostError marks an error that the host is to blame for whatever the kernel calls it.
type hostError struct{ error }

func (e hostError) Unwrap() error { return e.error }

// problem is what a shim said that could not begin.
type problem struct {
	text  string
	cause Cause
}

func (p *problem) Error() string { return "start shim: " + p.text }

// CauseOf says whose doing an error of Start is.
func CauseOf(err error) Cause { return causeOf(err, CauseAgent) }

func causeOf(err error, otherwise Cause) Cause {
	var said *problem
	switch {
	case errors.As(err, &said):
		return said.cause
	case errors.Is(err, ErrSpec), errors.Is(err, ErrForbiddenEnv):
		return CauseJob
	case errors.Is(err, errNeverBegan):
		return CauseAgent
	case errors.Is(err, ErrCorrupt), errors.As(err, new(hostError)), Advice(err) != "":
		return CauseHost
	}
	return otherwise
}

// Advice returns what to do about an error that says that the host lacks something; "" for any other error.
func Advice(err error) string {
	for _, h := range hostErrors {
		if errors.Is(err, h.errno) {
			return h.advice
		}
	}
	return ""
}

// advised returns the text of an error, with what to do about it where the host lacks something.
func advised(err error) string {
	if advice := Advice(err); advice != "" {
		return err.Error() + "; " + advice
	}
	return err.Error()
}

// runFailed is the error of a program that the kernel does not run.
func runFailed(path string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		advice = "; the host has no such file, or not the interpreter in its first line"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		advice = "; make it executable for the user whom the agent runs as"
	case errors.Is(err, unix.ENOEXEC):
		advice = "; it needs a first line like #!/bin/sh, or is for another kind of machine"
	case errors.Is(err, unix.E2BIG):
		advice = "; command and environment are too long, pass what is long in a file"
	}
	return fmt.Errorf("run %s: %w%s", path, err, advice)
}

// writeCause puts the cause of a result down, before the result. A result without a cause needs none.
func writeCause(dir string, cause Cause) error {
	if cause == "" {
		return nil
	}
	return writeLast(dir, causeName, kindCause, causeRecord{cause})
}

// readCause returns the cause of a result, "" if there is none, as an earlier release has left it.
func readCause(dir string, outcome Outcome) (Cause, error) {
	if outcome != StartFailed && outcome != SupervisorDied {
		return "", nil
	}
	var rec causeRecord
	err := readRecord(dir, causeName, kindCause, &rec)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return rec.Cause, err
}
