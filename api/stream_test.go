package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rcd/fsm/command"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

const submitShell = `{"submitter":"ann@box","device_id":"box:gpu1","command":["sh"]}`

func (c *cluster) running() uint64 {
	c.nodes["c1"].submit(submitShell)
	number := uint64(c.jobCount())
	c.start(number)
	return number
}

func TestLogsBeginAtTheirOffset(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.running()
		c.spool(n).print("one\ntwo\n")
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("GET", "/v1/jobs/j-1/logs?follow=false&offset=4", clientToken, "")
			if raw != "two\n" || resp.Header.Get(wire.HeaderLogOffset) != "4" || resp.Header.Get(wire.HeaderLeader) != "c1" {
				t.Fatalf("%q %v", raw, resp.Header)
			}
		}
		c.finish(n, command.EndExited, 0, "")
		for _, asked := range []string{"c1", "c2"} {
			if _, raw := c.nodes[asked].do("GET", "/v1/jobs/j-1/logs?offset=8", clientToken, ""); raw != "" {
				t.Fatalf("%q", raw)
			}
			for _, offset := range []string{"9", "-1", "x", "+1", "99999999999999999999"} {
				resp, raw := c.nodes[asked].do("GET", "/v1/jobs/j-1/logs?offset="+offset, clientToken, "")
				wantError(t, resp, raw, 400, "bad_request")
			}
		}
	})
}

// Followed output comes as it is printed, and ends when the job has ended.
func TestFollowedLogsComeAsTheyArePrinted(t *testing.T) {
	for _, asked := range []string{"c1", "c2"} {
		inBubble(t, func(t *testing.T, c *cluster) {
			n := c.running()
			resp, err := c.nodes[asked].try(t.Context(), "GET", "/v1/jobs/j-1/logs", clientToken, "")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			for _, line := range []string{"a\n", "b\n", "c\n"} {
				time.Sleep(time.Minute) // a silent job is no fault
				c.spool(n).print(line)
				got := make([]byte, len(line))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != line {
					t.Fatalf("%q %v", got, err)
				}
			}
			c.finish(n, command.EndExited, 0, "")
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
				t.Fatalf("%q %v", rest, err)
			}
		})
	}
}

func TestGapIsALineOfItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.running()
		c.spool(n).print(strings.Repeat("x", 100) + "rest")
		c.spool(n).change(func() { c.outputs[n].lost = 100 })
		c.finish(n, command.EndExited, 0, "")
		if _, raw := c.nodes["c2"].do("GET", "/v1/jobs/j-1/logs", clientToken, ""); raw != "[rc: 100 bytes missing: over its bound]\nrest" {
			t.Fatalf("%q", raw)
		}
	})
}

// A plain read waits 10 s for what an ended job's host does not give, then
// says that it is not whole. One that follows waits.
func TestPlainReadMarksItselfIncomplete(t *testing.T) {
	for _, asked := range []string{"c1", "c2"} {
		inBubble(t, func(t *testing.T, c *cluster) {
			n := c.running()
			c.spool(n).print("some output")
			c.finish(n, command.EndExited, 0, "")
			c.spool(n).goAway()
			began := time.Now()
			_, raw := c.nodes[asked].do("GET", "/v1/jobs/j-1/logs?follow=false&offset=5", clientToken, "")
			if raw != "[rc: 6 bytes missing: the host of the job does not give it now, ask again later]\n" || time.Since(began) != restWithin {
				t.Fatalf("%q after %v", raw, time.Since(began))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			resp, err := c.nodes[asked].try(ctx, "GET", "/v1/jobs/j-1/logs", clientToken, "")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(resp.Body); len(got) != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%q %v", got, err)
			}
			resp.Body.Close()
			synctest.Wait()
		})
	}
}

// An end that is not the stated one is told, once: by the gap that covers it,
// else by a line of its own.
func TestIncompleteEndIsToldOnce(t *testing.T) {
	for _, known := range []bool{true, false} {
		for _, follow := range []string{"true", "false"} {
			inBubble(t, func(t *testing.T, c *cluster) {
				n := c.running()
				if known {
					c.spool(n).print("0123456789")
					c.spool(n).change(func() { c.outputs[n].lost = 10 })
				}
				c.spool(n).change(func() { c.outputs[n].partial = "host box is gone" })
				time.AfterFunc(time.Second, func() {
					code := int32(0)
					length := uint64(len(c.spool(n).all()))
					c.must(&command.JobFinish{JobRef: c.ref(n), Host: "box", Instance: "agent-1", ExitCode: &code, OutputKnown: known, OutputLength: length})
					c.spool(n).end()
				})
				if follow == "false" {
					time.Sleep(2 * time.Second)
				}
				want := "[rc: an unknown number of bytes missing: host box is gone]\n"
				if known {
					want = "[rc: 10 bytes missing: over its bound]\n"
				}
				if _, raw := c.nodes["c2"].do("GET", "/v1/jobs/j-1/logs?follow="+follow, clientToken, ""); raw != want {
					t.Fatalf("%v %s: %q", known, follow, raw)
				}
			})
		}
	}
}

// A raw answer that breaks off must not look whole.
func TestLogsBreakOffVisiblyWhenTheLeaderIsLost(t *testing.T) {
	for _, asked := range []string{"c1", "c2"} {
		inBubble(t, func(t *testing.T, c *cluster) {
			n := c.running()
			c.spool(n).print("before\n")
			resp, err := c.nodes[asked].try(t.Context(), "GET", "/v1/jobs/j-1/logs", clientToken, "")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			time.AfterFunc(time.Second, func() { c.lead("c3") })
			began := time.Now()
			got, err := io.ReadAll(resp.Body)
			if string(got) != "before\n" || err == nil || time.Since(began) != time.Second {
				t.Fatalf("%q %v after %v", got, err, time.Since(began))
			}
		})
	}
}

