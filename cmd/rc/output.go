package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/alecthomas/kong"
)

// The formats of a listing.
const (
	formatText = "text"
	formatJSON = "json"
)

// format is the -o of a listing verb.
type format struct {
	Output string `short:"o" default:"text" enum:"text,json" help:"Output format: text or json."`
}

func (f format) json() bool { return f.Output == formatJSON }

// bareFormat is an -o that may stand without a value and then means json, as
// it did in the ancestor's rc devices.
type bareFormat string

// Decode takes the next word only if it names a format.
func (f *bareFormat) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Peek()
	word, isText := token.Value.(string)
	word = strings.TrimPrefix(word, "=") // -o=json
	attached := token.Type == kong.FlagValueToken || token.Type == kong.ShortFlagTailToken
	switch {
	case isText && slices.Contains([]string{formatText, formatJSON}, word) && (attached || token.Type == kong.UntypedToken):
		ctx.Scan.Pop()
		*f = bareFormat(word)
	case attached:
		return fmt.Errorf("must be one of %q,%q but got %q", formatText, formatJSON, word)
	default:
		*f = formatJSON
	}
	return nil
}

// table prints rows under a heading, columns aligned.
func table(w io.Writer, heading string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(heading, "|", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = clean(cell); cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// printJSON prints v for programs: indented, or on one line.
func printJSON(w io.Writer, v any, indent bool) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	return e.Encode(v)
}

// clean takes out of a text what would break a line or drive a terminal:
// commands and reasons are other people's.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return '?'
		}
		return r
	}, s)
}

// maxCommand is how much of a command a table shows, in characters.
const maxCommand = 100

// commandLine prints a command so that a shell would read it back.
func commandLine(command []string) string {
	var words []string
	for _, word := range command {
		words = append(words, quote(word))
	}
	line := []rune(strings.Join(words, " "))
	if len(line) > maxCommand {
		return string(line[:maxCommand-1]) + "…"
	}
	return string(line)
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

// withNote appends a note in parentheses, if there is one.
func withNote(text, note string) string {
	if note == "" {
		return text
	}
	return text + " (" + note + ")"
}
