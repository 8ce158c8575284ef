package yamlconf

import (
	"bytes"
	"fmt"
	"regexp"
)

// SetKey returns the document in data with the top-level key set to a text,
// and everything else, comments too, as it was: the key's line is replaced, or
// a line is put at the front. It fails on a document in which the key does not
// stand on a line of its own; path is for the error.
func SetKey(path string, data []byte, key, value string) ([]byte, error) {
	line := []byte(scalar(key) + ": " + scalar(value) + "\n")
	at := regexp.MustCompile(`(?m)^(["']?)` + regexp.QuoteMeta(key) + `(["']?)[ \t]*:.*(\r?\n|\z)`).FindIndex(data)
	var out []byte
	if at != nil {
		out = append(append(append(out, data[:at[0]]...), line...), data[at[1]:]...)
	} else {
		head := 0
		if begin := regexp.MustCompile(`(?m)^---[ \t]*\r?\n`).FindIndex(data); begin != nil {
			head = begin[1]
		}
		out = append(append(append(out, data[:head]...), line...), data[head:]...)
	}
	before, after := map[string]any{}, map[string]any{}
	if err := DecodeLoose(path, data, &before); err != nil {
		return nil, err
	}
	if err := DecodeLoose(path, out, &after); err != nil || after[key] != value {
		return nil, fmt.Errorf("%s: %s does not stand on a line of its own; set it by hand to %s", path, key, value)
	}
	delete(before, key)
	delete(after, key)
	var was, is bytes.Buffer
	if err := Encode(&was, before); err != nil {
		return nil, err
	}
	if err := Encode(&is, after); err != nil || !bytes.Equal(was.Bytes(), is.Bytes()) {
		return nil, fmt.Errorf("%s: %s cannot be set without a change of something else; set it by hand to %s", path, key, value)
	}
	return out, nil
}
