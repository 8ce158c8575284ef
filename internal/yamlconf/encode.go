package yamlconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
)

// Encode writes v as one YAML document in block style: the keys, their order
// and the values are those of its JSON encoding, so that whoever knows one
// knows the other. Text that could be taken for anything but text is quoted,
// and what drives a terminal is escaped. (The library's encoder does neither
// reliably: it writes tabs and escape characters bare, and reads a tab back as
// nothing.)
func Encode(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode YAML: %w", err)
	}
	e := encoder{in: json.NewDecoder(bytes.NewReader(data))}
	e.in.UseNumber()
	if err := e.value(0, atTop); err != nil {
		return fmt.Errorf("encode YAML: %w", err)
	}
	_, err = w.Write(e.out.Bytes())
	return err
}

type encoder struct {
	in  *json.Decoder
	out bytes.Buffer
}

// place is what stands before a value.
type place int

const (
	atTop     place = iota // nothing: the start of the document
	afterKey               // "key:"
	afterDash              // "-" of a sequence
)

// value writes the next value; the lines of a compound one are indented.
func (e *encoder) value(indent int, at place) error {
	token, err := e.in.Token()
	if err != nil {
		return err
	}
	open, compound := token.(json.Delim)
	switch {
	case !compound:
		e.inline(at, scalar(token))
		return nil
	case !e.in.More():
		e.inline(at, map[json.Delim]string{'{': "{}", '[': "[]"}[open])
	case open == '{':
		err = e.mapping(indent, at)
	default:
		err = e.sequence(indent, at)
	}
	if err == nil {
		_, err = e.in.Token() // its end
	}
	return err
}

func (e *encoder) inline(at place, text string) {
	if at != atTop {
		e.out.WriteString(" ")
	}
	e.out.WriteString(text + "\n")
}

func (e *encoder) mapping(indent int, at place) error {
	switch at {
	case afterKey:
		e.out.WriteString("\n")
	case afterDash:
		e.out.WriteString(" ") // its first key goes on the same line
	}
	for first := true; e.in.More(); first = false {
		key, err := e.in.Token()
		if err != nil {
			return err
		}
		if !first || at != afterDash {
			e.out.WriteString(strings.Repeat(" ", indent))
		}
		e.out.WriteString(scalar(key) + ":")
		if err := e.value(indent+2, afterKey); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) sequence(indent int, at place) error {
	if at != atTop {
		e.out.WriteString("\n")
	}
	for e.in.More() {
		e.out.WriteString(strings.Repeat(" ", indent) + "-")
		if err := e.value(indent+2, afterDash); err != nil {
			return err
		}
	}
	return nil
}

// plain is text that every YAML reader takes for that text: it begins with a
// letter or a slash, and no character in it means anything.
var plain = regexp.MustCompile(`^[A-Za-z/]([A-Za-z0-9_./@+%=,()~ -]|:[A-Za-z0-9_./@+%=,()~-])*$`)

// notText are words that some reader takes for a switch, a number or nothing.
var notText = map[string]bool{
	"true": true, "false": true, "yes": true, "no": true, "on": true, "off": true,
	"y": true, "n": true, "null": true, "nan": true, "inf": true,
}

func scalar(token json.Token) string {
	switch v := token.(type) {
	case nil:
		return "null"
	case string:
		if plain.MatchString(v) && !strings.HasSuffix(v, " ") && !notText[strings.ToLower(v)] {
			return v
		}
		return quoted(v)
	}
	return fmt.Sprint(token) // true, false, or a number as it stood
}

// quoted writes text in double quotes, with everything escaped that does not
// show as itself.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
