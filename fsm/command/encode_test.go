package command

import (
	"errors"
	"strings"
	"testing"

	"rcd/internal/codec"
)

// TestWhatEncodesDecodes: bytes in the log that no node can decode halt every
// node for good, so Encode must refuse whatever Decode would.
func TestWhatEncodesDecodes(t *testing.T) {
	many := make(map[string]string, codec.MaxMapPairs+1)
	for i := range codec.MaxMapPairs + 1 {
		many[strings.Repeat("x", i%7)+string(rune(0x4e00+i%20000))+strings.Repeat("y", i/20000)] = ""
	}
	for name, c := range map[string]struct {
		request Request
		body    any
	}{
		"an argument list above the bound": {body: &JobEnqueue{Jobs: []JobSpec{{Command: make([]string, codec.MaxArrayElements+1)}}}},
		"an environment above the bound":   {body: &JobEnqueue{Jobs: []JobSpec{{Env: many}}}},
		"a request ID that is not UTF-8":   {request: Request{Scope: "a", ID: "\xff"}, body: &DeviceClear{Device: "d"}},
		"a device that is not UTF-8":       {body: &DeviceClear{Device: "gpu\xff"}},
		"a node that is not UTF-8":         {body: &EpochBegin{Node: "c\xff"}},
	} {
		if _, err := Encode(c.request, c.body); !errors.Is(err, ErrUnencodable) {
			t.Errorf("%s: %v, want ErrUnencodable", name, err)
		}
	}
}

func TestBothRequestIDsComeBack(t *testing.T) {
	header, field := Request{Scope: "s", ID: "h:1", Strict: true}, Request{Scope: "s", ID: "k:2"}
	for name, ids := range map[string][2]Request{"both": {header, field}, "one": {header, {}}, "only the second": {{}, field}, "none": {}} {
		raw, err := EncodeBoth(ids[0], ids[1], &DeviceClear{Device: "d"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		want := ids
		if want[0].ID == "" {
			want[0], want[1] = want[1], Request{}
		}
		if c.Request.ID != want[0].ID || c.Also.ID != want[1].ID || c.Request.Strict != want[0].Strict {
			t.Errorf("%s: %+v and %+v came back", name, c.Request, c.Also)
		}
	}
}
