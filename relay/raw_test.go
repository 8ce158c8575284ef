package relay

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

func TestCopyWritesBothStreamsInOrderAndNamesGaps(t *testing.T) {
	ended := End{Length: 30, StreamEnd: wire.StreamEnd{State: "succeeded", Complete: true}}
	for _, c := range []struct {
		name  string
		from  int64
		steps []step
		want  string
	}{
		{"streams", 0, []step{{record: line(0, 1, "out 1\n")}, {record: line(6, 2, "err 1\n")}, {record: line(12, 1, "out 2 and what\nfol")}}, "out 1\nerr 1\nout 2 and what\nfol"},
		{"gap after a line", 0, []step{{record: line(0, 1, "one\n")}, {record: Gap{From: 4, To: 30, Cause: "spool bound"}}}, "one\n[rc: 26 bytes missing: spool bound]\n"},
		{"gap inside a line", 0, []step{{record: line(0, 1, "on")}, {record: Gap{From: 2, To: 25, Cause: "host lost"}}, {record: line(25, 1, "line\n")}}, "on\n[rc: 23 bytes missing: host lost]\nline\n"},
		{"gap at the start", 0, []step{{record: Gap{From: 0, To: 10, Cause: "c"}}, {record: Gap{From: 10, To: 30, Cause: "d\ne"}}}, "[rc: 10 bytes missing: c]\n[rc: 20 bytes missing: d e]\n"},
		{"from the middle of a record", 3, []step{{record: line(0, 1, "hidden and then what is left!!")}}, "den and then what is left!!"},
		{"from the middle of a gap", 3, []step{{record: Gap{From: 0, To: 30, Cause: "c"}}}, "[rc: 27 bytes missing: c]\n"},
		{"from the end", 30, []step{{record: line(25, 1, "last\n")}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				end, err := Copy(t.Context(), &out, c.from, &scripted{append(c.steps, step{record: ended})}, nil)
				if err != nil || end != ended || out.String() != c.want {
					t.Errorf("got %q, %+v, %v\nwant %q", out.String(), end, err, c.want)
				}
			})
		})
	}
}

func TestCopyFlushesWhatItWroteWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		began, flushes := time.Now(), 0
		source := &scripted{[]step{{record: line(0, 1, "now\n")}, {after: 24 * time.Hour, record: End{Length: 4}}}}
		_, err := Copy(t.Context(), &out, 0, source, func() error {
			flushes++
			if out.String() != "now\n" || time.Since(began) != 0 {
				t.Errorf("flushed %q after %v", out.String(), time.Since(began))
			}
			return nil
		})
		if err != nil || flushes != 1 {
			t.Errorf("%v, %d flushes", err, flushes)
		}
	})
}

func TestCopyEndsWithItsWriterItsSourceAndItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := newTape(rand.New(rand.NewPCG(31, 31)), 100)
		recorded.pause = func(int) time.Duration { return time.Second }
		broken := errors.New("broken")
		var failed *SinkError
		if _, err := Copy(t.Context(), failingWriter{broken}, 0, recorded.open(0), nil); !errors.As(err, &failed) || !errors.Is(err, broken) {
			t.Errorf("writer: %v", err)
		}
		if _, err := Copy(t.Context(), &bytes.Buffer{}, 0, recorded.open(0), func() error { return broken }); !errors.As(err, &failed) {
			t.Errorf("flush: %v", err)
		}
		if _, err := Copy(t.Context(), &bytes.Buffer{}, 0, &scripted{[]step{{err: broken}}}, nil); err != broken {
			t.Errorf("source: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := Copy(ctx, &bytes.Buffer{}, 0, recorded.open(0), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("context: %v", err)
		}
	})
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
