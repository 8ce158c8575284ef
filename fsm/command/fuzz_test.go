package command

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"rcd/internal/codec"
)

// seeds are every kind, empty and full, with no, one and two request IDs.
func seeds(f *testing.F) (all [][]byte) {
	f.Helper()
	one := Request{Scope: "ann", ID: "k", Digest: []byte{1, 2}, Strict: true}
	for _, k := range kinds() {
		for i, also := range []Request{{}, {Scope: "ann", ID: "body"}} {
			body := newBody(k)
			if n := 0; i > 0 {
				fill(reflect.ValueOf(body).Elem(), &n, true)
			}
			data, err := EncodeBoth(one, also, body)
			if err != nil {
				f.Fatal(err)
			}
			all = append(all, data)
		}
	}
	return all
}

// FuzzDecode: no bytes make it panic, and whatever it takes has one form: it
// encodes to bytes that decode to an equal command and encode to themselves.
// The bytes it came in may be others. A field that they lack is zero, or no log
// of an older build could be read, and a number may be longer than it needs to
// be; what a machine makes of it follows from the command, never from the bytes.
func FuzzDecode(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
		f.Add(append(codec.Seal(codec.Header{Kind: uint16(data[3]), Version: 1}, nil), 0xa0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrUndecodable) && !errors.Is(err, ErrUnknownKind) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if c.Skip {
			return
		}
		again, err := EncodeBoth(c.Request, c.Also, c.Body)
		if err != nil {
			if errors.Is(err, ErrTooLarge) && len(data) > MaxCommandBytes/2 {
				return // fields that were left out are written now
			}
			t.Fatal(err)
		}
		d, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := EncodeBoth(d.Request, d.Also, d.Body)
		if err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("%x became %x (%v)", again, twice, err)
		}
		if d.Kind != c.Kind || !reflect.DeepEqual(d.Body, c.Body) && !bytes.Equal(codec.MustMarshal(d.Body), codec.MustMarshal(c.Body)) {
			t.Fatalf("%+v became %+v", c.Body, d.Body)
		}
	})
}

// TestWhatWasEncodedHasThatForm: the bytes of our own commands are the form.
func TestWhatWasEncodedHasThatForm(t *testing.T) {
	for _, k := range kinds() {
		for full := range 2 {
			body := newBody(k)
			if n := 0; full > 0 {
				fill(reflect.ValueOf(body).Elem(), &n, true)
			}
			data, err := EncodeBoth(Request{ID: "a"}, Request{ID: "b"}, body)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := EncodeBoth(c.Request, c.Also, c.Body); err != nil || !bytes.Equal(again, data) {
				t.Errorf("%s: %x became %x (%v)", k, data, again, err)
			}
		}
	}
}

// FuzzDecodeEntry: the same for the envelope.
func FuzzDecodeEntry(f *testing.F) {
	all := seeds(f)
	for i, commands := range [][][]byte{nil, {nil}, all[:1], all[:7], all} {
		data, err := EncodeEntry(uint64(i), int64(i)-2, commands)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			if !errors.Is(err, ErrUndecodable) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		again, err := EncodeEntry(e.Term, e.Stamp, e.Commands)
		if err != nil {
			t.Fatal(err)
		}
		d, err := DecodeEntry(again)
		if err != nil || d.Term != e.Term || d.Stamp != e.Stamp || len(d.Commands) != len(e.Commands) {
			t.Fatalf("%+v became %+v (%v)", e, d, err)
		}
		for i := range d.Commands {
			if !bytes.Equal(d.Commands[i], e.Commands[i]) {
				t.Fatalf("command %d became %x", i, d.Commands[i])
			}
		}
		if twice, err := EncodeEntry(d.Term, d.Stamp, d.Commands); err != nil || !bytes.Equal(twice, again) {
			t.Fatalf("%x became %x (%v)", again, twice, err)
		}
	})
}
