package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rcd/relay"
	"rcd/wire"
)

// output is a job's whole output, in pieces of alternating streams.
type output struct {
	pieces []relay.Record
	end    relay.End
}

// numbered makes output of n numbered lines, every third one on stderr.
func numbered(n int) (o output, stdout, stderr string) {
	var offset int64
	var text [2]strings.Builder
	for i := range n {
		line, stream, at := fmt.Sprintf("line %d\n", i), wire.StreamStdout, 0
		if i%3 == 2 {
			stream, at = wire.StreamStderr, 1
		}
		text[at].WriteString(line)
		o.pieces = append(o.pieces, relay.Data{Offset: offset, Stream: stream, Bytes: []byte(line)})
		offset += int64(len(line))
	}
	o.end = relay.End{Length: offset, StreamEnd: wire.StreamEnd{State: "succeeded", Complete: true}}
	return o, text[0].String(), text[1].String()
}

// cursor reads an output from an offset on, as fast as it can.
type cursor struct {
	out   output
	from  int64
	at    int
	every time.Duration // pause before each record
}

func (c *cursor) Next(ctx context.Context) (relay.Record, error) {
	if c.every > 0 {
		select {
		case <-time.After(c.every):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for ; c.at < len(c.out.pieces); c.at++ {
		end := int64(0)
		switch r := c.out.pieces[c.at].(type) {
		case relay.Data:
			end = r.Offset + int64(len(r.Bytes))
		case relay.Gap:
			end = r.To
		}
		if end > c.from {
			c.at++
			return c.out.pieces[c.at-1], nil
		}
	}
	return c.out.end, nil
}

// streamer is the handler of a node that serves an output. cut is how many
// bytes each link carries before it breaks, in turn; the last is repeated, and
// 0 means that it holds.
type streamer struct {
	out     output
	every   time.Duration
	cuts    []int
	links   atomic.Int32
	context func(ctx context.Context) (context.Context, context.CancelFunc)
	offsets chan int64 // of each link, if not nil
}

func (s *streamer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil {
		answerError(w, 400, wire.CodeBadRequest)
		return
	}
	conn, err := relay.Upgrade(w, r)
	if err != nil {
		answerError(w, 426, "upgrade_required")
		return
	}
	n := int(s.links.Add(1))
	if s.offsets != nil {
		s.offsets <- offset
	}
	if len(s.cuts) > 0 {
		if cut := s.cuts[min(n, len(s.cuts))-1]; cut > 0 {
			conn = &cutConn{Conn: conn, left: cut}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	if s.context != nil {
		ctx, cancel = s.context(ctx)
	}
	defer cancel()
	_ = relay.Send(ctx, conn, offset, &cursor{out: s.out, from: offset, every: s.every}, relay.SendOptions{})
}

// cutConn breaks once it has carried so many bytes.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.left])
	c.Conn.Close()
	return n, net.ErrClosed
}

func TestStreamResumesAtTheNextByteOnAnotherNode(t *testing.T) {
	for range 50 {
		cut := 1 + rand.IntN(20_000)
		t.Run(fmt.Sprint("cut at ", cut), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				out, wantOut, wantErr := numbered(3000)
				n.serve(t, "a:1", "c1", (&streamer{out: out, cuts: []int{cut}}).ServeHTTP)
				n.serve(t, "b:1", "c2", (&streamer{out: out}).ServeHTTP)
				c, seen := n.client(t, Options{})
				var stdout, stderr strings.Builder
				next, end, err := c.Stream(t.Context(), "j-1", StreamOptions{Stdout: &stdout, Stderr: &stderr})
				if err != nil || next != out.end.Length || end.Length != next || !end.Complete || end.State != "succeeded" {
					t.Fatalf("ended at %d of %d as %+v, error %v", next, out.end.Length, end, err)
				}
				if stdout.String() != wantOut || stderr.String() != wantErr {
					t.Fatal("output differs")
				}
				got := seen.all()
				if len(got) > 1 {
					t.Fatalf("notices %v, want at most one", got)
				}
				if len(got) == 1 && !strings.HasPrefix(got[0].String(), "lost contact with c1, resumed on c2 after ") {
					t.Fatalf("notice %q", got[0])
				}
			})
		})
	}
}

