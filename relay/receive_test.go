package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

// receiveFrom gives Receive the frames and then whatever after does.
func receiveFrom(ctx context.Context, from int64, frames []wire.Frame, after func(net.Conn)) (int64, End, error, *deck) {
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		go func() { // take the acks
			buf := make([]byte, 64)
			for {
				if _, err := far.Read(buf); err != nil {
					return
				}
			}
		}()
		for _, f := range frames {
			if wire.WriteFrame(far, f) != nil {
				break
			}
		}
		after(far)
	}()
	sink := &deck{next: from}
	next, end, err := Receive(ctx, near, from, sink)
	<-done
	far.Close()
	return next, end, err, sink
}

func data(offset int64, text string) wire.Frame {
	return wire.Frame{Type: wire.FrameData, Stream: wire.StreamStdout, Offset: offset, Payload: []byte(text)}
}

func gap(from, to int64) wire.Frame {
	return wire.GapFrame(from, wire.StreamGap{To: to, Cause: "gone"})
}

func end(length int64) wire.Frame {
	return wire.EndFrame(length, wire.StreamEnd{State: "succeeded", Complete: true})
}

func TestReceiveTakesOnlyTheNextOffset(t *testing.T) {
	hangUp := func(c net.Conn) { c.Close() }
	for _, c := range []struct {
		name   string
		from   int64
		frames []wire.Frame
		next   int64
		err    error
		took   string
	}{
		{"in order", 0, []wire.Frame{data(0, "ab"), data(2, "c"), end(3)}, 3, nil, "0ab 2c end3"},
		{"begun early", 1, []wire.Frame{data(0, "abc"), end(3)}, 3, nil, "1bc end3"},
		{"repeated", 0, []wire.Frame{data(0, "ab"), data(0, "ab"), data(1, "bc"), end(3)}, 3, nil, "0ab 2c end3"},
		{"all before", 5, []wire.Frame{data(0, "ab"), data(2, "cde"), end(5)}, 5, nil, "end5"},
		{"gap", 0, []wire.Frame{data(0, "a"), gap(1, 9), data(9, "b"), end(10)}, 10, nil, "0a gap1-9 9b end10"},
		{"gap begun early", 4, []wire.Frame{gap(0, 9), end(9)}, 9, nil, "gap4-9 end9"},
		{"gap repeated", 9, []wire.Frame{gap(0, 9), data(9, "x"), end(10)}, 10, nil, "9x end10"},
		{"keepalive", 0, []wire.Frame{{Type: wire.FrameKeepAlive}, end(0)}, 0, nil, "end0"},
		{"hole", 0, []wire.Frame{data(0, "ab"), data(3, "d")}, 2, ErrProtocol, "0ab"},
		{"gap after a hole", 0, []wire.Frame{data(0, "ab"), gap(3, 4)}, 2, ErrProtocol, "0ab"},
		{"end too early", 0, []wire.Frame{data(0, "ab"), end(1)}, 2, ErrProtocol, "0ab"},
		{"end too late", 0, []wire.Frame{data(0, "ab"), end(3)}, 2, ErrProtocol, "0ab"},
		{"end before what was had", 5, []wire.Frame{end(4)}, 5, ErrProtocol, ""},
		{"input from a sender", 0, []wire.Frame{{Type: wire.FrameEOF, Stream: wire.StreamStdin}}, 0, ErrProtocol, ""},
		{"empty gap", 0, []wire.Frame{gap(0, 0)}, 0, ErrProtocol, ""},
		{"hung up", 0, []wire.Frame{data(0, "ab")}, 2, ErrLinkLost, "0ab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next, ended, err, sink := receiveFrom(t.Context(), c.from, c.frames, hangUp)
				if next != c.next || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || (err == nil && !ended.Complete) {
					t.Errorf("got %d, %+v, %v, want %d, %v", next, ended, err, c.next, c.err)
				}
				if sink.err != nil {
					t.Error(sink.err)
				}
				took := ""
				for i, r := range sink.records {
					if i > 0 {
						took += " "
					}
					switch r := r.(type) {
					case Data:
						took += fmt.Sprintf("%d%s", r.Offset, r.Bytes)
					case Gap:
						took += fmt.Sprintf("gap%d-%d", r.From, r.To)
					case End:
						took += fmt.Sprintf("end%d", r.Length)
					}
				}
				if took != c.took {
					t.Errorf("took %q, want %q", took, c.took)
				}
			})
		})
	}
}

func TestReceiveNoticesASilentPeerInFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, _, err, _ := receiveFrom(t.Context(), 0, []wire.Frame{data(0, "ab")}, func(net.Conn) { time.Sleep(time.Minute) })
		if !errors.Is(err, ErrPeerSilent) || next != 2 {
			t.Fatalf("%d, %v", next, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		began := time.Now()
		if _, _, err := Receive(t.Context(), near, 0, &deck{}); !errors.Is(err, ErrPeerSilent) || time.Since(began) != senderSilence {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
	})
}

// A large frame on a thin line takes minutes, and is not silence.
func TestReceiveIsPatientWithATrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			buf := make([]byte, 64)
			for {
				if _, err := far.Read(buf); err != nil {
					return
				}
			}
		}()
		go func() {
			whole, _ := wire.AppendFrame(nil, data(0, "a frame as long as a very slow line can make it"))
			whole, _ = wire.AppendFrame(whole, end(47))
			for i := range whole {
				time.Sleep(4 * time.Second)
				_, _ = far.Write(whole[i : i+1])
			}
		}()
		if next, _, err := Receive(t.Context(), near, 0, &deck{}); err != nil || next != 47 {
			t.Fatalf("%d, %v", next, err)
		}
	})
}

func TestReceiveReturnsWhatTheOtherSideSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, err, _ := receiveFrom(t.Context(), 0, []wire.Frame{wire.ErrorFrame(wire.StreamError{Code: "c", Message: "m"})}, func(net.Conn) {})
		var failure *wire.StreamError
		if !errors.As(err, &failure) || *failure != (wire.StreamError{Code: "c", Message: "m"}) {
			t.Errorf("error: %v", err)
		}
		_, _, err, _ = receiveFrom(t.Context(), 0, []wire.Frame{wire.MovedFrame(wire.StreamMoved{Hint: "h"})}, func(net.Conn) {})
		var moved *MovedError
		if !errors.As(err, &moved) || moved.Hint != "h" {
			t.Errorf("moved: %v", err)
		}
	})
}

func TestReceiveRefusesWhatIsNoFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, err, _ := receiveFrom(t.Context(), 0, nil, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 502 Bad Gateway\r\n\r\n")) })
		if !errors.Is(err, ErrProtocol) || !errors.Is(err, wire.ErrFrameVersion) {
			t.Fatal(err)
		}
	})
}

func TestOpenReachesTheOtherSideAndIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			offset, open, err := Asked(far)
			if err != nil || offset != 77 || open != (wire.StreamOpen{Job: "j-9", Follow: true}) {
				t.Errorf("asked for %d, %+v, %v", offset, open, err)
			}
			if err := Refuse(far, wire.StreamError{Code: "not_found", Message: "no job j-9 on this host"}); err != nil {
				t.Error(err)
			}
		}()
		if err := Ask(near, 77, wire.StreamOpen{Job: "j-9", Follow: true}); err != nil {
			t.Fatal(err)
		}
		_, _, err := Receive(t.Context(), near, 77, &deck{})
		var failure *wire.StreamError
		if !errors.As(err, &failure) || failure.Code != "not_found" {
			t.Fatal(err)
		}
	})
}

func TestOpenWaitsForNobodyForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		began := time.Now()
		if _, _, err := Asked(far); err == nil || time.Since(began) != openWithin {
			t.Errorf("asked: %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if err := Ask(near, 0, wire.StreamOpen{Job: "j-1"}); err == nil || time.Since(began) != openWithin {
			t.Errorf("ask: %v after %v", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		go func() { _, _ = wire.ReadFrame(near, nil) }() // and never closes
		began := time.Now()
		if err := Refuse(far, wire.StreamError{Code: "c"}); err != nil || time.Since(began) != partingGrace {
			t.Errorf("refuse: %v after %v", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go func() { _ = wire.WriteFrame(near, data(0, "x")); near.Close() }()
		if _, _, err := Asked(far); !errors.Is(err, ErrProtocol) {
			t.Errorf("data before any open: %v", err)
		}
	})
}
