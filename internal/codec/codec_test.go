package codec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

type inner struct {
	Name string `cbor:"1,keyasint"`
	N    int64  `cbor:"2,keyasint,omitempty"`
}

type sample struct {
	ID     string            `cbor:"id"`
	Count  uint64            `cbor:"count"`
	Delta  int64             `cbor:"delta"`
	On     bool              `cbor:"on"`
	List   []string          `cbor:"list"`
	Blob   []byte            `cbor:"blob"`
	Labels map[string]string `cbor:"labels"`
	Inner  *inner            `cbor:"inner"`
	Raw    RawMessage        `cbor:"raw,omitempty"`
}

func full() sample {
	return sample{
		ID: "j-48213", Count: math.MaxUint64, Delta: math.MinInt64, On: true,
		List: []string{"b", "a"}, Blob: []byte{0, 255},
		Labels: map[string]string{"z": "1", "aa": "2", "b": "3"},
		Inner:  &inner{Name: "é", N: -1}, Raw: RawMessage{0x01},
	}
}

// The bytes below are on disks: a change of either is a change of the format.
func TestEncodingIsFrozen(t *testing.T) {
	for _, c := range []struct {
		name string
		v    any
		want string
	}{
		{"full", full(), "a9" +
			"626964" + "676a2d3438323133" +
			"626f6e" + "f5" +
			"63726177" + "01" +
			"64626c6f62" + "4200ff" +
			"646c697374" + "82" + "6162" + "6161" +
			"65636f756e74" + "1bffffffffffffffff" +
			"6564656c7461" + "3b7fffffffffffffff" +
			"65696e6e6572" + "a2" + "01" + "62c3a9" + "02" + "20" +
			"666c6162656c73" + "a3" + "6162" + "6133" + "617a" + "6131" + "626161" + "6132"},
		{"zero", sample{}, "a8" + "626964" + "60" + "626f6e" + "f4" + "64626c6f62" + "40" + "646c697374" + "80" +
			"65636f756e74" + "00" + "6564656c7461" + "00" + "65696e6e6572" + "f6" + "666c6162656c73" + "a0"},
		{"float", 1.5, "f93e00"},
		{"sealed", RawMessage(Seal(Header{Version: 2, Kind: 0x0103, Flags: FlagMandatory}, []byte{0xf6})), "c10201" + "0301f6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.v
			if raw, ok := got.(RawMessage); ok {
				if hex.EncodeToString(raw) != c.want {
					t.Fatalf("got  %x\nwant %s", []byte(raw), c.want)
				}
				return
			}
			data := MustMarshal(got)
			if hex.EncodeToString(data) != c.want {
				t.Fatalf("got  %x\nwant %s", data, c.want)
			}
		})
	}
}

func TestEqualValuesGiveEqualBytes(t *testing.T) {
	a := MustMarshal(sample{})
	b := MustMarshal(sample{List: []string{}, Blob: []byte{}, Labels: map[string]string{}})
	if !bytes.Equal(a, b) {
		t.Fatalf("nil containers %x\nempty ones     %x", a, b)
	}
	first := MustMarshal(full())
	for range 50 { // map order is random per iteration
		if again := MustMarshal(full()); !bytes.Equal(first, again) {
			t.Fatalf("%x\n%x", first, again)
		}
	}
}

