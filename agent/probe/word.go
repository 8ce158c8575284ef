package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxLabel bounds the key and the value of a label in bytes, as the lease table
// does.
const MaxLabel = 1024

// Word is what one probe says, by key as it writes them: KEY for every device
// of the host, DEVICE.KEY for one.
type Word map[string]string

// facts returns what counts of a run, and what was left out of it, sorted.
func (r Run) facts(devices []string) (facts Word, dropped []string, err error) {
	if r.Err != nil {
		return nil, nil, r.Err
	}
	if len(r.Output) > OutputLimit {
		return nil, nil, fmt.Errorf("it prints more than %d bytes", OutputLimit)
	}
	return Parse(r.Output, devices)
}

// Parse reads the output of a probe: exactly one flat JSON object. A string, a
// number and a boolean are kept as text, a number as it is written; null says
// that there is no such fact. dropped tells, sorted, what is left out of a good
// object: nested values, keys with a dot that begin with no declared device,
// and labels that are longer than the lease table takes.
func Parse(output []byte, devices []string) (facts Word, dropped []string, err error) {
	if !utf8.Valid(output) {
		return nil, nil, errors.New("its output is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(output))
	var object map[string]json.RawMessage
	switch err := decoder.Decode(&object); {
	case errors.Is(err, io.EOF):
		return nil, nil, errors.New("it prints nothing; it must print one JSON object, {} if it knows nothing")
	case err != nil:
		return nil, nil, fmt.Errorf("its output is not one JSON object: %w", err)
	case object == nil:
		return nil, nil, errors.New("its output is not one JSON object: null")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("its output goes on after the JSON object")
	}
	facts = Word{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value, why := text(object[key])
		_, label, known := deviceOf(key, devices)
		switch {
		case why == "null":
			continue
		case why == "" && !known:
			why = "no declared device"
		case why == "" && (label == "" || len(label) > MaxLabel):
			why = fmt.Sprintf("a key has 1 to %d bytes", MaxLabel)
		case why == "" && len(value) > MaxLabel:
			why = fmt.Sprintf("a value has %d bytes at most", MaxLabel)
		}
		if why != "" {
			dropped = append(dropped, fmt.Sprintf("%.60q (%s)", key, why))
			continue
		}
		facts[key] = value
	}
	return facts, dropped, nil
}

// text returns a JSON value as a label, or why it is none.
func text(raw json.RawMessage) (value, why string) {
	switch raw[0] {
	case '{', '[':
		return "", "nested"
	case 'n':
		return "", "null"
	case '"':
		if err := json.Unmarshal(raw, &value); err != nil {
			return "", err.Error()
		}
		return value, ""
	}
	return string(raw), "" // true, false, or a number with all of its digits
}

// deviceOf tells which device a key is about, "" for all of them. Names may hold
// dots themselves: the longest declared one counts.
func deviceOf(key string, devices []string) (device, label string, known bool) {
	if !strings.Contains(key, ".") {
		return "", key, true
	}
	for _, name := range devices {
		rest, ok := strings.CutPrefix(key, name+".")
		if ok && (!known || len(name) > len(device)) {
			device, label, known = name, rest, true
		}
	}
	return device, label, known
}

// Labels returns what all words come to, by device and key: of two probes that
// give one key, the later counts.
func (d *Dropins) Labels() map[string]map[string]string {
	all := Word{}
	for _, name := range slices.Sorted(maps.Keys(d.Words)) {
		maps.Copy(all, d.Words[name])
	}
	labels := map[string]map[string]string{}
	for key, value := range all {
		device, label, known := deviceOf(key, d.Devices)
		if !known {
			continue // of a device that was declared when it was said
		}
		if labels[device] == nil {
			labels[device] = map[string]string{}
		}
		labels[device][label] = value
	}
	return labels
}
