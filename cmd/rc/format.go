package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"rcd/internal/yamlconf"
)

// The formats of -o.
const (
	formatTable = "table"
	formatText  = "text" // the ancestor's word for table
	formatWide  = "wide"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatYAML  = "yaml"
	formatName  = "name"
)

var formats = []string{formatTable, formatText, formatWide, formatJSON, formatJSONL, formatYAML, formatName}

// format is the -o of a verb that shows something.
type format struct {
	Output string `short:"o" default:"table" enum:"table,text,wide,json,jsonl,yaml,name" help:"Output format: table, wide, json, jsonl, yaml or name."`
}

// show prints one thing: with text for people, else as the format says. name
// is what -o name prints.
func (f format) show(w io.Writer, v any, name string, text func() error) error {
	switch f.Output {
	case formatJSON:
		return printJSON(w, v, true)
	case formatJSONL:
		return printJSON(w, v, false)
	case formatYAML:
		return yamlconf.Encode(w, v)
	case formatName:
		_, err := fmt.Fprintln(w, clean(name))
		return err
	}
	return text()
}

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
	case isText && slices.Contains(formats, word) && (attached || token.Type == kong.UntypedToken):
		ctx.Scan.Pop()
		*f = bareFormat(word)
	case attached:
		return fmt.Errorf("must be one of %s but got %q", strings.Join(formats, ", "), word)
	default:
		*f = formatJSON
	}
	return nil
}
