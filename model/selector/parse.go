package selector

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of one selector.
const (
	MaxLength = 4096 // bytes of text
	MaxTerms  = 64
)

// Error says where a selector is wrong and what to write instead.
type Error struct {
	Offset int    // byte offset in the text
	Near   string // the piece that is wrong, shortened
	Hint   string // what to write instead
}

// Error returns one sentence for the submitter.
func (e *Error) Error() string {
	if e.Near == "" {
		return fmt.Sprintf("selector at offset %d: %s", e.Offset, e.Hint)
	}
	return fmt.Sprintf("selector at offset %d, near %q: %s", e.Offset, e.Near, e.Hint)
}

func bad(offset int, near, hint string) error {
	const longest = 40
	near = strings.TrimSpace(near)
	if len(near) > longest {
		near = strings.ToValidUTF8(near[:longest], "") + "..."
	}
	return &Error{Offset: offset, Near: near, Hint: hint}
}

// Parse returns the selector in text. Every error is an *Error.
func Parse(text string) (Selector, error) {
	if len(text) > MaxLength {
		return Selector{}, bad(MaxLength, "", fmt.Sprintf("longer than %d bytes; ask for fewer labels", MaxLength))
	}
	if !utf8.ValidString(text) {
		return Selector{}, bad(0, "", "not valid UTF-8")
	}
	if strings.TrimSpace(text) == "" {
		return Selector{}, bad(0, "", "empty; write at least one term such as vram>=40G")
	}
	var terms []Term
	for at := 0; ; {
		t, next, err := parseTerm(text, at)
		if err != nil {
			return Selector{}, err
		}
		if terms = append(terms, t); len(terms) > MaxTerms {
			return Selector{}, bad(at, "", fmt.Sprintf("more than %d terms; ask for fewer labels", MaxTerms))
		}
		if next == len(text) {
			return newSelector(terms), nil
		}
		at = next + 1 // past the comma
	}
}

// operators, longest first, so that >= is not taken for a stray >.
var operators = [...]struct {
	text string
	op   op
}{{"!=", opNot}, {">=", opAtLeast}, {"<=", opAtMost}, {"=", opEqual}}

// parseTerm returns the term that begins at offset at, and the offset of the
// comma after it or the end of the text.
func parseTerm(text string, at int) (Term, int, error) {
	if t, next, ok, err := parseIn(text, at); ok || err != nil {
		return t, next, err
	}
	next := len(text)
	if i := strings.IndexByte(text[at:], ','); i >= 0 {
		next = at + i
	}
	raw := strings.TrimSpace(text[at:next])
	if raw == "" {
		return Term{}, 0, bad(at, "", "empty term; remove the comma or write key=value")
	}
	if rest, ok := strings.CutPrefix(raw, "!"); ok {
		key := strings.TrimSpace(rest)
		if err := checkKey(key, at, raw); err != nil {
			return Term{}, 0, err
		}
		return Term{key: key, op: opAbsent}, next, nil
	}
	i := strings.IndexAny(raw, "=!<>")
	if i < 0 {
		if err := checkKey(raw, at, raw); err != nil {
			return Term{}, 0, err
		}
		return Term{key: raw, op: opPresent}, next, nil
	}
	for _, o := range operators {
		value, ok := strings.CutPrefix(raw[i:], o.text)
		if !ok {
			continue
		}
		key := strings.TrimSpace(raw[:i])
		if err := checkKey(key, at, raw); err != nil {
			return Term{}, 0, err
		}
		value = strings.TrimSpace(value)
		if err := checkValue(value, at, raw); err != nil {
			return Term{}, 0, err
		}
		return Term{key: key, op: o.op, values: []operand{newOperand(value)}}, next, nil
	}
	return Term{}, 0, bad(at, raw, "the operators are =, !=, >= and <=")
}

// parseIn parses "key in (a, b)"; ok is false when the term is something else.
func parseIn(text string, at int) (t Term, next int, ok bool, err error) {
	open := strings.IndexAny(text[at:], "(,")
	if open < 0 || text[at+open] == ',' {
		return Term{}, 0, false, nil
	}
	head := strings.Fields(text[at : at+open])
	if len(head) != 2 || head[1] != "in" {
		return Term{}, 0, false, nil
	}
	if err := checkKey(head[0], at, head[0]); err != nil {
		return Term{}, 0, false, err
	}
	inside := text[at+open+1:]
	end := strings.IndexByte(inside, ')')
	if end < 0 {
		return Term{}, 0, false, bad(at, text[at:], "close the list with )")
	}
	t = Term{key: head[0], op: opIn}
	for value := range strings.SplitSeq(inside[:end], ",") {
		value = strings.TrimSpace(value)
		if err := checkValue(value, at, text[at:at+open+1+end+1]); err != nil {
			return Term{}, 0, false, err
		}
		t.values = append(t.values, newOperand(value))
	}
	next = at + open + 1 + end + 1
	next = len(text) - len(strings.TrimLeftFunc(text[next:], unicode.IsSpace))
	if next < len(text) && text[next] != ',' {
		return Term{}, 0, false, bad(next, text[next:], "a comma comes after the list")
	}
	return t, next, true, nil
}

func checkKey(key string, at int, raw string) error {
	if key == "" {
		return bad(at, raw, "a label name comes first, such as vram>=40G")
	}
	if strings.ContainsAny(key, "=!<>(), \t\r\n") {
		return bad(at, raw, "a label name has no spaces and none of = ! < > ( ); write key=value, key, !key or key in (a,b)")
	}
	return nil
}

func checkValue(value string, at int, raw string) error {
	if value == "" {
		return bad(at, raw, "a value is missing; to ask only that the label is there, write its name alone")
	}
	if strings.ContainsAny(value, "=!<>") {
		return bad(at, raw, "a value has none of = ! < >; put a comma between two terms")
	}
	return nil
}
