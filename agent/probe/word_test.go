package probe

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
)

var declared = []string{"gpu", "gpu.0", "gpu1"}

func TestWhatCountsOfAProbesOutput(t *testing.T) {
	long := strings.Repeat("x", MaxLabel+1)
	for _, tt := range []struct {
		name, output string
		want         Word
		dropped      []string // parts, in order
	}{
		{"nothing known", " {} \n", Word{}, nil},
		{"kinds of values", `{"s":"a b","t":true,"f":false,"e":"","n":null}`, Word{"s": "a b", "t": "true", "f": "false", "e": ""}, nil},
		{"numbers as they are written", `{"a":9007199254740993,"b":1.50,"c":-0,"d":1E400}`,
			Word{"a": "9007199254740993", "b": "1.50", "c": "-0", "d": "1E400"}, nil},
		{"blanks around values", "{\n \"a\" :\t 7 ,\n\"b\":  \"x\"}", Word{"a": "7", "b": "x"}, nil},
		{"the later of two equal keys", `{"a":"1","a":"2"}`, Word{"a": "2"}, nil},
		{"nested values are left out", `{"a":{"b":1},"c":[1],"d":"kept"}`, Word{"d": "kept"}, []string{`"a" (nested)`, `"c" (nested)`}},
		{"keys of declared", `{"gpu.x":1,"gpu.0.x":2,"gpu1.x.y":3}`, Word{"gpu.x": "1", "gpu.0.x": "2", "gpu1.x.y": "3"}, nil},
		{"a key of no device", `{"gpu9.x":1,"a.b":2,".x":3,"ok":4}`, Word{"ok": "4"}, []string{`".x"`, `"a.b"`, `"gpu9.x"`}},
		{"a key of nothing", `{"":1,"gpu1.":2}`, Word{}, []string{`"" (a key`, `"gpu1." (a key`}},
		{"too long", `{"` + long + `":1,"v":"` + long + `","ok":2}`, Word{"ok": "2"}, []string{`"v" (a value`, `"xxx`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			facts, dropped, err := Parse([]byte(tt.output), declared)
			if err != nil || !maps.Equal(facts, tt.want) || len(dropped) != len(tt.dropped) {
				t.Fatalf("%v, dropped %q, %v", facts, dropped, err)
			}
			for i, part := range tt.dropped {
				if !strings.HasPrefix(dropped[i], part) {
					t.Errorf("dropped %q, want %q", dropped[i], part)
				}
			}
		})
	}
}

func TestOutputThatIsNotOneFlatObjectIsAFailure(t *testing.T) {
	for _, output := range []string{"", "  \n", "null", "[1]", `"text"`, "{", `{"a":1} {"b":2}`, `{"a":1}x`, `{"a":1,}`, "{\"a\":\"\xff\"}", `{'a':1}`, `{"a":01}`} {
		if facts, _, err := Parse([]byte(output), declared); err == nil {
			t.Errorf("%q counts as %v", output, facts)
		}
	}
}

func TestTheLongestDeclaredNameIsTheDevice(t *testing.T) {
	for key, want := range map[string]string{"x": "/x", "gpu.x": "gpu/x", "gpu.0": "gpu/0", "gpu.0.x": "gpu.0/x", "gpu.01.x": "gpu/01.x", "gpu1.a.b": "gpu1/a.b"} {
		if device, label, known := deviceOf(key, declared); !known || device+"/"+label != want {
			t.Errorf("%s: %q %q %v, want %s", key, device, label, known, want)
		}
	}
	if _, _, known := deviceOf("gpu2.x", declared); known {
		t.Error("a device that is not declared")
	}
}

func TestLaterFilesOverwriteAndADevicesOwnWordCounts(t *testing.T) {
	d := &Dropins{Devices: declared, Words: map[string]Word{
		"10-a": {"zone": "a", "rack": "r1", "gpu1.zone": "mine", "gone1.x": "was declared once"},
		"20-b": {"zone": "b", "gpu1.fan": "3"},
	}}
	want := map[string]map[string]string{"": {"zone": "b", "rack": "r1"}, "gpu1": {"zone": "mine", "fan": "3"}}
	if got := d.Labels(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":1,"gpu.0.x":"y","n":null,"o":{}}`))
	f.Fuzz(func(t *testing.T, output []byte) {
		facts, dropped, err := Parse(output, declared)
		if err != nil && (facts != nil || dropped != nil) {
			t.Error("a failure with facts")
		}
		for key, value := range facts {
			if _, label, known := deviceOf(key, declared); !known || label == "" || len(label) > MaxLabel || len(value) > MaxLabel {
				t.Error(fmt.Sprintf("%q: %q", key, value))
			}
		}
	})
}
