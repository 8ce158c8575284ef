package relay

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Copy writes the records of source, which was opened at offset from, to w as
// plain bytes: stdout and stderr as one, in the order of their offsets, and a
// gap as the line
//
//	[rc: N bytes missing: CAUSE]
//
// which begins on a line of its own. Small data is joined as in Send; flush, if
// not nil, is called after each write, so that nothing waits in buffers of w's.
//
// It returns the End, whose Complete says whether this was all of the output,
// or the error of source, of w or flush (wrapped in a *SinkError), or the cause
// with which ctx ended. It cannot interrupt a write: deadlines are w's matter.
// When Copy returns nothing of it or of source runs any more.
func Copy(ctx context.Context, w io.Writer, from int64, source Source, flush func() error) (End, error) {
	g := newGather(ctx, source, from)
	defer g.stop()
	lineStart := true
	for {
		record, err := g.next(ctx, time.Now().Add(time.Hour))
		if err != nil {
			return End{}, err
		}
		var text []byte
		switch r := record.(type) {
		case nil:
			continue
		case End:
			return r, nil
		case Data:
			text = r.Bytes
		case Gap:
			if !lineStart {
				text = []byte("\n")
			}
			text = fmt.Appendf(text, "[rc: %d bytes missing: %s]\n", r.To-r.From, strings.Join(strings.Fields(r.Cause), " "))
		}
		lineStart = text[len(text)-1] == '\n'
		if _, err := w.Write(text); err != nil {
			return End{}, &SinkError{Err: err}
		}
		if flush == nil {
			continue
		}
		if err := flush(); err != nil {
			return End{}, &SinkError{Err: err}
		}
	}
}
