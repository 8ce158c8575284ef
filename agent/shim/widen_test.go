package shim

import (
	"bytes"
	"log/slog"
	"net"
	"testing"
	"time"

	"rcd/internal/codec"
)

// playEarlier is the input's side of a shim as releases before this one have it: 64 KiB ahead of the process, messages of 16 KiB. It returns what the process
// got, or fails the test.
func playEarlier(t *testing.T, conn net.Conn, length int) []byte {
	const window, limit = 64 << 10, 16 << 10
	defer conn.Close()
	say := func(m message) {
		if err := codec.WriteMessage(conn, m, limit); err != nil {
			t.Error(err)
		}
	}
	say(message{Type: typeHello, Hello: &helloBody{Version: protocolVersion, JobID: "j-1"}})
	var got []byte
	for accepted, written := 0, 0; written < length; {
		var m message
		if err := codec.ReadMessage(conn, &m, limit); err != nil {
			t.Errorf("after %d bytes: %v", len(got), err)
			return got
		}
		if m.Type == typeInput {
			if int(m.Input.Offset) != accepted || accepted+len(m.Input.Data) > written+window {
				t.Errorf("%d bytes at %d, with %d accepted and %d written", len(m.Input.Data), m.Input.Offset, accepted, written)
				return got
			}
			got = append(got, m.Input.Data...)
			accepted = len(got)
		}
		if accepted == written+window || accepted == length { // it is slow
			written = accepted
		}
		say(message{Type: typeInputState, InputState: &inputStateBody{
			Writer: 1, Accepted: int64(accepted), Written: int64(written), Limit: int64(written + window),
		}})
	}
	return got
}

func TestAShimOfAnEarlierReleaseGetsWhatItTakes(t *testing.T) {
	dir := t.TempDir()
	listener, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	want := make([]byte, 1_000_000)
	for i := range want {
		want[i] = byte(i % 251)
	}
	got := make(chan []byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			got <- nil
			return
		}
		got <- playEarlier(t, conn, len(want))
	}()
	in := input(t, newHandle(dir, order{Spec: Spec{JobID: "j-1", Stdio: StdioPipe}}, slog.New(slog.DiscardHandler)), 1)
	in.Widen(1 << 20)
	write(t, in, 0, want)
	select {
	case all := <-got:
		if !bytes.Equal(all, want) {
			t.Errorf("%d bytes arrived of %d, or other ones", len(all), len(want))
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the input does not arrive")
	}
}

func TestAWidenedInputTakesThatMuchAheadOfTheShim(t *testing.T) {
	s := newStation(t, Spec{JobID: "j-1", Stdio: StdioPipe}, unlimited) // whose process reads nothing
	in := input(t, s.h, 1)
	const wide = 1 << 20
	in.Widen(wide)
	in.Widen(1) // it never takes less than it did
	for at := int64(0); at < pipeBuffer+feederBuffer+wide; at += 32 << 10 {
		write(t, in, at, make([]byte, 32<<10))
	}
	s.stop()
}
