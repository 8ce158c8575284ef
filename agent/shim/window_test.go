package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/spool"
)

// heldLimit is what a job may have said that nobody reads: the window, what was read in one go beyond it, and nothing else.
const heldLimit = outputWindow + pumpChunk

// awaitHeld waits until a job has said all that it may, and fails if it goes on.
func awaitHeld(t *testing.T, h *Handle, read int64) {
	t.Helper()
	status := awaitOutput(t, h, read+outputWindow)
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		status = h.Status()
		if status.Phase != Running || status.Output > read+heldLimit {
			t.Fatalf("%+v while only %d bytes are read", status, read)
		}
	}
}

// readOn reads n bytes, or to the end with a negative n, and says so.
func readOn(t *testing.T, h *Handle, r *spool.Reader, n int, sum io.Writer) {
	t.Helper()
	for n != 0 {
		rec, err := r.Next()
		if errors.Is(err, spool.ErrNothingYet) {
			select {
			case <-h.Done():
				result, _ := h.Result()
				r.Finish(result.OutputLength)
			case <-time.After(time.Millisecond):
			}
			continue
		}
		if errors.Is(err, io.EOF) && n < 0 {
			return
		}
		if err != nil || rec.Gap != nil {
			t.Fatalf("at %d: gap %+v, %v", r.Offset(), rec.Gap, err)
		}
		_, _ = sum.Write(rec.Data)
		h.Consumed(r.Offset())
		if n > 0 {
			n = max(0, n-len(rec.Data))
		}
	}
}

func TestAnAttachedJobIsHeldBackByItsReaderAndNothingIsDropped(t *testing.T) {
	const lines = 600_000 // 4 MB
	want, length := sha256.New(), 0
	for i := 1; i <= lines; i++ {
		line := strconv.Itoa(i) + "\n"
		length += len(line)
		_, _ = io.WriteString(want, line)
	}
	for _, bound := range []int64{0, spool.MinBound} {
		t.Run(strconv.FormatInt(bound, 10), func(t *testing.T) {
			t.Parallel()
			cfg := on(t, StdioPipe, acting(t, "lines "+strconv.Itoa(lines)))
			cfg.Spec.OutputBound = bound
			cfg.Spec.IdleTimeout = 2 * time.Second // what a loaded machine takes is far below
			h := start(t, cfg)
			awaitHeld(t, h, 0)
			<-time.After(cfg.Spec.IdleTimeout + 500*time.Millisecond) // the time in which it is held back is not its silence
			letGo(h)                                                  // it is so for the next agent too
			h, err := Adopt(cfg.Dir, cfg.Log)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { finish(t, h) })
			r, err := h.OpenOutput(0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			sum := sha256.New()
			readOn(t, h, r, 600_000, sum)
			awaitHeld(t, h, h.consumed)
			readOn(t, h, r, -1, sum)
			result := await(t, h)
			wantEnd(t, result, Exited, 0, "")
			if digest := hex.EncodeToString(sum.Sum(nil)); digest != hex.EncodeToString(want.Sum(nil)) || digest != result.OutputDigest || result.OutputLength != int64(length) {
				t.Errorf("bound %d: read %d of %d bytes, or other ones", bound, r.Offset(), length)
			}
		})
	}
}

func TestATerminalIsHeldBackToo(t *testing.T) {
	t.Parallel()
	h := start(t, on(t, StdioTTY, acting(t, "lines 300000")))
	awaitHeld(t, h, 0)
	r, err := h.OpenOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all strings.Builder
	readOn(t, h, r, -1, &all)
	wantEnd(t, await(t, h), Exited, 0, "")
	if lines := strings.Split(all.String(), "\r\n"); len(lines) != 300_001 || lines[299_999] != "300000" {
		t.Errorf("%d lines", len(lines))
	}
}

