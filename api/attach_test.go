package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

const submitTerminal = `{"submitter":"ann@box","device_id":"box:gpu0","command":["sh"],"stdio":"tty"}`

// Attach is an agent's side that gives back what is typed.
func (n *node) Attach(ctx context.Context, job *model.Job, offset int64, open wire.StreamOpen) (net.Conn, error) {
	switch {
	case !n.Leader().Self:
		return nil, raftnode.ErrNotLeader
	case n.detached.Load():
		return nil, ErrHostAway
	}
	here, there := net.Pipe()
	go func() {
		echo := relay.NewConduit(0)
		at, from := int64(0), offset
		ack := func() {
			_ = wire.WriteFrame(there, wire.AckFrame(wire.StreamStdin, at, wire.StreamAck{Writer: 7, Window: open.Window}))
		}
		options := relay.SendOptions{}
		if open.TakeOver || open.Writer == 7 {
			go ack()
			options.Input = func(frame wire.Frame) error {
				if frame.Type != wire.FrameInput {
					return nil
				}
				at = frame.Offset + int64(len(frame.Payload))
				record := relay.Data{Offset: from, Stream: wire.StreamStdout, Bytes: frame.Payload}
				from += int64(len(frame.Payload))
				if string(frame.Payload) == "\x04" {
					return echo.Take(ctx, relay.End{Length: from - 1, StreamEnd: wire.StreamEnd{State: "succeeded", Complete: true}})
				}
				ack()
				return echo.Take(context.Background(), record)
			}
		}
		_ = relay.Send(context.Background(), there, offset, echo, options)
	}()
	return here, nil
}

func TestWhatIsTypedReachesTheJobThroughAnyNode(t *testing.T) {
	for _, asked := range []string{"c1", "c2"} {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.nodes["c1"].submit(submitTerminal)
			c.start(1)
			conn, resp, err := c.nodes[asked].dialStream(t.Context(), "/v1/jobs/j-1/attach?take_over=true&window=300000&offset=5&submitter="+url.QueryEscape("ann@box"))
			if err != nil {
				t.Fatal(err)
			}
			if resp.Header.Get(wire.HeaderNode) != asked || resp.Header.Get(wire.HeaderLogOffset) != "5" {
				t.Errorf("%v", resp.Header)
			}
			keys := make(chan int64, 9)
			var got strings.Builder
			go func() {
				at := int64(0)
				for _, key := range []string{"l", "s", "\r", "\x04"} {
					at = <-keys
					_ = wire.WriteFrame(conn, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Offset: at, Payload: []byte(key)})
				}
			}()
			once := func(context.Context, int64) (relay.Conn, error) { return conn, nil }
			next, end, err := relay.Follow(t.Context(), once, 5, relay.SinkFunc(func(_ context.Context, record relay.Record) error {
				if d, ok := record.(relay.Data); ok {
					got.Write(d.Bytes)
				}
				return nil
			}), relay.FollowOptions{Input: func(frame wire.Frame) {
				if ack, err := frame.Ack(); err == nil && ack == (wire.StreamAck{Writer: 7, Window: 300_000}) {
					keys <- frame.Offset
				}
			}})
			if err != nil || next != 8 || !end.Complete || got.String() != "ls\r" {
				t.Errorf("%q to %d, %+v, %v", got.String(), next, end, err)
			}
		})
	}
}

func TestAttachRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.running()
		c.nodes["c1"].submit(submitTerminal)
		c.nodes["c1"].submit(submitTerminal)
		c.start(2)
		for _, asked := range []string{"c1", "c2"} {
			resp, raw := c.nodes[asked].do("GET", "/v1/jobs/j-2/attach", clientToken, "")
			wantError(t, resp, raw, 426, "bad_request")
			for path, want := range map[string]struct {
				status int
				code   string
			}{
				"j-9/attach":                              {404, wire.CodeNotFound},
				"j-1/attach":                              {400, wire.CodeNotAttachable},
				"j-3/attach":                              {409, wire.CodeNotPlaced},
				"j-2/attach?offset=x":                     {400, wire.CodeBadRequest},
				"j-2/attach?writer=-1":                    {400, wire.CodeBadRequest},
				"j-2/attach?window=-1":                    {400, wire.CodeBadRequest},
				"j-2/attach?window=4294967296":            {400, wire.CodeBadRequest},
				"j-2/attach?writer=3&take_over=true":      {400, wire.CodeBadRequest},
				"j-2/attach?take_over=true":               {403, string(command.NotJobOwner)},
				"j-2/attach?writer=3&submitter=bob%40box": {403, string(command.NotJobOwner)},
			} {
				_, resp, err := c.nodes[asked].dialStream(t.Context(), "/v1/jobs/"+path)
				if !errors.Is(err, relay.ErrNotUpgraded) {
					t.Fatalf("%s: %v", path, err)
				}
				raw, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if e := decode[wire.Error](t, string(raw)); e.Code != want.code || resp.StatusCode != want.status {
					t.Errorf("%s at %s: %d %s", path, asked, resp.StatusCode, raw)
				}
			}
		}
		for path, code := range map[string]string{"j-9": wire.CodeNotFound, "j-1": wire.CodeNotAttachable} {
			resp, raw := c.nodes["c2"].do("GET", "/v1/jobs/"+path+"/tty/out", clientToken, "")
			wantError(t, resp, raw, map[string]int{"j-9": 404, "j-1": 400}[path], code)
			resp, raw = c.nodes["c2"].do("POST", "/v1/jobs/"+path+"/tty/in", clientToken, "")
			wantError(t, resp, raw, map[string]int{"j-9": 404, "j-1": 400}[path], code)
		}
		for _, n := range c.nodes {
			n.detached.Store(true)
		}
		_, resp, err := c.nodes["c2"].dialStream(t.Context(), "/v1/jobs/j-2/attach")
		if !errors.Is(err, relay.ErrNotUpgraded) || resp.StatusCode != 503 {
			t.Fatalf("host away: %v", err)
		}
		resp.Body.Close()
		c.finish(2, command.EndExited, 0, "")
		conn, _, err := c.nodes["c2"].dialStream(t.Context(), "/v1/jobs/j-2/attach?offset=9")
		if err != nil {
			t.Fatal(err)
		}
		_, end, err := relay.Receive(t.Context(), conn, 9, relay.SinkFunc(func(context.Context, relay.Record) error { return nil }))
		if err != nil || end.Complete || !strings.Contains(end.Reason, "out of reach") {
			t.Errorf("after its end, its host away: %+v %v", end, err)
		}
	})
}
