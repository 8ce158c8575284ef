package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/alecthomas/kong"

	"rcd/client"
	"rcd/internal/archive"
	"rcd/wire"
)

// failure is what rc prints on stderr, as one line, instead of a sentence when
// its output is for programs. All members are always there.
type failure struct {
	Code    string `json:"code"`    // the controllers' own, or one of rc: usage, interrupted, deadline, failed
	Message string `json:"message"` // one line
	Hint    string `json:"hint"`    // what to do next; "" when the message says it
	// RetryAfter is in seconds; 0: asking again changes nothing, or nobody
	// knows when it would.
	RetryAfter int64 `json:"retry_after"`
	// RequestID is what a change was asked for under, "" for reads.
	RequestID string `json:"request_id"`
}

// Codes of rc itself that more than one verb has.
const (
	codeInterrupted = "interrupted"
	codeDeadline    = "deadline"
)

// fail prints err, if it is one, and returns the exit code.
func (a *app) fail(err error) int {
	var code exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	var usage *usageError
	if a.interrupted() && !errors.As(err, &usage) {
		return codeOf(a.cutOff(err))
	}
	if brokenPipe(err) {
		return exitFailed // whoever read has seen enough
	}
	var outage *client.OutageError
	if errors.As(err, &outage) { // it has a line for each controller
		a.report(failureOf(err), strings.Split(outage.Error(), "\n")...)
	} else {
		a.report(failureOf(err), sentence(err))
	}
	return codeOf(err)
}

// report says that something failed, as people or programs read it.
func (a *app) report(f failure, lines ...string) {
	if !a.forPrograms {
		a.say("%s", lines[0])
		for _, line := range lines[1:] {
			fmt.Fprintln(a.stderr, clean(line))
		}
		return
	}
	line, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings and a number
	}
	fmt.Fprintf(a.stderr, "%s\n", escapeJSON(line))
}

// failureOf takes an error apart for programs.
func failureOf(err error) failure {
	var (
		usage   *usageError
		absent  absentError
		busy    busyError
		denied  deniedError
		outage  *client.OutageError
		refusal *client.APIError
		escape  *archive.EscapeError
	)
	seconds := func(f float64) int64 { return int64(math.Ceil(f)) }
	switch {
	case errors.As(err, &usage):
		return failure{Code: "usage", Message: usage.text, Hint: usage.hint()}
	case errors.As(err, &absent):
		return failure{Code: wire.CodeNotFound, Message: absent.Error()}
	case errors.As(err, &busy):
		return failure{Code: wire.CodeNoDevice, Message: busy.Error()}
	case errors.As(err, &denied):
		return failure{Code: "not_job_owner", Message: denied.Error(), Hint: hints[exitForbidden]}
	case errors.As(err, &outage):
		return failure{Code: outage.Code(), Message: outage.Message(), Hint: outage.Hint(),
			RetryAfter: seconds(outage.RetryAfter().Seconds()), RequestID: outage.RequestID}
	case errors.As(err, &refusal):
		hint := hints[codeOf(err)]
		if refusal.Node == "" {
			hint = "" // the client's own words, which say what to do
		}
		return failure{Code: refusal.Code, Message: refusal.Message, Hint: hint,
			RetryAfter: seconds(refusal.RetryAfter.Seconds()), RequestID: refusal.RequestID}
	case errors.Is(err, client.ErrNotFound):
		return failure{Code: wire.CodeNotFound, Message: err.Error()}
	case errors.As(err, &escape):
		return failure{Code: "failed", Message: err.Error(), Hint: linkHint(escape)}
	}
	return failure{Code: "failed", Message: err.Error()}
}

// linkHint says what may be done about an archive that is refused.
func linkHint(e *archive.EscapeError) string {
	if !e.Link {
		return ""
	}
	return "--outside-links copies such links as they are"
}

// hints say what to do about a controller's refusal, by exit code; its message
// often says more.
var hints = map[int]string{
	exitNotFound:  "rc jobs and rc devices list what there is",
	exitForbidden: "rc whoami shows whom rc acts as and what the token allows",
	exitBusy:      "ask again later",
}

// sentence prints an error in one line, as "code: sentence". The layers around a refusal or
// an outage say nothing that a person needs.
func sentence(err error) string {
	var refusal *client.APIError
	var outage *client.OutageError
	var escape *archive.EscapeError
	switch {
	case errors.As(err, &escape) && escape.Link:
		return err.Error() + "; " + linkHint(escape)
	case errors.As(err, &outage):
		return outage.Code() + ": " + outage.Message() + ". " + outage.Hint()
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

// forPrograms reports whether the words of a command line ask for JSON. It
// reads them itself, because a line that cannot be parsed has its error
// printed in this form as well.
func forPrograms(words []string) bool {
	asked, verb := false, ""
	for i, word := range words {
		switch {
		case word == "--":
			return asked
		case verb == "" && !strings.HasPrefix(word, "-"):
			if i > 0 && words[i-1] == "--context" {
				continue // its value
			}
			if verb = word; verb == "run" || verb == "exec" || verb == "hold" {
				return false // they list nothing, and what follows may be the job's
			}
		case word == "--json":
			asked = true
		case strings.HasPrefix(word, "--output="):
			asked = isJSON(strings.TrimPrefix(word, "--output="))
		case word == "--output" || strings.HasPrefix(shortTail(word), "o"):
			value := strings.TrimPrefix(strings.TrimPrefix(shortTail(word), "o"), "=")
			if next := append(words[i+1:], "")[0]; value == "" {
				value = next
				if verb == "devices" && (next == "" || strings.HasPrefix(next, "-")) {
					value = formatJSON
				}
			}
			asked = isJSON(value)
		}
	}
	return asked
}

// switches are the short flags without a value, which may stand before another
// one in the same word: -wo json.
const switches = "fhqw"

// shortTail is what a word of short flags ends in behind its switches, "" of any
// other word.
func shortTail(word string) string {
	if !strings.HasPrefix(word, "-") || strings.HasPrefix(word, "--") {
		return ""
	}
	return strings.TrimLeft(word[1:], switches)
}

func isJSON(output string) bool { return output == formatJSON || output == formatJSONL }
