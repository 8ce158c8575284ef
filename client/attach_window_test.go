package client

import (
	"context"
	"io"
	"testing"
	"time"

	"rcd/wire"
)

// bulk returns an In that gives out text, as much at once as it can.
func bulk(text string) func(context.Context, []byte) (int, error) {
	return func(_ context.Context, p []byte) (int, error) {
		n := copy(p, text)
		if text = text[n:]; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

// TestBulkInputFillsTheWindowOfEachLinkAndNoMore: what an earlier link has let
// in is said again on the next as that allows, an agent of an earlier release
// among them, and nothing is lost or comes twice.
func TestBulkInputFillsTheWindowOfEachLinkAndNoMore(t *testing.T) {
	const most = wire.MaxInputWindow
	for name, tt := range map[string]struct {
		grants []uint32
		want   []int64 // what is under way at the most, by link
		all    bool    // the window of the first link holds all of it
	}{
		"granted":                      {[]uint32{most}, []int64{most, most}, false},
		"granted on some links":        {[]uint32{most, 0, 300_000, 0, most}, []int64{most, wire.InputWindow, 300_000, wire.InputWindow, most}, false},
		"of an agent that grants none": {nil, []int64{wire.InputWindow, wire.InputWindow}, false},
		"less than the usual":          {[]uint32{5}, []int64{wire.InputWindow, wire.InputWindow}, false},
		"none when all is read":        {[]uint32{most, 0}, []int64{5 * inputPiece, wire.InputWindow}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				job := newEchoing(t, n, "a", "b", "c")
				job.grants, job.lag, job.cut = tt.grants, 20*time.Millisecond, 2_500_000
				text := keysOf(2_000_000)
				if tt.all {
					text, job.cut = text[:most-leastRoom], 5*inputPiece
				}
				c, _ := n.client(t, Options{})
				_, end, err := c.Attach(t.Context(), "j-1", AttachOptions{Stdout: io.Discard, In: bulk(text), Submitter: "ann@box"})
				if err != nil || !end.Complete || string(job.typed) != text {
					t.Fatalf("typed %d of %d bytes, or other ones: %+v, %v", len(job.typed), len(text), end, err)
				}
				for link, want := range tt.want {
					// A frame of which a part is left may not go out.
					if got := job.ahead[link]; got > want || got < want-inputPiece && want > inputPiece || got < leastRoom {
						t.Errorf("link %d of %d: %d bytes were under way, want up to %d", link, len(job.ahead), got, want)
					}
				}
			})
		})
	}
}