// A leader that takes a request for output and never answers is not waited for
// beyond the deadline.
func TestSilentLeaderDoesNotHoldAReader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.running()
		thawed := make(chan struct{})
		defer close(thawed)
		frozen := func() error { <-thawed; return raftnode.ErrNotLeader }
		c.nodes["c1"].read.Store(&frozen)
		began := time.Now()
		resp, raw := c.nodes["c2"].do("GET", "/v1/jobs/j-1/logs", clientToken, "")
		wantError(t, resp, raw, 503, "no_leader")
		if took := time.Since(began); took != requestDeadline {
			t.Fatalf("after %v", took)
		}
	})
}

// dialStream opens the framed route on a node.
func (n *node) dialStream(ctx context.Context, path string) (net.Conn, *http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+n.api.name+path, nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+clientToken)
	return relay.DialUpgrade(ctx, r, func(ctx context.Context, _, _ string) (net.Conn, error) { return n.api.dial(ctx) })
}

// A framed stream ends with what the job ended with, on every node; when the
// leader changes it breaks off and goes on at its offset.
func TestStreamGoesOnAtItsOffset(t *testing.T) {
	for _, asked := range []string{"c1", "c2", "c3"} {
		t.Run(asked, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				n := c.running()
				c.spool(n).print("one ")
				var got strings.Builder
				sink := relay.SinkFunc(func(_ context.Context, record relay.Record) error {
					if d, ok := record.(relay.Data); ok {
						got.Write(d.Bytes)
					}
					return nil
				})
				open := func(offset string) net.Conn {
					conn, resp, err := c.nodes[asked].dialStream(t.Context(), "/v1/jobs/j-1/stream?offset="+offset)
					if err != nil {
						t.Fatal(err)
					}
					if resp.Header.Get(wire.HeaderNode) != asked || resp.Header.Get(wire.HeaderLogOffset) != offset || resp.Header.Get(wire.HeaderLeader) == "" {
						t.Fatalf("%v", resp.Header)
					}
					return conn
				}
				change := time.AfterFunc(time.Minute, func() { c.lead("c3") })
				defer change.Stop()
				began := time.Now()
				next, _, err := relay.Receive(t.Context(), open("0"), 0, sink)
				if err == nil || next != 4 || time.Since(began) > time.Minute+time.Second {
					t.Fatalf("at %d: %v after %v", next, err, time.Since(began))
				}
				time.AfterFunc(time.Minute, func() {
					c.spool(n).print("two")
					c.finish(n, command.EndExited, 0, "")
				})
				next, end, err := relay.Receive(t.Context(), open("4"), 4, sink)
				if err != nil || next != 7 || !end.Complete || got.String() != "one two" {
					t.Fatalf("%q at %d: %+v %v", got.String(), next, end, err)
				}
			})
		})
	}
}

// A leader that falls silent behind a follower costs a stream 10 s at most,
// and a client that vanishes leaves nothing running (the bubble would hang).
func TestSplicedStreamIsClearedUp(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		near, client := net.Pipe()
		far, leader := net.Pipe()
		began := time.Now()
		go io.Copy(io.Discard, client)
		splice(t.Context(), near, far)
		if took := time.Since(began); took != spliceSilence {
			t.Fatalf("after %v", took)
		}
		if _, err := leader.Write([]byte("x")); err == nil {
			t.Fatal("the leader's end is open")
		}
		n := c.running()
		c.spool(n).print("some")
		conn, _, err := c.nodes["c2"].dialStream(t.Context(), "/v1/jobs/j-1/stream")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		synctest.Wait()
		time.Sleep(clientSilence)
	})
}

// A reader that holds back for longer than any silence allowed keeps its place
// behind a follower, because it shows that it is there.
func TestSplicedReaderIsHeldBackNotDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		n := c.running()
		text := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		c.spool(n).print(text)
		c.finish(n, command.EndExited, 0, "")
		conn, _, err := c.nodes["c2"].dialStream(t.Context(), "/v1/jobs/j-1/stream")
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		next, end, err := relay.Receive(t.Context(), conn, 0, relay.SinkFunc(func(_ context.Context, record relay.Record) error {
			if d, ok := record.(relay.Data); ok {
				if got.Len() == 0 {
					time.Sleep(3 * time.Minute)
				}
				got.Write(d.Bytes)
			}
			return nil
		}))
		if err != nil || next != int64(len(text)) || !end.Complete || got.String() != text {
			t.Fatalf("%d bytes at %d: %+v %v", got.Len(), next, end, err)
		}
	})
}

func TestStreamRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.running()
		c.nodes["c1"].submit(`{"submitter":"ann@box","device_id":"box:gpu0","command":["sh"],"stdio":"tty"}`)
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("GET", "/v1/jobs/j-1/stream", clientToken, "")
			wantError(t, resp, raw, 426, "bad_request")
			for path, code := range map[string]string{
				"/v1/jobs/j-9/stream":          "not_found",
				"/v1/jobs/j-2/stream":          "logs_not_stored",
				"/v1/jobs/j-1/stream?offset=x": "bad_request",
				"/v1/jobs/j/stream":            "ambiguous_id",
			} {
				_, resp, err := c.nodes[asked].dialStream(t.Context(), path)
				if !errors.Is(err, relay.ErrNotUpgraded) {
					t.Fatalf("%s: %v", path, err)
				}
				raw, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if e := decode[wire.Error](t, string(raw)); e.Code != code {
					t.Fatalf("%s: %s", path, raw)
				}
			}
		}
	})
}
