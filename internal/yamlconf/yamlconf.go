package yamlconf

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// ErrTooLarge says that a file is over MaxSize. Aliases can make a YAML text
// much larger than itself, so it is refused before it is parsed.
var ErrTooLarge = errors.New("configuration file too large")

// MaxSize bounds a configuration file in bytes: a thousand devices with twenty
// labels each take half of it.
const MaxSize = 1 << 20

// Decode reads the one YAML document in data into v, a pointer to a struct
// with `yaml` tags, and refuses keys that v has no field for, duplicate keys
// and a second document. Durations are written like 90s. An empty document
// leaves v as it was, so v may come with defaults. Errors read "path:line:
// what"; path is used for nothing else.
func Decode(path string, data []byte, v any) error {
	return decode(path, data, v, yaml.DisallowUnknownField())
}

// DecodeLoose is Decode for files that another program also reads: keys that v
// has no field for are ignored.
func DecodeLoose(path string, data []byte, v any) error {
	return decode(path, data, v)
}

func decode(path string, data []byte, v any, opts ...yaml.DecodeOption) error {
	if len(data) > MaxSize {
		return fmt.Errorf("%s: %w: %d bytes, at most %d", path, ErrTooLarge, len(data), MaxSize)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return located(path, file, err)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.NullType:
			// Nothing but comments: the defaults in v stand.
		case body != nil:
			return &Error{Path: path, Line: line(doc.Body.GetToken()),
				What: "a second document follows the first; keep one and remove the line ---"}
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return nil
	}
	opts = append(opts, yaml.CustomUnmarshaler(unmarshalDuration))
	if err := yaml.NewDecoder(strings.NewReader(""), opts...).DecodeFromNode(body, v); err != nil {
		return located(path, file, err)
	}
	return nil
}

// durationError carries the text that is no duration. The library reports
// these without their place, so located looks for the text.
type durationError struct{ text string }

func (e *durationError) Error() string {
	return fmt.Sprintf("%q is not a duration; write one like 90s, 5m or 2h", e.text)
}

func unmarshalDuration(d *time.Duration, data []byte) error {
	text := strings.Trim(strings.TrimSpace(string(data)), `"'`)
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return &durationError{text}
	}
	*d = parsed
	return nil
}

// located puts path and line before the parser's message and drops the excerpt
// of the source that it would print below.
func located(path string, file *ast.File, err error) error {
	var mistyped *yaml.TypeError
	if errors.As(err, &mistyped) {
		return &Error{Path: path, Line: line(mistyped.Token),
			What: fmt.Sprintf("here is %s, and %s is expected", formOf(mistyped.SrcType), formOf(mistyped.DstType))}
	}
	var parsed yaml.Error
	if errors.As(err, &parsed) {
		return &Error{Path: path, Line: line(parsed.GetToken()), What: strings.TrimSpace(parsed.GetMessage())}
	}
	var duration *durationError
	if errors.As(err, &duration) {
		return &Error{Path: path, Line: onlyLineOf(file, duration.text), What: duration.Error()}
	}
	return fmt.Errorf("%s: %w", path, err)
}

// formOf says in words what has a type: whoever writes the file knows no Go.
func formOf(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "something else"
	}
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "a map of keys and values"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number with a fraction"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	}
	return "something else"
}

func line(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}

// onlyLineOf returns the line of the one value that reads text, or 0 when
// there is more than one such line.
func onlyLineOf(file *ast.File, text string) int {
	found := scalarLines{text: text, lines: map[int]bool{}}
	for _, doc := range file.Docs {
		ast.Walk(found, doc.Body)
	}
	if len(found.lines) != 1 {
		return 0
	}
	for line := range found.lines {
		return line
	}
	return 0
}

type scalarLines struct {
	text  string
	lines map[int]bool
}

// Visit implements ast.Visitor.
func (s scalarLines) Visit(node ast.Node) ast.Visitor {
	if _, ok := node.(ast.ScalarNode); ok && node.GetToken().Value == s.text {
		s.lines[line(node.GetToken())] = true
	}
	return s
}

// Error is a mistake in a configuration file. Line counts from 1 and is 0 when
// the parser did not say.
type Error struct {
	Path string
	Line int
	What string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Path, e.What)
	}
	return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.What)
}
