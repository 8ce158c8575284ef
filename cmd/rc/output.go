package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
)

// printJSON prints v for programs: indented, or on one line.
func printJSON(w io.Writer, v any, indent bool) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(b.Bytes()))
	return err
}

// escapeJSON escapes what Go leaves bare in JSON and a terminal may obey or
// hide. Such characters stand only inside of strings.
func escapeJSON(data []byte) []byte {
	if !bytes.ContainsFunc(data, hidden) {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}

// hidden reports whether a character shows as nothing, or drives a terminal.
// Line ends and tabs are not among them.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && r != '\r' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029')
}

// clean makes text fit for a line that people read: commands, notes and
// reasons are other people's. Line ends and tabs become spaces; what would
// drive the terminal or hide in it shows as \x1b or \u202e.
func clean(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || hidden(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case hidden(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case hidden(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// maxCommand is how much of a command a table shows, in characters.
const maxCommand = 100

// commandLine prints the beginning of a command so that a shell would read it
// back.
func commandLine(command []string) string { return cut(wholeCommand(command), maxCommand) }

// maxNote is how much of a reason a table shows: one that names processes, say,
// would push every other column off the screen.
const maxNote = 40

// brief is the beginning of a note, whole is all of it.
func brief(note string) string { return cut(clean(note), maxNote) }
func whole(note string) string { return note }

// cut returns the first characters of a text, with a mark if there are more.
func cut(text string, most int) string {
	if line := []rune(text); len(line) > most {
		return string(line[:most-1]) + "…"
	}
	return text
}

func wholeCommand(command []string) string {
	var words []string
	for _, word := range command {
		words = append(words, quote(word))
	}
	return strings.Join(words, " ")
}

func quote(word string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-+=.,:/@%^", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// duration prints a time span to the second: 0s, 1m30s, 26h0m0s.
func duration(d time.Duration) string { return d.Round(time.Second).String() }

// age prints a time span in its largest unit: 40s, 3m, 5h, 2d, 4mo.
func age(seconds int64) string {
	const minute, hour, day, month = 60, 3600, 86400, 30 * 86400
	switch {
	case seconds < minute:
		return strconv.FormatInt(seconds, 10) + "s"
	case seconds < hour:
		return strconv.FormatInt(seconds/minute, 10) + "m"
	case seconds < day:
		return strconv.FormatInt(seconds/hour, 10) + "h"
	case seconds < month:
		return strconv.FormatInt(seconds/day, 10) + "d"
	}
	return strconv.FormatInt(seconds/month, 10) + "mo"
}

// ago prints how far a time is from now, "" for none: 3m ago, in 2h.
func ago(t *time.Time, now time.Time) string {
	switch {
	case t == nil || t.IsZero():
		return ""
	case t.After(now):
		return "in " + age(int64(t.Sub(now)/time.Second))
	}
	return age(int64(now.Sub(*t)/time.Second)) + " ago"
}

// inFull prints a time for wide tables, "" for none.
func inFull(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// withNote appends a note in parentheses, if there is one.
func withNote(text, note string) string {
	if note == "" {
		return text
	}
	return text + " (" + note + ")"
}
