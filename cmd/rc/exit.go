package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"rcd/client"
)

// Exit codes of rc itself; rc run otherwise exits with the job's own.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// usageError is a command line that cannot be meant.
type usageError struct {
	text string
	verb string // whose help to point at, "" for rc's own
}

func (e *usageError) Error() string {
	return e.text + "; see: " + strings.TrimSpace("rc "+e.verb) + " --help"
}

// exitError ends rc with a code; what there was to say has been said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// fail prints err, if it is one, and returns the exit code.
func (a *app) fail(err error) int {
	var usage *usageError
	var code exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		a.say("%s", usage)
		return exitUsage
	case a.interrupted():
		a.say("interrupted")
		return exitInterrupted
	case brokenPipe(err):
		return exitFailed // whoever read has seen enough
	}
	a.say("%s", sentence(err))
	return exitFailed
}

// sentence prints an error as "code: sentence". The layers around a refusal or
// an outage say nothing that a person needs.
func sentence(err error) string {
	var refusal *client.APIError
	var outage *client.OutageError
	switch {
	case errors.As(err, &outage):
		return outage.Error()
	case errors.As(err, &refusal):
		return refusal.Error()
	}
	return err.Error()
}

// verbOf returns the verb that a parse error is about.
func verbOf(err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return ""
	}
	var verb []string
	for _, step := range parse.Context.Path {
		if step.Command != nil {
			verb = append(verb, step.Command.Name)
		}
	}
	return strings.Join(verb, " ")
}
