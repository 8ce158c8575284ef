package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// halfClosed is like a yamux stream: Close ends what is written and leaves a
// Read that blocks where it is.
type halfClosed struct{ net.Conn }

func (halfClosed) Close() error { return nil }

func TestLinkEndsEvenWhereCloseDoesNotEndARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		sent := make(chan error, 1)
		go func() { sent <- Send(ctx, halfClosed{far}, 0, &scripted{}, SendOptions{}) }()
		if _, _, err := Receive(ctx, halfClosed{near}, 0, &deck{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("receive: %v", err)
		}
		if err := <-sent; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("send: %v", err)
		}
		if d := time.Since(began); d > time.Second+2*partingGrace {
			t.Errorf("it took %v", d)
		}
	})
}

// A plain cancellation is no verdict on the stream either: the reader is sent
// elsewhere rather than told of an error.
func TestSendThatIsCancelledSendsItsReaderElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		near, far := net.Pipe()
		go func() { _ = Send(ctx, far, 0, &scripted{}, SendOptions{}) }()
		var moved *MovedError
		if _, _, err := Receive(t.Context(), near, 0, &deck{}); !errors.As(err, &moved) {
			t.Error(err)
		}
	})
}

// BenchmarkSend measures one link over loopback TCP.
func BenchmarkSend(b *testing.B) {
	recorded := newTape(rand.New(rand.NewPCG(51, 51)), 0)
	recorded.records = nil
	piece := make([]byte, coalesceBytes)
	for i := range b.N {
		recorded.records = append(recorded.records, Data{Offset: int64(i * len(piece)), Stream: 1, Bytes: piece})
	}
	recorded.records = append(recorded.records, End{Length: int64(b.N * len(piece))})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	sent := make(chan error, 1)
	b.SetBytes(int64(len(piece)))
	b.ResetTimer()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = Send(context.Background(), conn, 0, recorded.open(0), SendOptions{})
		}
		sent <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	sink := SinkFunc(func(context.Context, Record) error { return nil })
	if _, _, err := Receive(context.Background(), conn, 0, sink); err != nil {
		b.Fatal(err)
	}
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
}
