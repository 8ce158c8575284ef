package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// words are the words of a line: bare or in quotes, commas apart, and at the
// end, in parentheses, options with commas between them.
type words struct {
	rest    []string
	options [][]string
	wrong   error // the first word that was missing
}

func readWords(line string) (*words, error) {
	w := &words{}
	main, tail := line, ""
	if i := strings.LastIndex(line, " ("); i >= 0 && strings.HasSuffix(line, ")") && strings.Count(line[:i], `"`)%2 == 0 {
		main, tail = line[:i], line[i+2:len(line)-1]
	}
	var err error
	if w.rest, err = split(main); err != nil {
		return nil, err
	}
	if tail == "" {
		return w, nil
	}
	all, err := split(tail)
	if err != nil {
		return nil, err
	}
	for len(all) > 0 {
		i := slices.Index(all, ",")
		if i < 0 {
			i = len(all)
		}
		if i == 0 {
			return nil, errors.New("an option is empty")
		}
		w.options = append(w.options, all[:i])
		all = all[min(i+1, len(all)):]
	}
	return w, nil
}

// split parts a text into words. A comma at the end of a word is a word.
func split(text string) ([]string, error) {
	var out []string
	for text = strings.TrimLeft(text, " "); text != ""; text = strings.TrimLeft(text, " ") {
		if text[0] == '"' {
			end := strings.IndexByte(text[1:], '"')
			if end < 0 {
				return nil, errors.New("a quotation has no end")
			}
			out, text = append(out, text[1:1+end]), text[2+end:]
			if strings.HasPrefix(text, ",") {
				out, text = append(out, ","), text[1:]
			}
			continue
		}
		word, rest, _ := strings.Cut(text, " ")
		bare := strings.TrimSuffix(word, ",")
		if bare != "" {
			out = append(out, bare)
		}
		if bare != word {
			out = append(out, ",")
		}
		text = rest
	}
	return out, nil
}

// peek returns the next word, "" at the end.
func (w *words) peek() string {
	if len(w.rest) == 0 {
		return ""
	}
	return w.rest[0]
}

// next takes the next word. A missing one is reported by end.
func (w *words) next() string {
	if len(w.rest) == 0 {
		w.fail(errors.New("a word is missing at the end"))
		return ""
	}
	word := w.rest[0]
	w.rest = w.rest[1:]
	return word
}

// skip takes the next word when it is this one.
func (w *words) skip(word string) bool {
	if w.peek() != word {
		return false
	}
	w.rest = w.rest[1:]
	return true
}

// expect takes a word that has to be there.
func (w *words) expect(word string) {
	if !w.skip(word) {
		w.fail(fmt.Errorf("%q should be %q", w.peek(), word))
	}
}

func (w *words) fail(err error) {
	if w.wrong == nil {
		w.wrong = err
	}
}

// end reports what was missing, and what was left over.
func (w *words) end() error {
	switch {
	case w.wrong != nil:
		return w.wrong
	case len(w.rest) > 0:
		return fmt.Errorf("%q is not understood", strings.Join(w.rest, " "))
	case len(w.options) > 0:
		return fmt.Errorf("the option %q is not understood", strings.Join(w.options[0], " "))
	}
	return nil
}

// option takes an option that begins with these words and returns the others.
func (w *words) option(name string) ([]string, bool) {
	begin := strings.Fields(name)
	for i, o := range w.options {
		if len(o) >= len(begin) && slices.Equal(o[:len(begin)], begin) {
			w.options = slices.Delete(slices.Clone(w.options), i, i+1)
			return o[len(begin):], true
		}
	}
	return nil, false
}

// flag takes an option that consists of these words.
func (w *words) flag(name string) bool {
	rest, ok := w.option(name)
	if ok && len(rest) > 0 {
		w.fail(fmt.Errorf("%q after %q is not understood", strings.Join(rest, " "), name))
	}
	return ok
}

// value takes an option with one more word, such as "lease l-1".
func (w *words) value(name string) (string, bool) {
	rest, ok := w.option(name)
	if ok && len(rest) != 1 {
		w.fail(fmt.Errorf("%q wants one word after it", name))
		return "", false
	}
	if !ok {
		return "", false
	}
	return rest[0], true
}

func (w *words) number() (int64, error) {
	word := w.next()
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", word)
	}
	return n, nil
}

// ms takes a duration.
func (w *words) ms() (int64, error) { return parseMS(w.next()) }

// parseMS reads a duration; days are allowed, as in 90d.
func parseMS(word string) (int64, error) {
	if days, ok := strings.CutSuffix(word, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 64); err == nil {
			return n * dayMS, nil
		}
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 90s or 5m", word)
	}
	return d.Milliseconds(), nil
}

// job takes a job's ID and returns its row, or one with only a number.
func (w *words) job(p *player) (*model.Job, error) {
	word := w.next()
	n, ok := model.ParseJobID(word)
	if !ok {
		return nil, fmt.Errorf("%q is not a job such as j-1", word)
	}
	if j := p.m.View().Job(n); j != nil {
		return j, nil
	}
	return &model.Job{Number: n}, nil
}

func parseLease(word string) (uint64, error) {
	digits, ok := strings.CutPrefix(word, "l-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is not a lease such as l-1", word)
	}
	return n, nil
}

// labels takes key=value words up to a comma or the end. Those that begin with
// "detected:" come from the probe.
func (w *words) labels() (declared, detected []command.KV, ceilingS int64, err error) {
	for len(w.rest) > 0 && w.peek() != "," {
		key, value, ok := strings.Cut(w.next(), "=")
		if !ok {
			return nil, nil, 0, fmt.Errorf("%q is not key=value", key)
		}
		if key == "ceiling" {
			ms, err := parseMS(value)
			if err != nil {
				return nil, nil, 0, err
			}
			ceilingS = ms / 1000
			continue
		}
		if k, ok := strings.CutPrefix(key, "detected:"); ok {
			detected = append(detected, command.KV{Key: k, Value: value})
			continue
		}
		declared = append(declared, command.KV{Key: key, Value: value})
	}
	return declared, detected, ceilingS, nil
}
