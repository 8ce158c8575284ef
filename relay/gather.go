package relay

import (
	"context"
	"fmt"
	"time"
)

// Output is coalesced so that a job that prints byte by byte does not cost a
// system call, a frame and a wake-up on every hop for each of them (DESIGN
// section 7). A lone line after a pause is not delayed at all.
const (
	coalesceBytes = 32 << 10
	coalesceFor   = 5 * time.Millisecond
)

// gather reads a source ahead by one record and joins small data. It owns a
// goroutine, so that a source may block while the sender keeps the link alive,
// and need not be able to be interrupted without loss. Stop it when done.
type gather struct {
	pulls  chan pull
	taken  chan struct{} // one token for each pulled record whose bytes are free again
	ended  chan struct{}
	cancel context.CancelFunc

	at      cursor
	held    Record // pulled and admitted, not yet handed out in full
	failure error  // how the source ended, once nothing more comes
	joined  Data   // data being joined, or handed out last
	handed  bool   // joined was handed out
	lastOut time.Time
	timer   *time.Timer
}

type pull struct {
	record Record
	err    error
}

// newGather starts to read source, which was opened at from.
func newGather(ctx context.Context, source Source, from int64) *gather {
	ctx, cancel := context.WithCancel(ctx)
	g := &gather{
		pulls:  make(chan pull),
		taken:  make(chan struct{}, 1),
		ended:  make(chan struct{}),
		cancel: cancel,
		at:     cursor{next: from},
		timer:  time.NewTimer(coalesceFor),
	}
	go g.run(ctx, source)
	return g
}

func (g *gather) run(ctx context.Context, source Source) {
	defer close(g.ended)
	for {
		record, err := source.Next(ctx)
		select {
		case g.pulls <- pull{record, err}:
		case <-ctx.Done():
			return
		}
		if _, isEnd := record.(End); isEnd || err != nil {
			return
		}
		select {
		case <-g.taken:
		case <-ctx.Done():
			return
		}
	}
}

// stop ends the goroutine and waits for it.
func (g *gather) stop() {
	g.timer.Stop()
	g.cancel()
	<-g.ended
}

// next returns the next record, trimmed to the offset that is due and with
// small data joined; its bytes are valid until next is called again. It returns
// nil if none has come by the time idle, and an error when ctx ends or, after
// everything that the source gave, when the source has failed.
func (g *gather) next(ctx context.Context, idle time.Time) (Record, error) {
	if g.handed {
		// Counted from here, after the write of what was handed out: a slow
		// reader gets larger pieces, not more of them.
		g.handed, g.lastOut = false, time.Now()
		g.joined.Bytes = g.joined.Bytes[:0]
	}
	for {
		switch held := g.held.(type) {
		case Data:
			if g.join(held); g.held != nil {
				return g.hand(), nil
			}
		case Gap, End:
			if len(g.joined.Bytes) > 0 {
				return g.hand(), nil
			}
			g.release()
			return held, nil
		}
		due := g.lastOut.Add(coalesceFor)
		if len(g.joined.Bytes) > 0 && (g.failure != nil || !time.Now().Before(due)) {
			return g.hand(), nil
		}
		if g.failure != nil {
			return nil, g.failure
		}
		if len(g.joined.Bytes) == 0 {
			due = idle
		}
		g.timer.Reset(time.Until(due))
		select {
		case p := <-g.pulls:
			g.hold(p)
		case <-g.timer.C:
			if len(g.joined.Bytes) == 0 {
				return nil, nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// hold keeps the part of what was pulled that is due.
func (g *gather) hold(p pull) {
	if p.err != nil {
		g.failure = p.err
		return
	}
	record, err := g.at.admit(p.record)
	switch {
	case err != nil:
		g.failure = fmt.Errorf("source: %w", err)
	case record == nil:
		g.release()
	default:
		g.held = record
		g.at.advance(record)
	}
}

// join appends as much of data as belongs to what has been joined so far, and
// keeps the rest as held.
func (g *gather) join(data Data) {
	if len(g.joined.Bytes) == 0 {
		g.joined.Offset, g.joined.Stream = data.Offset, data.Stream
	} else if g.joined.Stream != data.Stream {
		return
	}
	n := min(len(data.Bytes), coalesceBytes-len(g.joined.Bytes))
	g.joined.Bytes = append(g.joined.Bytes, data.Bytes[:n]...)
	if n == len(data.Bytes) {
		g.release()
		return
	}
	g.held = Data{Offset: data.Offset + int64(n), Stream: data.Stream, Bytes: data.Bytes[n:]}
}

func (g *gather) hand() Record {
	g.handed = true
	return g.joined
}

// release lets the source go on; what it returned last is no longer used.
func (g *gather) release() {
	g.held = nil
	g.taken <- struct{}{}
}
