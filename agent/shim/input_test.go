package shim

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func input(t *testing.T, h *Handle, writer uint64) *Input {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	in, err := h.Input(ctx, writer)
	if err != nil {
		cancel()
		t.Fatalf("Input: %v", err)
	}
	t.Cleanup(func() { in.Close(); cancel() })
	return in
}

func write(t *testing.T, in *Input, offset int64, p []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := in.Write(ctx, offset, p); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

// acked waits until everything before offset has been written.
func acked(t *testing.T, in *Input, offset int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for at := in.Acked(); at < offset; {
		next, err := in.Wait(ctx, at)
		if err != nil && next < offset {
			t.Fatalf("acked %d of %d: %v", next, offset, err)
		}
		at = next
	}
}

// ends waits until the input is over, and returns why.
func ends(t *testing.T, in *Input) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for at := in.Acked(); ; {
		next, err := in.Wait(ctx, at)
		if err != nil {
			return err
		}
		at = next
	}
}

func TestInputIsLostByNoAgentAndWrittenTwiceByNone(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := on(t, StdioPipe, job(t, "cat"))
	h := start(t, cfg)
	want := make([]byte, 800_000)
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	// The client keeps what is not acked, and begins with it again under each agent.
	var kept int64
	for kept < int64(len(want)) {
		in := input(t, h, 1)
		for at := kept; at < int64(len(want)); {
			n := min(int64(1+rng.IntN(20_000)), int64(len(want))-at)
			write(t, in, at, want[at:at+n])
			if at += n; rng.IntN(12) == 0 {
				break // the agent dies
			}
			if rng.IntN(4) == 0 {
				at = max(kept, at-rng.Int64N(30_000)) // said once more
			}
		}
		if in.Next() == int64(len(want)) {
			acked(t, in, int64(len(want)))
			if err := in.CloseInput(int64(len(want))); err != nil {
				t.Fatal(err)
			}
			kept = in.Acked()
			wantEnd(t, await(t, h), Exited, 0, "")
			break
		}
		kept = in.Acked()
		in.Close()
		letGo(h)
		var err error
		if h, err = Adopt(cfg.Dir, cfg.Log); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { finish(t, h) })
	}
	if all, _, _ := output(t, h); all != string(want) {
		t.Errorf("%d bytes came back of %d, or other ones", len(all), len(want))
	}
}

func TestAHigherWriterTakesTheInputOver(t *testing.T) {
	h := start(t, on(t, StdioPipe, job(t, "cat")))
	first := input(t, h, 3)
	write(t, first, 0, []byte("first\n"))
	acked(t, first, 6)
	second := input(t, h, 7)
	if at := second.Next(); at != 6 {
		t.Fatalf("the second goes on at %d", at)
	}
	if err := ends(t, first); err != ErrOtherWriter {
		t.Errorf("the first is over because of %v", err)
	}
	if err := first.Write(t.Context(), 6, []byte("late\n")); err != ErrOtherWriter {
		t.Errorf("the first writes: %v", err)
	}
	if err := first.CloseInput(6); err != ErrOtherWriter {
		t.Errorf("the first ends the input: %v", err)
	}
	for _, lower := range []uint64{0, 3, 6} {
		if _, err := h.Input(t.Context(), lower); err != ErrOtherWriter {
			t.Errorf("writer %d: %v", lower, err)
		}
	}
	write(t, second, 6, []byte("second\n"))
	if err := second.CloseInput(13); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, await(t, h), Exited, 0, "")
	if all, _, _ := output(t, h); all != "first\nsecond\n" {
		t.Errorf("output %q", all)
	}
}

func TestAProcessThatDoesNotReadHoldsTheWriterBack(t *testing.T) {
	t.Parallel()
	h := start(t, on(t, StdioPipe, job(t, "read x; echo $x; sleep 1; exec wc -c")))
	in := input(t, h, 1)
	write(t, in, 0, []byte("go\n"))
	p := make([]byte, 1<<20)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := in.Write(ctx, 3, p); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Write: %v", err)
	}
	if next := in.Next(); next > pipeBuffer+feederBuffer+inputBuffer+4096 || in.Acked() > pipeBuffer+4096 {
		t.Errorf("next %d, acked %d", next, in.Acked())
	}
	write(t, in, 3, p) // the same again, from the start
	if err := in.CloseInput(in.Next()); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, await(t, h), Exited, 0, "")
	if all, _, _ := output(t, h); strings.TrimSpace(strings.TrimPrefix(all, "go\n")) != "1048576" {
		t.Errorf("output %q", all)
	}
}

func TestInputThatNobodyReadsIsSaid(t *testing.T) {
	if _, err := start(t, job(t, "exec sleep 60")).Input(t.Context(), 1); err != ErrNoInput {
		t.Errorf("of a log job: %v", err)
	}
	h := start(t, on(t, StdioPipe, job(t, "exec <&-; echo ready; exec sleep 60")))
	awaitOutput(t, h, 6)
	in := input(t, h, 1)
	write(t, in, 0, []byte("x"))
	if err := ends(t, in); err != ErrInputGone || in.Acked() != 0 {
		t.Errorf("closed by the process: %v, acked %d", err, in.Acked())
	}
	h.Kill("enough")
	await(t, h)
	if _, err := h.Input(t.Context(), 2); err != ErrInputGone {
		t.Errorf("of a job that has ended: %v", err)
	}
}

func TestAHoleInTheInputIsRefused(t *testing.T) {
	h := start(t, on(t, StdioPipe, job(t, "cat")))
	in := input(t, h, 1)
	if err := in.Write(t.Context(), 1, []byte("x")); !errors.Is(err, ErrInputOffset) {
		t.Errorf("Write: %v", err)
	}
	if err := in.CloseInput(1); !errors.Is(err, ErrInputOffset) {
		t.Errorf("CloseInput: %v", err)
	}
	if err := in.CloseInput(0); err != nil {
		t.Fatal(err)
	}
	if err := in.Write(t.Context(), 0, []byte("x")); err != ErrInputGone {
		t.Errorf("Write behind the end: %v", err)
	}
	wantEnd(t, await(t, h), Exited, 0, "")
}

func TestWhatIsTypedReachesATerminal(t *testing.T) {
	h := start(t, on(t, StdioTTY, job(t, `read x; echo "got $x"; stty size; echo go; cat; trap 'stty size' WINCH; echo on; while :; do sleep 0.02; done`)))
	in := input(t, h, 1)
	in.Resize(Size{Cols: 132, Rows: 50})
	write(t, in, 0, []byte("hello\n"))
	said := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			r, err := h.OpenOutput(0)
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for {
				rec, err := r.Next()
				if err != nil {
					break
				}
				all.Write(rec.Data)
			}
			_ = r.Close()
			if strings.Contains(all.String(), text) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("never said %q, but %q", text, all.String())
			}
		}
	}
	said("got hello\r\n50 132\r\ngo\r\n")
	if err := in.CloseInput(in.Next()); err != nil {
		t.Errorf("the end, which a terminal does not have: %v", err)
	}
	write(t, in, 6, []byte("line\n\x04")) // ^D ends cat
	said("line\r\nline\r\non\r\n")
	in.Resize(Size{Cols: 40, Rows: 10})
	said("10 40\r\n")
	write(t, in, 12, []byte("\x03")) // ^C
	wantEnd(t, await(t, h), Exited, 130, "")
}