func TestAJobThatIsHeldBackCanBeKilledAndItsLastOutputIsThere(t *testing.T) {
	h := start(t, on(t, StdioPipe, acting(t, "lines 600000")))
	awaitHeld(t, h, 0)
	h.Kill("enough")
	result := await(t, h)
	wantEnd(t, result, Killed, 143, "enough")
	all, _, _ := output(t, h)
	if int64(len(all)) != result.OutputLength || len(all) < outputWindow+pumpChunk/2 {
		t.Errorf("%d bytes of output, %d in the result: what stood in the pipe is missing", len(all), result.OutputLength)
	}
}

func TestALogJobIsNeverHeldBack(t *testing.T) {
	wantEnd(t, await(t, start(t, acting(t, "lines 600000"))), Exited, 0, "")
}

// TestTheShimBelievesNoReaderBeyondTheOutput: what was never said has been read by nobody.
func TestTheShimBelievesNoReaderBeyondTheOutput(t *testing.T) {
	s := &server{board: newBoard(), attached: &attachment{}, log: slog.New(slog.DiscardHandler)}
	s.board.grow(1000)
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); s.listenTo(t.Context(), far, &line{}) }()
	for _, offset := range []int64{1 << 40, -1} {
		for _, m := range []message{{Type: typeConsumed, Consumed: &consumedBody{Offset: offset}}, {Type: typePing}} {
			if err := send(near, m); err != nil { // the ping is taken after the first has been seen to
				t.Fatal(err)
			}
		}
		if got := s.attached.readers.at(); got != 1000 {
			t.Errorf("readers at %d of 1000, after %d was said", got, offset)
		}
	}
	_ = near.Close()
	<-done
}

// TestOutputOfAnAttachedJobWaitsForTheDisk: without its directory the spool takes nothing, as on a full disk.
func TestOutputOfAnAttachedJobWaitsForTheDisk(t *testing.T) {
	for _, lost := range []bool{false, true} {
		dir := t.TempDir() + "/out"
		writer, err := spool.Create(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		p, err := newPump(writer, newBoard(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		p.holdBack(&readers{}, func() bool { return lost })
		p.start(streams{stdout: pipe[0], stderr: -1})
		if _, err := unix.Write(pipe[1], []byte("all of it")); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(pipe[1])
		if !lost {
			for deadline := time.Now().Add(30 * time.Second); !p.held.Load(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the job is not held back")
				}
			}
			if p.idle() != 0 || p.board.now().Output != 0 {
				t.Errorf("idle for %v, %+v", p.idle(), p.board.now())
			}
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		p.finish()
		_ = writer.Close()
		if writer.Length() != 9 {
			t.Errorf("lost %v: length %d", lost, writer.Length())
		}
		if lost {
			continue
		}
		r, err := spool.Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := r.Next(); err != nil || string(rec.Data) != "all of it" {
			t.Errorf("stored %q, %v", rec.Data, err)
		}
		_ = r.Close()
	}
}

// TestADiskThatRefusesAtTheEndCostsAnAttachedJobNothing: what is left in the pipe when the job has ended may wait for the disk longer than a stranger who
// holds the pipe is waited for.
func TestADiskThatRefusesAtTheEndCostsAnAttachedJobNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/out"
	writer, err := spool.Create(dir, spool.MinBound) // each chunk is a segment, which needs the directory
	if err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, 4*pumpChunk); err != nil {
		t.Skip(err)
	}
	for range 64 {
		if _, err := unix.Write(pipe[1], make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	_ = unix.Close(pipe[1])
	b := newBoard()
	p, err := newPump(writer, b, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.holdBack(&readers{}, func() bool { return false })
	shut(&p.stop[1]) // the job has ended
	b.mu.Lock()      // holds the pump after its first chunk
	p.start(streams{stdout: pipe[0], stderr: -1})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is stored")
		}
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	b.mu.Unlock()
	time.Sleep(drainBound + 500*time.Millisecond)
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	p.finish()
	_ = writer.Close()
	if writer.Length() != 4*pumpChunk {
		t.Errorf("%d of %d bytes", writer.Length(), 4*pumpChunk)
	}
}
