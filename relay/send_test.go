package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

// arrival is a frame and when it came.
type arrival struct {
	wire.Frame
	at time.Duration
}

// listen reads frames as a reader that keeps the link alive, until it ends.
func listen(conn net.Conn) []arrival {
	began := time.Now()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-time.After(keepAliveEvery):
				if wire.WriteFrame(conn, wire.Frame{Type: wire.FrameKeepAlive}) != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	var got []arrival
	for {
		f, err := wire.ReadFrame(conn, nil)
		if err != nil {
			break
		}
		got = append(got, arrival{f, time.Since(began)})
		if f.Type == wire.FrameEnd || f.Type == wire.FrameMoved || f.Type == wire.FrameError {
			break
		}
	}
	close(stop)
	conn.Close()
	<-done
	return got
}

// scripted is a Source that plays steps.
type scripted struct {
	steps []step
}

type step struct {
	after  time.Duration
	record Record
	err    error
}

func (s *scripted) Next(ctx context.Context) (Record, error) {
	if len(s.steps) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	next := s.steps[0]
	if next.after > 0 && !sleep(ctx, next.after) {
		return nil, ctx.Err()
	}
	s.steps = s.steps[1:]
	return next.record, next.err
}

func line(offset int64, stream wire.Stream, text string) Record {
	return Data{Offset: offset, Stream: stream, Bytes: []byte(text)}
}

// sendTo runs Send against a listener and returns both their results.
func sendTo(ctx context.Context, source Source, opts SendOptions) ([]arrival, error) {
	near, far := net.Pipe()
	sent := make(chan error, 1)
	go func() { sent <- Send(ctx, far, 0, source, opts) }()
	got := listen(near)
	return got, <-sent
}

func TestSendDoesNotDelayALoneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := sendTo(t.Context(), &scripted{[]step{
			{record: line(0, 1, "one\n")},
			{after: 300 * time.Millisecond, record: line(4, 1, "two\n")},
			{after: 300 * time.Millisecond, record: End{Length: 8}},
		}}, SendOptions{})
		if err != nil || len(got) != 3 {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, want := range []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond} {
			if got[i].at != want {
				t.Errorf("frame %d came at %v, want %v", i, got[i].at, want)
			}
		}
	})
}

func TestSendJoinsABurstAndKeepsStreamsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []step
		var want bytes.Buffer
		for i := range 5000 {
			text := fmt.Sprintf("line %05d\n", i)
			steps = append(steps, step{record: line(int64(want.Len()), 1, text)})
			want.WriteString(text)
		}
		steps = append(steps, step{record: line(int64(want.Len()), 2, "oops\n")})
		steps = append(steps, step{record: line(int64(want.Len()+5), 1, "bye\n")})
		steps = append(steps, step{record: Gap{From: int64(want.Len() + 9), To: 99999, Cause: "bound"}})
		steps = append(steps, step{record: End{Length: 99999}})
		got, err := sendTo(t.Context(), &scripted{steps}, SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		var tail []string
		for _, f := range got {
			if len(f.Payload) > coalesceBytes {
				t.Errorf("a frame of %d bytes", len(f.Payload))
			}
			if f.Type == wire.FrameData && f.Stream == wire.StreamStdout && stdout.Len() < want.Len() {
				stdout.Write(f.Payload)
				continue
			}
			tail = append(tail, fmt.Sprintf("%s %d %d", f.Type, f.Stream, f.Offset))
		}
		if !bytes.Equal(stdout.Bytes(), want.Bytes()) {
			t.Error("the lines are not what was sent")
		}
		n := int64(want.Len())
		wantTail := fmt.Sprint([]string{fmt.Sprintf("data 2 %d", n), fmt.Sprintf("data 1 %d", n+5), fmt.Sprintf("gap 0 %d", n+9), "end 0 99999"})
		if fmt.Sprint(tail) != wantTail {
			t.Errorf("then came %v, want %v", tail, wantTail)
		}
		if len(got) > 4+2+want.Len()/coalesceBytes {
			t.Errorf("%d frames for %d bytes", len(got), want.Len())
		}
	})
}

func TestSendHoldsDataForAtMostFiveMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []step
		for i := range 1000 { // a byte each millisecond
			steps = append(steps, step{after: time.Millisecond, record: line(int64(i), 1, "x")})
		}
		steps = append(steps, step{record: End{Length: 1000}})
		got, err := sendTo(t.Context(), &scripted{steps}, SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got {
			if f.Type != wire.FrameData {
				continue
			}
			// The byte at offset n was there at n+1 ms.
			if late := f.at - time.Duration(f.Offset+1)*time.Millisecond; late > coalesceFor {
				t.Errorf("byte %d was held for %v", f.Offset, late)
			}
		}
		if len(got) > 260 {
			t.Errorf("%d frames for a second of drip", len(got))
		}
	})
}

func TestSendKeepsAnIdleLinkAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := sendTo(t.Context(), &scripted{[]step{{after: time.Hour, record: End{}}}}, SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last := time.Duration(0)
		for _, f := range got {
			if f.at-last > keepAliveEvery {
				t.Fatalf("nothing between %v and %v", last, f.at)
			}
			last = f.at
		}
		if last != time.Hour {
			t.Errorf("the end came at %v", last)
		}
	})
}

func TestSendGivesUpAReaderThatShowsNoSignOfLife(t *testing.T) {
	for name, read := range map[string]func(net.Conn){
		"reads nothing":    func(net.Conn) {},
		"reads everything": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				go read(near)
				began := time.Now()
				source := newTape(rand.New(rand.NewPCG(5, 5)), 1000)
				source.pause = func(i int) time.Duration { return time.Second }
				err := Send(t.Context(), far, 0, source.open(0), SendOptions{})
				if !errors.Is(err, ErrPeerSilent) || time.Since(began) != readerSilence {
					t.Fatalf("%v after %v", err, time.Since(began))
				}
				near.Close()
			})
		})
	}
}

// A pager that stands still for an hour is not a dead reader.
func TestSlowReaderIsHeldBackAndNeverDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := newTape(rand.New(rand.NewPCG(6, 6)), 3000)
		s := &station{tape: recorded}
		sink := &deck{pause: func(i int) time.Duration {
			if i%40 == 4 {
				return time.Hour
			}
			return 0
		}}
		_, _, err := Follow(t.Context(), s.dial, 0, sink, FollowOptions{Notice: func(n Notice) { t.Errorf("notice: %+v", n) }})
		if err != nil || s.dials != 1 {
			t.Fatalf("%v, %d dials", err, s.dials)
		}
		s.wait()
		sink.check(t, recorded, 0)
	})
}

func TestSendTellsWhereToGoWhenItsNodeStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(&MovedError{Hint: "c2:7400"}) })
		near, far := net.Pipe()
		sent := make(chan error, 1)
		go func() { sent <- Send(ctx, far, 0, &scripted{[]step{{record: line(0, 1, "a")}}}, SendOptions{}) }()
		sink := &deck{}
		next, _, err := Receive(t.Context(), near, 0, sink)
		var moved *MovedError
		if !errors.As(err, &moved) || moved.Hint != "c2:7400" || next != 1 {
			t.Errorf("reader: %d, %v", next, err)
		}
		moved = nil
		if err := <-sent; !errors.As(err, &moved) {
			t.Errorf("sender: %v", err)
		}
	})
}

func TestSendEndsSoonAfterItsContextEvenInABlockedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(stop) })
		near, far := net.Pipe() // and nobody reads
		defer near.Close()
		began := time.Now()
		err := Send(ctx, far, 0, newTape(rand.New(rand.NewPCG(7, 7)), 10).open(0), SendOptions{})
		if !errors.Is(err, stop) || time.Since(began) > 10*time.Second+partingGrace {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
	})
}

func TestSendNoticesThatItsReaderHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		time.AfterFunc(time.Minute/2-time.Second, func() { near.Close() })
		began := time.Now()
		go func() { _, _ = wire.ReadFrame(near, nil) }()
		err := Send(t.Context(), far, 0, &scripted{}, SendOptions{})
		if !errors.Is(err, ErrReaderGone) || time.Since(began) != 29*time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
	})
}

