package yamlconf

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func encoded(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEncodeIsTheJSONInBlockStyle(t *testing.T) {
	type inner struct {
		Name  string   `json:"name"`
		Words []string `json:"words"`
		Deep  any      `json:"deep,omitempty"`
	}
	got := encoded(t, struct {
		Z     int64   `json:"z"`
		A     []inner `json:"a"`
		Empty []int   `json:"empty"`
		None  *int    `json:"none"`
		Map   any     `json:"map"`
		On    bool    `json:"on"`
	}{12345678901234567, []inner{
		{"box:gpu0", []string{"sh", "-c", "echo a: b"}, [][]int{{1, 2}, {}}},
		{Name: "2026-01-02T03:04:05Z"},
	}, []int{}, nil, map[string]any{"k": map[string]any{}}, true})
	const want = `z: 12345678901234567
a:
  - name: box:gpu0
    words:
      - sh
      - "-c"
      - "echo a: b"
    deep:
      -
        - 1
        - 2
      - []
  - name: "2026-01-02T03:04:05Z"
    words: null
empty: []
none: null
map:
  k: {}
"on": true
`
	if got != want {
		t.Fatalf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Whatever a label, a note or a command holds comes back as it was and moves
// no cursor.
func TestEncodedTextComesBackAndDrivesNoTerminal(t *testing.T) {
	check := func(t interface {
		Helper()
		Fatalf(string, ...any)
	}, s string) {
		t.Helper()
		in := map[string]any{"k": s, "l": []any{s, map[string]any{s: s}}}
		var b bytes.Buffer
		if err := Encode(&b, in); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if i := strings.IndexFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Fatalf("%q is written with %q in it", s, b.String()[i:i+1])
		}
		var out map[string]any
		if err := DecodeLoose("x", b.Bytes(), &out); err != nil || !reflect.DeepEqual(in, out) {
			t.Fatalf("%q is written as\n%s\nand read as %#v, error %v", s, &b, out, err)
		}
	}
	for _, s := range []string{
		"", " ", "~", "-", "- a", "a:", ":a", "a: b", "a #b", "#", "?", "? a", "yes", "No", "null", ".5", "0x10", "1e3", "1:30",
		"{", "[", "*a", "&a", "!a", "|", ">", "@a", "`a", "%a", "'a'", `"a"`, `a\b`, "a\tb", "\t", "a\nb", "\n", "a\r\nb", "x ", " x",
		"\x00", "\x1b[31mred", "a\u009b2J", "a\u202eb", "\u2028", "\x7f", "é", "😀", "\U000e0001", "<<", "=", "box:gpu0", "vram>=40G,rack=r3", "/a/b", "---", "...",
	} {
		check(t, s)
	}
	rapid.Check(t, func(t *rapid.T) {
		if s := rapid.String().Draw(t, "text"); utf8.ValidString(s) && !strings.ContainsRune(s, '\ufeff') {
			check(t, s)
		}
	})
}

func TestSetKeyLeavesTheRestOfTheFileAlone(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"replaced":    {"# mine\na: 1 # one\nk: old # note\nb:\n  k: x\n", "# mine\na: 1 # one\nk: new\nb:\n  k: x\n"},
		"added":       {"# mine\na: 1\n", "k: new\n# mine\na: 1\n"},
		"added below": {"# mine\n---\na: 1\n", "# mine\n---\nk: new\na: 1\n"},
		"empty":       {"", "k: new\n"},
		"no last end": {"a: 1\nk: old", "a: 1\nk: new\n"},
		"quoted":      {"\"k\": old\n", "k: new\n"},
	} {
		got, err := SetKey("f", []byte(c.in), "k", "new")
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, error %v", name, got, err)
		}
	}
}

func TestSetKeyRefusesWhatItWouldBreak(t *testing.T) {
	for name, in := range map[string]string{
		"flow":       "{a: 1, k: old}\n",
		"over lines": "k:\n  old\n",
		"no YAML":    "a: b\n  c: d\n",
		"a mapping":  "k:\n  x: 1\n",
	} {
		if got, err := SetKey("f", []byte(in), "k", "new"); err == nil {
			t.Errorf("%s: taken as %q", name, got)
		}
	}
}
