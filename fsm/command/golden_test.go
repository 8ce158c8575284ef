package command

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rcd/internal/codec"
	"rcd/model"
)

var update = flag.Bool("update", false, "write the golden file anew")

// fill sets every field of a body to a value of its own, so that a golden file
// shows each, and a field that is added later shows up as a failure. later: also
// the fields of later feature levels, which are left out while they are empty.
func fill(v reflect.Value, n *int, later bool) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n, later)
	case reflect.Struct:
		for i := range v.NumField() {
			if later || !isLater(v.Type().Field(i)) {
				fill(v.Field(i), n, later)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{byte(*n), 0xff})
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n, later)
		fill(v.Index(1), n, later)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"B", "A"} {
			v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(fmt.Sprint("v", *n)))
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int32, reflect.Int64:
		v.SetInt(int64(-*n % 100))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n % 200))
	default:
		panic(v.Kind().String())
	}
}

func isLater(f reflect.StructField) bool { return strings.HasSuffix(f.Tag.Get("cbor"), ",omitempty") }

// hasLater reports whether a body has fields of later feature levels.
func hasLater(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return hasLater(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if isLater(f) || hasLater(f.Type) {
				return true
			}
		}
	}
	return false
}

// kinds lists every kind that has a body.
func kinds() []Kind {
	var all []Kind
	for k := range Kind(1000) {
		if newBody(k) != nil {
			all = append(all, k)
		}
	}
	return all
}

func golden(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	row := func(name string, data []byte) { fmt.Fprintf(&out, "%s %s\n", name, hex.EncodeToString(data)) }
	request := Request{Scope: "ann", ID: "k-1", Digest: []byte{1, 2}, Strict: true}
	var all [][]byte
	for _, k := range kinds() {
		body := newBody(k)
		empty, err := Encode(Request{}, body)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		fill(reflect.ValueOf(body).Elem(), &n, false)
		full, err := Encode(request, body)
		if err != nil {
			t.Fatal(err)
		}
		row(k.String()+" empty", empty)
		row(k.String()+" full", full)
		all = append(all, empty, full)
	}
	entry, err := EncodeEntry(7, 1_790_000_000_000_000_001, all)
	if err != nil {
		t.Fatal(err)
	}
	row("entry", entry)
	for _, k := range kinds() {
		body := newBody(k)
		if !hasLater(reflect.TypeOf(body)) {
			continue
		}
		n := 0
		fill(reflect.ValueOf(body).Elem(), &n, true)
		full, err := Encode(request, body)
		if err != nil {
			t.Fatal(err)
		}
		row(k.String()+" full at level 2", full)
	}
	return out.String()
}

// TestEncodingsAreFrozen: what is in logs must stay readable, and what is
// written must stay readable to nodes of this version.
func TestEncodingsAreFrozen(t *testing.T) {
	path := filepath.Join("testdata", "commands.txt")
	got := golden(t)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("line %d of %s differs; an encoding is append-only", i+1, path)
		}
	}
}

func TestEveryCommandComesBackAsItWas(t *testing.T) {
	request := Request{Scope: "ann", ID: "k-1", Digest: []byte{1, 2}, Strict: true}
	for _, k := range kinds() {
		body := newBody(k)
		n := 0
		fill(reflect.ValueOf(body).Elem(), &n, true)
		data, err := Encode(request, body)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		if c.Kind != k || !reflect.DeepEqual(c.Request, request) || !reflect.DeepEqual(c.Body, body) {
			t.Errorf("%s came back as %+v", k, c)
		}
		if strings.HasPrefix(k.String(), "kind-") {
			t.Errorf("kind %d has no name", k)
		}
	}
}

func TestWhatCannotBeDecodedHalts(t *testing.T) {
	good, err := Encode(Request{}, &JobKill{Job: 1})
	if err != nil {
		t.Fatal(err)
	}
	seal := func(kind uint16, version uint8, flags uint8, body []byte) []byte {
		return codec.Seal(codec.Header{Kind: kind, Version: version, Flags: flags}, body)
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, ErrUndecodable},
		{"cut", good[:len(good)-1], ErrUndecodable},
		{"not a frame", seal(uint16(KindJobKill), 1, codec.FlagMandatory, []byte{0x01}), ErrUndecodable},
		{"unknown field", seal(uint16(KindJobKill), 1, codec.FlagMandatory, []byte{0xa1, 0x02, 0xa1, 0x18, 0x63, 0x01}), ErrUndecodable},
		{"unknown kind", seal(999, 1, codec.FlagMandatory, []byte{0xa0}), ErrUnknownKind},
		{"unknown version", seal(uint16(KindJobKill), 2, codec.FlagMandatory, []byte{0xa0}), ErrUnknownKind},
	} {
		if _, err := Decode(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if c, err := Decode(seal(999, 1, 0, []byte{0xa0})); err != nil || !c.Skip || c.Body != nil {
		t.Errorf("an unknown optional kind: %+v, %v", c, err)
	}
}

func TestACommandHasABound(t *testing.T) {
	body := &JobEnqueue{Jobs: []JobSpec{{Command: []string{strings.Repeat("x", MaxCommandBytes)}}}}
	if _, err := Encode(Request{}, body); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	if _, err := Encode(Request{}, model.Job{}); err == nil {
		t.Error("a body without a kind was encoded")
	}
}