func TestStreamThroughManyCutsOfEveryNode(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, wantOut, wantErr := numbered(5000)
		for _, a := range []string{"a:1", "b:1", "c:1"} {
			n.serve(t, a, a, (&streamer{out: out, cuts: []int{777, 5000, 333}}).ServeHTTP)
		}
		c, _ := n.client(t, Options{})
		var stdout, stderr strings.Builder
		if _, _, err := c.Stream(t.Context(), "j-1", StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != wantOut || stderr.String() != wantErr {
			t.Fatal("output differs")
		}
	})
}

func TestStreamLeavesANodeThatFallsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, wantOut, _ := numbered(300)
		// A stopped process: the link stays, nothing more comes over it.
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			conn, err := relay.Upgrade(w, r)
			if err != nil {
				return
			}
			first := out.pieces[0].(relay.Data)
			_ = wire.WriteFrame(conn, wire.Frame{Type: wire.FrameData, Stream: first.Stream, Payload: first.Bytes})
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		})
		n.serve(t, "b:1", "c2", (&streamer{out: out}).ServeHTTP)
		c, seen := n.client(t, Options{})
		var stdout strings.Builder
		begun := time.Now()
		if _, _, err := c.Stream(t.Context(), "j-1", StreamOptions{Stdout: &stdout}); err != nil {
			t.Fatal(err)
		}
		within(t, begun, 5*time.Second+100*time.Millisecond)
		if stdout.String() != wantOut {
			t.Fatal("output differs")
		}
		got := seen.all()
		if len(got) != 1 || got[0].After < 5*time.Second {
			t.Fatalf("notices %v, want one that counts the silence", got)
		}
	})
}

func TestStreamSaysOnceThatTheLeaderChanged(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, wantOut, _ := numbered(300)
		s := &streamer{out: out, every: 10 * time.Millisecond}
		s.context = func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			if s.links.Load() <= 2 { // and once more before anything came
				time.AfterFunc(time.Second, func() { cancel(&relay.MovedError{}) })
			}
			return ctx, func() { cancel(nil) }
		}
		n.serve(t, "a:1", "c1", s.ServeHTTP)
		c, seen := n.client(t, Options{})
		var stdout strings.Builder
		if _, _, err := c.Stream(t.Context(), "j-1", StreamOptions{Stdout: &stdout}); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != wantOut {
			t.Fatal("output differs")
		}
		got := seen.all()
		if len(got) != 2 || !got[0].Moved || !strings.HasPrefix(got[0].String(), "the leader changed; output resumed through c1 after ") {
			t.Fatalf("notices %v, want one for each of the two changes", got)
		}
	})
}

func TestNodesThatCloseLinksAtOnceAreWorthOneNotice(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, _, _ := numbered(300)
		n.serve(t, "a:1", "c1", (&streamer{out: out, every: time.Millisecond, cuts: []int{1000, 1}}).ServeHTTP)
		n.serve(t, "b:1", "c2", (&streamer{out: out, cuts: []int{1, 1, 1, 1, 0}}).ServeHTTP)
		c, seen := n.client(t, Options{})
		if _, _, err := c.Stream(t.Context(), "j-1", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := seen.all(); len(got) != 1 {
			t.Fatalf("notices %v, want one", got)
		}
	})
}

func TestStreamGivesUpAfterThePatienceEvenIfNodesTakeLinks(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, _, _ := numbered(300)
		for _, a := range []string{"a:1", "b:1", "c:1"} {
			n.serve(t, a, a, (&streamer{out: out, cuts: []int{1}}).ServeHTTP)
		}
		c, _ := n.client(t, Options{LongPatience: time.Minute})
		begun := time.Now()
		_, _, err := c.Stream(t.Context(), "j-1", StreamOptions{})
		if !errors.Is(err, ErrUnreachable) {
			t.Fatalf("error %v, want ErrUnreachable", err)
		}
		within(t, begun, time.Minute+2*time.Second)
	})
}

