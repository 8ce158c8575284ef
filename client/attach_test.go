package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcd/relay"
	"rcd/wire"
)

// echoing is a job on a terminal that prints what is typed, behind any number
// of nodes, as its host sees it.
type echoing struct {
	t     *testing.T
	mu    sync.Mutex
	typed []byte // accepted
	more  chan struct{}
	over  bool
	turns uint64 // the writer's number
	size  wire.StreamResize
	asked []string // the queries of the requests for links

	cut   int // bytes of input after which each link breaks, 0: none does
	links int

	grants []uint32      // the windows of the first links and, the last of them, of all others; none: 0
	lag    time.Duration // how long an ack takes
	ahead  []int64       // for each link the most that was under way without an ack
}

// seat is one link, with what is granted and acked on it.
type seat struct {
	conn   net.Conn
	link   int
	writer uint64
	grant  uint32
	acked  int64 // guarded by the job's mutex
}

func (e *echoing) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.more)
	e.more = make(chan struct{})
}

// printed reads the output from an offset on.
type printed struct {
	job *echoing
	at  int
}

func (p *printed) Next(ctx context.Context) (relay.Record, error) {
	for {
		p.job.mu.Lock()
		rest, more, over := append([]byte(nil), p.job.typed[min(p.at, len(p.job.typed)):]...), p.job.more, p.job.over
		p.job.mu.Unlock()
		switch {
		case len(rest) > 0:
			d := relay.Data{Offset: int64(p.at), Stream: wire.StreamStdout, Bytes: rest}
			p.at += len(rest)
			return d, nil
		case over:
			return relay.End{Length: int64(p.at), StreamEnd: wire.StreamEnd{State: "succeeded", Complete: true}}, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (e *echoing) handler(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var from int
	_, _ = fmt.Sscan(q.Get("offset"), &from)
	conn, err := relay.Upgrade(w, r)
	if err != nil {
		e.t.Error(err)
		return
	}
	s := &seat{conn: conn}
	e.change(func() {
		if n := len(e.grants); n > 0 && q.Get("window") != "" {
			s.grant = e.grants[min(e.links, n-1)]
		}
		s.link, e.ahead = e.links, append(e.ahead, 0)
		e.links++
		e.asked = append(e.asked, r.URL.RawQuery)
		if _, _ = fmt.Sscan(q.Get("writer"), &s.writer); q.Get("take_over") == "true" {
			e.turns += 5
			s.writer = e.turns
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	options := relay.SendOptions{Input: func(frame wire.Frame) error { return e.take(s, frame) }}
	if s.writer > 0 {
		work.Go(func() { e.ack(ctx, s) })
	}
	_ = relay.Send(ctx, conn, int64(from), &printed{e, from}, options)
}

// ack says how far input is, as long as the link lives.
func (e *echoing) ack(ctx context.Context, s *seat) {
	for {
		e.mu.Lock()
		at, ack, more := int64(len(e.typed)), wire.StreamAck{Writer: e.turns, Window: s.grant}, e.more
		e.mu.Unlock()
		if pause(ctx, e.lag) != nil {
			return
		}
		e.mu.Lock()
		s.acked = at
		e.mu.Unlock()
		if wire.WriteFrame(s.conn, wire.AckFrame(wire.StreamStdin, at, ack)) != nil {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

func (e *echoing) take(s *seat, frame wire.Frame) error {
	broken := false
	e.change(func() {
		ahead := frame.Offset + int64(len(frame.Payload)) - s.acked
		e.ahead[s.link] = max(e.ahead[s.link], ahead)
		if ahead > max(wire.InputWindow, int64(s.grant)) {
			e.t.Errorf("%d bytes under way, and %d are granted", ahead, s.grant)
		}
		switch {
		case s.writer != e.turns:
		case frame.Type == wire.FrameResize:
			e.size, _ = frame.Resize()
		case frame.Type == wire.FrameEOF:
			e.over = true
		case frame.Offset > int64(len(e.typed)):
			e.t.Errorf("input at %d, and %d is next", frame.Offset, len(e.typed))
		default:
			known := int64(len(e.typed)) - frame.Offset
			before := len(e.typed)
			e.typed = append(e.typed, frame.Payload[min(known, int64(len(frame.Payload))):]...)
			broken = e.cut > 0 && before/e.cut != len(e.typed)/e.cut
		}
	})
	if broken {
		return errors.New("the link breaks")
	}
	return nil
}

// typist types text, a few bytes at a time.
func typist(text string, pace time.Duration) func(context.Context, []byte) (int, error) {
	return func(ctx context.Context, p []byte) (int, error) {
		if err := pause(ctx, pace); err != nil {
			return 0, err
		}
		if text == "" {
			return 0, io.EOF
		}
		n := copy(p[:min(len(p), 7)], text)
		text = text[n:]
		return n, nil
	}
}

func newEchoing(t *testing.T, n *network, nodes ...string) *echoing {
	e := &echoing{t: t, more: make(chan struct{})}
	for _, node := range nodes {
		n.serve(t, node+":1", node, e.handler)
	}
	return e
}

func keysOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()
}

func TestEachKeyReachesTheJobOnceThroughManyBrokenLinks(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		job := newEchoing(t, n, "a", "b", "c")
		job.cut = 900
		c, seen := n.client(t, Options{})
		keys := keysOf(3000)
		var out strings.Builder
		resized := make(chan struct{}, 1)
		resized <- struct{}{}
		next, end, err := c.Attach(t.Context(), "j-1", AttachOptions{
			Stdout: &out, In: typist(keys, 3*time.Millisecond), Submitter: "ann@box", Resized: resized,
			Size: func() (uint16, uint16, bool) { return 99, 33, true },
		})
		if err != nil || !end.Complete || next != int64(len(keys)) || out.String() != keys || string(job.typed) != keys {
			t.Errorf("typed %d of %d bytes, shown %d, end %+v, %v", len(job.typed), len(keys), out.Len(), end, err)
		}
		if job.links < 10 || len(seen.all()) == 0 || len(seen.all()) > job.links {
			t.Errorf("%d links, %d notices", job.links, len(seen.all()))
		}
		if job.size != (wire.StreamResize{Rows: 33, Cols: 99}) {
			t.Errorf("size %+v", job.size)
		}
		if first, last := job.asked[0], job.asked[len(job.asked)-1]; first != "offset=0&submitter=ann%40box&take_over=true&window=1048576" || !strings.HasSuffix(last, "&window=1048576&writer=5") {
			t.Errorf("asked %q first and %q last", first, last)
		}
	})
}

func TestOneWhoIsTakenOverLooksOn(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		job := newEchoing(t, n, "a")
		c, _ := n.client(t, Options{})
		var taken atomic.Int32
		var out strings.Builder
		time.AfterFunc(time.Second, func() { job.change(func() { job.turns += 5 }) })
		time.AfterFunc(time.Minute, func() { job.change(func() { job.typed = append(job.typed, "bye"...); job.over = true }) })
		_, end, err := c.Attach(t.Context(), "j-1", AttachOptions{
			Stdout: &out, In: typist(keysOf(3000), 10*time.Millisecond), TakenOver: func() { taken.Add(1) },
		})
		if err != nil || !end.Complete || taken.Load() != 1 || !strings.HasSuffix(out.String(), "bye") || out.String() != string(job.typed) {
			t.Errorf("told %d times, %d bytes of %d, %+v, %v", taken.Load(), out.Len(), len(job.typed), end, err)
		}
	})
}

func TestAWatcherAsksForNoInput(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		job := newEchoing(t, n, "a")
		job.typed, job.over = []byte("hello"), true
		c, _ := n.client(t, Options{})
		var out strings.Builder
		if _, _, err := c.Attach(t.Context(), "j-1", AttachOptions{Stdout: &out, From: 2}); err != nil || out.String() != "llo" {
			t.Errorf("%q, %v", out.String(), err)
		}
		if job.asked[0] != "offset=2" {
			t.Errorf("asked %q", job.asked)
		}
	})
}

func TestWhoeverTypesCanEndTheAttach(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		newEchoing(t, n, "a")
		c, _ := n.client(t, Options{})
		leave := errors.New("leave")
		_, _, err := c.Attach(t.Context(), "j-1", AttachOptions{In: func(ctx context.Context, _ []byte) (int, error) {
			return 0, errors.Join(leave, pause(ctx, time.Second))
		}})
		if !errors.Is(err, leave) {
			t.Error(err)
		}
	})
}

func TestAttachWaitsForAQueuedJob(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		job := &echoing{t: t, more: make(chan struct{}), typed: []byte("hi"), over: true}
		placed := time.Now().Add(time.Hour)
		n.serve(t, "a:1", "a", func(w http.ResponseWriter, r *http.Request) {
			switch queued := time.Now().Before(placed); {
			case strings.HasSuffix(r.URL.Path, "/attach") && queued:
				answerError(w, http.StatusConflict, wire.CodeNotPlaced)
			case strings.HasSuffix(r.URL.Path, "/attach"):
				job.handler(w, r)
			case queued:
				answerJSON(w, 200, wire.JobView{Job: wire.Job{ID: "j-1", State: "queued"}})
			default:
				answerJSON(w, 200, wire.JobView{Job: wire.Job{ID: "j-1", State: "running"}})
			}
		})
		c, _ := n.client(t, Options{Controllers: []string{"a:1"}})
		var out strings.Builder
		if _, end, err := c.Attach(t.Context(), "j-1", AttachOptions{Stdout: &out}); err != nil || !end.Complete || out.String() != "hi" {
			t.Errorf("%q, %+v, %v", out.String(), end, err)
		}
	})
}
