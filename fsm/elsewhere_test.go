package fsm

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"testing"
)

// replayEnv makes the test binary the other process of replayElsewhere.
const replayEnv = "RCD_FSM_REPLAY"

// restoreEvery is how many entries the other process applies between two
// restores of itself from a snapshot.
const restoreEvery = 997

// replayElsewhere applies a log in another process, on one processor and in a
// time zone with an odd offset, and compares the digest at every index.
func replayElsewhere(t *testing.T, entries []logged, want []Digest) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestReplayHere$")
	cmd.Env = append(os.Environ(), replayEnv+"=1", "GOMAXPROCS=1", "TZ=Asia/Kathmandu")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fed := make(chan error, 1)
	go func() {
		fed <- feed(in, entries)
		_ = in.Close()
	}()
	got := bufio.NewReader(out)
	same := true
	for i := range want {
		var d [16]byte
		if _, err := io.ReadFull(got, d[:]); err != nil {
			t.Errorf("the other process ended at index %d: %v", entries[i].index, err)
			break
		}
		if d != want[i].Bytes() && same {
			same = false
			t.Errorf("the digest at index %d differs in another process", entries[i].index)
		}
	}
	_, _ = io.Copy(io.Discard, got)
	if err := <-fed; err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func feed(w io.Writer, entries []logged) error {
	out := bufio.NewWriter(w)
	for _, e := range entries {
		head := binary.BigEndian.AppendUint64(nil, e.index)
		head = binary.BigEndian.AppendUint64(head, e.term)
		head = binary.BigEndian.AppendUint64(head, uint64(len(e.data)))
		if _, err := out.Write(append(head, e.data...)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// TestReplayHere is the other process of replayElsewhere: entries come in,
// digests go out.
func TestReplayHere(t *testing.T) {
	if os.Getenv(replayEnv) == "" {
		t.Skip("not a test of its own")
	}
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	m := New(Options{PanicOnInvariant: true})
	for applied := 1; ; applied++ {
		var head [24]byte
		if _, err := io.ReadFull(in, head[:]); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, binary.BigEndian.Uint64(head[16:]))
		if _, err := io.ReadFull(in, data); err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Apply(binary.BigEndian.Uint64(head[:]), binary.BigEndian.Uint64(head[8:]), data); err != nil {
			t.Fatal(err)
		}
		d := m.Digest().Bytes()
		if _, err := out.Write(d[:]); err != nil {
			t.Fatal(err)
		}
		if applied%restoreEvery == 0 {
			m = restored(t, m)
		}
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
}