func TestRoundTripKeepsTheBytes(t *testing.T) {
	for _, v := range []sample{{}, full()} {
		data := MustMarshal(v)
		var back sample
		if err := Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if again := MustMarshal(back); !bytes.Equal(data, again) {
			t.Fatalf("%x\n%x", data, again)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("81", n) + "00" }
	for _, c := range []struct {
		name, data string
		into       func() any
	}{
		{"an unknown key", "a1" + "627878" + "00", func() any { return new(sample) }},
		{"a key in another case", "a1" + "624944" + "6161", func() any { return new(sample) }},
		{"an unknown integer key", "a1" + "03" + "00", func() any { return new(inner) }},
		{"a duplicate key", "a2" + "626964" + "6161" + "626964" + "6162", func() any { return new(sample) }},
		{"a duplicate key in a map", "a2" + "6161" + "6161" + "6161" + "6162", func() any { return new(map[string]string) }},
		{"trailing bytes", "0000", func() any { return new(int) }},
		{"nothing", "", func() any { return new(int) }},
		{"a short value", "6261", func() any { return new(string) }},
		{"an indefinite array", "9f00ff", func() any { return new([]int) }},
		{"an indefinite string", "7f6161ff", func() any { return new(string) }},
		{"a tag", "c100", func() any { return new(any) }},
		{"a bignum", "c24101", func() any { return new(any) }},
		{"invalid UTF-8", "62c328", func() any { return new(string) }},
		{"undefined", "f7", func() any { return new(any) }},
		{"NaN", "f97e00", func() any { return new(float64) }},
		{"infinity", "f97c00", func() any { return new(float64) }},
		{"an overflow", "190100", func() any { return new(uint8) }},
		{"a negative number for an unsigned", "20", func() any { return new(uint64) }},
		{"a byte string for a text", "4161", func() any { return new(string) }},
		{"deep nesting", nested(MaxNesting + 1), func() any { return new(any) }},
		{"a huge array", "9a" + "00020001", func() any { return new(any) }},
		{"a huge map", "ba" + "00010001", func() any { return new(any) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := hex.DecodeString(c.data)
			if err != nil {
				t.Fatal(err)
			}
			v := c.into()
			if err := Unmarshal(data, v); err == nil {
				t.Fatalf("accepted %s as %#v", c.data, v)
			}
		})
	}
	ok, _ := hex.DecodeString(nested(MaxNesting))
	if err := Unmarshal(ok, new(any)); err != nil {
		t.Fatalf("%d levels: %v", MaxNesting, err)
	}
}

// The size bounds must be what stops a value, not a lack of bytes.
func TestBoundsHoldAtTheirEdge(t *testing.T) {
	var array []byte
	array = append(array, 0x9a, 0, 2, 0, 0)
	array = append(array, make([]byte, MaxArrayElements)...)
	if err := Unmarshal(array, new([]uint8)); err != nil {
		t.Fatalf("%d elements: %v", MaxArrayElements, err)
	}
	array[4]++
	array = append(array, 0)
	var tooMany *cbor.MaxArrayElementsError
	if err := Unmarshal(array, new([]uint8)); !errors.As(err, &tooMany) {
		t.Fatalf("%d elements: %v", MaxArrayElements+1, err)
	}

	pairs := make(map[uint32]bool, MaxMapPairs+1)
	for i := range uint32(MaxMapPairs) {
		pairs[i] = true
	}
	if err := Unmarshal(MustMarshal(pairs), new(map[uint32]bool)); err != nil {
		t.Fatalf("%d pairs: %v", MaxMapPairs, err)
	}
	pairs[MaxMapPairs] = true
	var tooWide *cbor.MaxMapPairsError
	if err := Unmarshal(MustMarshal(pairs), new(map[uint32]bool)); !errors.As(err, &tooWide) {
		t.Fatalf("%d pairs: %v", MaxMapPairs+1, err)
	}
}

func TestUnmarshalCopies(t *testing.T) {
	data := MustMarshal(full())
	var v sample
	if err := Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if !bytes.Equal(MustMarshal(v), MustMarshal(full())) {
		t.Fatal("the decoded value refers to the input")
	}
}

func TestMarshalRefuses(t *testing.T) {
	for _, v := range []any{math.NaN(), math.Inf(1), make(chan int), cbor.Tag{Number: 1, Content: 1}} {
		if data, err := Marshal(v); err == nil {
			t.Errorf("%T %v encoded as %x", v, v, data)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustMarshal returned")
		}
	}()
	MustMarshal(time.After)
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(MustMarshal(full()))
	f.Add(MustMarshal(sample{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v sample
		if Unmarshal(data, &v) != nil {
			return
		}
		first := MustMarshal(v)
		var back sample
		if err := Unmarshal(first, &back); err != nil {
			t.Fatalf("own encoding %x refused: %v", first, err)
		}
		if second := MustMarshal(back); !bytes.Equal(first, second) {
			t.Fatalf("not stable:\n%x\n%x", first, second)
		}
	})
}