func TestSendTellsTheReaderWhyItsSourceFailed(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want wire.StreamError
	}{
		{"refusal", &wire.StreamError{Code: "not_found", Message: "no such job"}, wire.StreamError{Code: "not_found", Message: "no such job"}},
		{"failure", errors.New("disk on fire"), wire.StreamError{Code: "source_failed", Message: "disk on fire", Retry: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := sendTo(t.Context(), &scripted{[]step{{record: line(0, 1, "all ")}, {record: line(4, 1, "of it")}, {err: c.err}}}, SendOptions{})
				if !errors.Is(err, c.err) {
					t.Errorf("Send returned %v", err)
				}
				last := got[len(got)-1]
				failure, err := last.Failure()
				if err != nil || failure != c.want {
					t.Errorf("the reader was told %+v, %v", failure, err)
				}
				var text string
				for _, f := range got[:len(got)-1] {
					text += string(f.Payload)
				}
				if text != "all of it" {
					t.Errorf("before the failure came %q", text)
				}
			})
		})
	}
}

func TestSendNeverPassesOnAHoleInItsSource(t *testing.T) {
	for name, bad := range map[string]Record{
		"hole":        line(3, 1, "x"),
		"early end":   End{Length: 1},
		"late end":    End{Length: 3},
		"empty data":  Data{Offset: 2, Stream: 1},
		"empty gap":   Gap{From: 2, To: 2},
		"no stream":   line(2, 0, "x"),
		"reverse gap": Gap{From: 2, To: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := sendTo(t.Context(), &scripted{[]step{{record: line(0, 1, "ab")}, {record: bad}}}, SendOptions{})
				if !errors.Is(err, ErrProtocol) {
					t.Errorf("Send returned %v", err)
				}
				if len(got) != 2 || got[0].Type != wire.FrameData || got[1].Type != wire.FrameError {
					t.Errorf("sent %+v", got)
				}
			})
		})
	}
}

func TestSendRefusesInputOnAStreamWithoutAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			_ = wire.WriteFrame(near, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Payload: []byte("x")})
		}()
		if err := Send(t.Context(), far, 0, &scripted{}, SendOptions{}); !errors.Is(err, ErrProtocol) {
			t.Fatal(err)
		}
		near.Close()
	})
}

func TestSendReportsAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := newTape(rand.New(rand.NewPCG(8, 8)), 100)
		recorded.pause = func(int) time.Duration { return time.Second }
		near, far := net.Pipe()
		var acked []int64
		sent := make(chan error, 1)
		go func() {
			sent <- Send(t.Context(), far, 0, recorded.open(0), SendOptions{Acked: func(o int64) { acked = append(acked, o) }})
		}()
		sink := &deck{}
		if _, _, err := Receive(t.Context(), near, 0, sink); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if len(acked) < 40 {
			t.Fatalf("acks: %v", acked)
		}
		for i := 1; i < len(acked); i++ {
			if acked[i] <= acked[i-1] || acked[i] > recorded.length() {
				t.Fatalf("acks: %v", acked)
			}
		}
	})
}

// Closing first would make TCP throw away the tail that the reader has not read.
func TestSendLetsTheReaderCloseFirst(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Hour: endLinger} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, _ = wire.ReadFrame(near, nil)
				sleep(ctx, after)
				near.Close()
			}()
			err := Send(t.Context(), far, 0, &scripted{[]step{{record: End{}}}}, SendOptions{})
			cancel()
			if err != nil || time.Since(began) != want {
				t.Errorf("%v after %v, want %v", err, time.Since(began), want)
			}
		})
	}
}

// A reader that is alive but does not read must not keep a node that stops.
func TestPartingFromALiveReaderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, &MovedError{})
		defer cancel()
		near, far := net.Pipe()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for wire.WriteFrame(near, wire.Frame{Type: wire.FrameKeepAlive}) == nil {
				time.Sleep(300 * time.Millisecond)
			}
		}()
		began := time.Now()
		err := Send(ctx, far, 0, &scripted{}, SendOptions{})
		var moved *MovedError
		if !errors.As(err, &moved) || time.Since(began) > time.Second+2*partingGrace {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		near.Close()
		<-stopped
	})
}