func TestStreamWaitsOutAnOutageOfMinutes(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, wantOut, _ := numbered(300)
		n.serve(t, "a:1", "c1", (&streamer{out: out, cuts: []int{500}}).ServeHTTP)
		go func() {
			time.Sleep(50 * time.Millisecond)
			n.put("a:1", refuse)
			time.Sleep(4 * time.Minute)
			n.serve(t, "b:1", "c2", (&streamer{out: out}).ServeHTTP)
		}()
		// Dialled within the first 50 ms, so that the first redial finds nobody.
		c, seen := n.client(t, Options{Controllers: []string{"a:1", "b:1"}})
		var stdout strings.Builder
		s := &slowWriter{w: &stdout, pause: 100 * time.Millisecond}
		if _, _, err := c.Stream(t.Context(), "j-1", StreamOptions{Stdout: s}); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != wantOut {
			t.Fatal("output differs")
		}
		if got := seen.all(); len(got) != 2 || got[0].Kind != NoticeWaiting || got[1].Kind != NoticeResumed {
			t.Fatalf("notices %v, want one of waiting and one of resumption", got)
		}
	})
}

// slowWriter pauses before its first write.
type slowWriter struct {
	w     io.Writer
	pause time.Duration
}

func (s *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(s.pause)
	s.pause = 0
	return s.w.Write(p)
}

func TestStreamOfNoSuchJobIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var asked atomic.Int32
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			answerError(w, 404, wire.CodeNotFound)
		})
		c, _ := n.client(t, Options{})
		_, _, err := c.Stream(t.Context(), "j-404", StreamOptions{})
		wantCode(t, err, 404, wire.CodeNotFound)
		if !errors.Is(err, ErrNotFound) || asked.Load() != 1 {
			t.Fatalf("asked %d times, error %v", asked.Load(), err)
		}
	})
}

func TestStreamLooksFurtherWhileThereIsNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, wantOut, _ := numbered(30)
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeNoLeader) })
		n.serve(t, "b:1", "c2", (&streamer{out: out}).ServeHTTP)
		c, seen := n.client(t, Options{})
		var stdout strings.Builder
		if _, _, err := c.Stream(t.Context(), "j-1", StreamOptions{Stdout: &stdout}); err != nil || stdout.String() != wantOut {
			t.Fatalf("error %v", err)
		}
		if got := seen.all(); len(got) != 0 {
			t.Fatalf("notices %v before anything was lost", got)
		}
	})
}

func TestWriterErrorEndsTheStreamAndIsNotBlamedOnANode(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		out, _, _ := numbered(30)
		n.serve(t, "a:1", "c1", (&streamer{out: out}).ServeHTTP)
		c, _ := n.client(t, Options{})
		_, _, err := c.Stream(t.Context(), "j-1", StreamOptions{Stdout: brokenWriter{}})
		var output *OutputError
		if !errors.As(err, &output) || !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("error %v, want an OutputError", err)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLogsMarkGapsOnLinesOfTheirOwn(t *testing.T) {
	end := wire.StreamEnd{State: "failed", Reason: "the host is gone"}
	bubble(t, func(t *testing.T, n *network) {
		out := output{end: relay.End{Length: 1000, StreamEnd: end}, pieces: []relay.Record{
			relay.Data{Offset: 0, Stream: wire.StreamStdout, Bytes: []byte("half a li")},
			relay.Gap{From: 9, To: 990, Cause: "spool bound"},
			relay.Data{Offset: 990, Stream: wire.StreamStderr, Bytes: []byte("tail line\n")},
		}}
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("follow") != "false" {
				answerError(w, 400, wire.CodeBadRequest)
				return
			}
			(&streamer{out: out}).ServeHTTP(w, r)
		})
		c, _ := n.client(t, Options{})
		var text bytes.Buffer
		if err := c.Logs(t.Context(), "j-1", &text, false); err != nil {
			t.Fatal(err)
		}
		want := "half a li\n[rc: 981 bytes missing: spool bound]\ntail line\n[rc: bytes missing: the host is gone]\n"
		if text.String() != want {
			t.Fatalf("logs\n%q\nwant\n%q", text.String(), want)
		}
	})
}
