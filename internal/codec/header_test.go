package codec

import (
	"bytes"
	"errors"
	"testing"
)

func TestSealedRecordOpensAsItWas(t *testing.T) {
	for _, h := range []Header{{}, {Version: 255, Kind: 65535, Flags: FlagMandatory}, {Version: 1, Kind: 0x0102}} {
		for _, body := range [][]byte{{}, {1}, bytes.Repeat([]byte{7}, 1000)} {
			got, back, err := Open(Seal(h, body))
			if err != nil || got != h || !bytes.Equal(back, body) {
				t.Fatalf("%+v: got %+v, %d bytes, %v", h, got, len(back), err)
			}
			if got.Mandatory() != (h.Flags == FlagMandatory) {
				t.Fatalf("%+v: mandatory %v", h, got.Mandatory())
			}
		}
	}
}

func TestOpenRefusesWhatSealNeverWrote(t *testing.T) {
	good := Seal(Header{Version: 1, Kind: 2}, nil)
	for n := range good {
		if _, _, err := Open(good[:n]); !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	magic := bytes.Clone(good)
	magic[0] = 0xC0
	flags := bytes.Clone(good)
	flags[4] = 0x80
	for _, data := range [][]byte{magic, flags} {
		if _, _, err := Open(data); !errors.Is(err, ErrFormat) {
			t.Errorf("%x: %v", data, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Seal wrote a flag without a meaning")
		}
	}()
	Seal(Header{Flags: 2}, nil)
}

func FuzzOpen(f *testing.F) {
	f.Add(Seal(Header{Version: 1, Kind: 2, Flags: 1}, []byte("body")))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, body, err := Open(data)
		if err != nil {
			return
		}
		if again := Seal(h, body); !bytes.Equal(again, data) {
			t.Fatalf("%x\n%x", data, again)
		}
	})
}
