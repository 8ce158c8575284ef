package selector

import (
	"slices"
	"strings"
)

// op is how a term compares a label with its values.
type op uint8

const (
	opPresent op = iota // key
	opAbsent            // !key
	opEqual             // key=value
	opNot               // key!=value
	opAtLeast           // key>=value
	opAtMost            // key<=value
	opIn                // key in (a,b)
)

var opText = [...]string{"", "!", "=", "!=", ">=", "<=", " in "}

// Term is one condition. values has one element, several for opIn, and none
// for opPresent and opAbsent.
type Term struct {
	key      string
	op       op
	values   []operand
	volatile bool
	text     string // canonical
}

// Selector is a parsed selector, immutable and safe for concurrent use. The
// zero value matches every device; Parse never returns it without an error.
type Selector struct {
	terms     []Term // in canonical order
	canonical string
	keys      []string
	volatile  bool
}

// Match reports whether a device satisfies every term. get returns the
// effective value of a label and whether there is one. A missing key never
// matches, not even !=; only !key asks for its absence.
func (s Selector) Match(get func(key string) (string, bool)) bool {
	for i := range s.terms {
		if !s.terms[i].match(get) {
			return false
		}
	}
	return true
}

// MatchStable is Match without the terms on volatile keys: whether the device
// could ever satisfy the selector, whatever is free on it just now.
func (s Selector) MatchStable(get func(key string) (string, bool)) bool {
	for i := range s.terms {
		if !s.terms[i].volatile && !s.terms[i].match(get) {
			return false
		}
	}
	return true
}

// String returns the canonical text: equal for selectors that differ only in
// spacing, order or repetition of terms. Parse accepts it and returns an equal
// selector.
func (s Selector) String() string { return s.canonical }

// Keys returns the keys the selector reads, sorted, each once. The slice is
// shared and must not be written.
func (s Selector) Keys() []string { return s.keys }

// Volatile reports whether any term reads a volatile key.
func (s Selector) Volatile() bool { return s.volatile }

// Volatile reports whether a label changes with what runs on the host, such as
// gpu0.vram_free or disk_free_bytes. Such labels count when a job is placed,
// never when it is decided whether any device could serve it at all.
func Volatile(key string) bool {
	return strings.HasSuffix(key, "_free") || strings.Contains(key, "_free_")
}

// Value is the value of a label with what comparisons need of it, worked out
// once: most of the cost of a comparison is reading the number or the version.
type Value struct{ operand operand }

// NewValue returns the value of a label with this text.
func NewValue(text string) *Value { return &Value{newOperand(text)} }

// Terms returns the conditions of the selector, all of which a device must
// satisfy. The slice is shared and must not be written.
func (s Selector) Terms() []Term { return s.terms }

// Key returns the key of the label that the term is about.
func (t *Term) Key() string { return t.key }

// Volatile reports whether that label is volatile.
func (t *Term) Volatile() bool { return t.volatile }

// Holds reports whether the term holds for a device with this value of its
// label, nil when it has none.
func (t *Term) Holds(v *Value) bool {
	if v == nil {
		return t.op == opAbsent
	}
	return t.holds(&v.operand)
}

func (t *Term) match(get func(key string) (string, bool)) bool {
	label, ok := get(t.key)
	switch {
	case !ok:
		return t.op == opAbsent
	case t.op == opAbsent || t.op == opPresent:
		return t.op == opPresent
	}
	have := newOperand(label)
	return t.holds(&have)
}

// holds is Holds for a label that is there.
func (t *Term) holds(have *operand) bool {
	switch t.op {
	case opAbsent:
		return false
	case opPresent:
		return true
	case opEqual:
		return equal(*have, t.values[0])
	case opNot:
		return !equal(*have, t.values[0])
	case opIn:
		return slices.ContainsFunc(t.values, func(v operand) bool { return equal(*have, v) })
	}
	order, ok := compare(*have, t.values[0])
	if !ok {
		return false
	}
	if t.op == opAtLeast {
		return order >= 0
	}
	return order <= 0
}

// canonical returns the canonical form of one term.
func (t *Term) canonical() string {
	switch t.op {
	case opPresent:
		return t.key
	case opAbsent:
		return "!" + t.key
	case opIn:
		values := make([]string, len(t.values))
		for i, v := range t.values {
			values[i] = v.text
		}
		return t.key + " in (" + strings.Join(values, ",") + ")"
	}
	return t.key + opText[t.op] + t.values[0].text
}

// newSelector puts terms into canonical order.
func newSelector(terms []Term) Selector {
	for i := range terms {
		t := &terms[i]
		t.volatile = Volatile(t.key)
		if t.op == opIn {
			slices.SortFunc(t.values, func(a, b operand) int { return strings.Compare(a.text, b.text) })
			t.values = slices.CompactFunc(t.values, func(a, b operand) bool { return a.text == b.text })
		}
		t.text = t.canonical()
	}
	slices.SortFunc(terms, func(a, b Term) int { return strings.Compare(a.text, b.text) })
	terms = slices.CompactFunc(terms, func(a, b Term) bool { return a.text == b.text })
	s := Selector{terms: terms}
	texts := make([]string, len(terms))
	for i := range terms {
		texts[i] = terms[i].text
		s.keys = append(s.keys, terms[i].key)
		s.volatile = s.volatile || terms[i].volatile
	}
	slices.Sort(s.keys)
	s.keys = slices.Compact(s.keys)
	s.canonical = strings.Join(texts, ",")
	return s
}
